"""Qpid Proton's blocking client with what tests want beside it: raw payloads, credit by hand, outcomes in full.

Rules of this file: all waiting is Proton's own event loop with a limit. `Inbox` keeps every delivery as it came;
nothing is settled but by the test.
"""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import proton
from proton import Data, Delivery, Link, Message
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

from interop.recorder import Frame
from support.eventually import eventually

LIMIT_S: Final = 90.0

_names = itertools.count(1)

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
_REWRITTEN: Final = {
    HEADER: "amqp:header:list",
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
}


def sections(payload: bytes) -> list[tuple[int | str, bytes]]:
    """(descriptor, bytes) of each section, cut by Proton's own decoder."""
    found = []
    while payload:
        data = Data()
        size = data.decode(payload)
        data.rewind()
        data.next()
        data.enter()
        data.next()
        descriptor = data.get_object()
        code = str(descriptor) if isinstance(descriptor, str) else int(descriptor)
        found.append((code, payload[:size]))
        payload = payload[size:]
    return found


def bare(payload: bytes) -> bytes:
    """What a node may not touch: all but header, delivery-annotations and message-annotations (§3.2)."""
    kept = [raw for code, raw in sections(payload) if code not in _REWRITTEN and code not in _REWRITTEN.values()]
    return b"".join(kept)


def fields(frame: Frame) -> list[Any]:
    """What the performative of a recorded frame lists, as Proton's decoder reads it."""
    data = Data()
    data.decode(frame.raw[8:])
    data.rewind()
    data.next()
    found = data.get_object().value
    return [bytes(value) if isinstance(value, memoryview) else value for value in found]


class Arrival(NamedTuple):
    """A delivery, whole: `payload` as it came over the wire."""

    payload: bytes
    delivery: Delivery

    @property
    def message(self) -> Message:
        message = Message()
        message.decode(self.payload)
        return message

    @property
    def body(self) -> Any:
        """Text, number or list; Proton's view of a binary does not outlive its message, so that is copied."""
        message = self.message
        return bytes(message.body) if isinstance(message.body, memoryview) else message.body

    def settle(self, state: int | None = None) -> None:
        if state is not None:
            self.delivery.update(state)
        self.delivery.settle()

    def accept(self) -> None:
        self.settle(Delivery.ACCEPTED)


class Inbox(proton.Handler):
    """A receiving link's events, kept in order."""

    def __init__(self) -> None:
        self.arrivals: deque[Arrival] = deque()
        self.updates: list[tuple[int, bool]] = []
        """(remote state, remotely settled) of deliveries that the node spoke of again (rcv-settle-mode second)."""
        self.ended = False

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            payload = event.link.recv(delivery.pending) or b""
            event.link.advance()
            self.arrivals.append(Arrival(payload, delivery))
        elif delivery.updated:
            self.updates.append((delivery.remote_state, delivery.settled))

    def on_link_remote_close(self, event: Any) -> None:
        self.ended = True

    on_link_remote_detach = on_link_remote_close


class Inflow:
    """A receiver without credit of its own making."""

    def __init__(self, client: "Client", link: Any, inbox: Inbox) -> None:
        self.client = client
        self.blocking = link
        self.link = link.link
        self.inbox = inbox

    def flow(self, credit: int) -> Self:
        self.link.flow(credit)
        return self

    def take(self, count: int = 1, *, limit_s: float = LIMIT_S) -> list[Arrival]:
        """The next `count` deliveries; needs the credit to have been given."""
        arrivals = self.inbox.arrivals
        try:
            self.client.wait(lambda: len(arrivals) >= count, limit_s=limit_s)
        except proton.Timeout:
            raise AssertionError(f"{len(arrivals)} of {count} deliveries came within {limit_s:g} s") from None
        return [arrivals.popleft() for _ in range(count)]

    def one(self) -> Arrival:
        """One more delivery, for one more credit."""
        self.flow(1)
        return self.take()[0]

    def drain(self) -> list[Arrival]:
        """All that the node has for this link; returns once the drain is answered."""
        if not self.link.credit:
            self.link.drain(1_000)
        else:
            self.link.drain(0)
        self.client.wait(lambda: not self.link.draining())
        found = list(self.inbox.arrivals)
        self.inbox.arrivals.clear()
        return found

    def close(self) -> None:
        self.blocking.close()

    def detach(self) -> None:
        """Detaches without closing (closed=false), and waits for the answer."""
        self.link.detach()
        self.client.wait(lambda: self.inbox.ended)
        self.link.free()


class Client:
    """A connection to `port`; `with Client(port) as client:`. Options are BlockingConnection's."""

    def __init__(self, port: int, *, url: str | None = None, **options: Any) -> None:
        self.connection = BlockingConnection(url or f"amqp://127.0.0.1:{port}", timeout=LIMIT_S, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.connection.close()
        except proton.ProtonException:
            if kind is None:
                raise

    def wait(self, condition: Callable[[], object], *, limit_s: float = LIMIT_S) -> None:
        self.connection.wait(condition, timeout=limit_s)

    def sender(self, address: str | None, *options: LinkOption, name: str | None = None) -> Any:
        name = name or f"sender-{next(_names)}"
        return self.connection.create_sender(address, name=name, options=list(options))

    def receiver(self, address: str, *options: LinkOption, name: str | None = None) -> Inflow:
        """A receiver with no credit yet; Proton's own names are the same for all links to an address."""
        inbox = Inbox()
        name = name or f"receiver-{next(_names)}"
        link = self.connection.create_receiver(address, credit=0, handler=inbox, name=name, options=list(options))
        return Inflow(self, link, inbox)

    def send(self, address: str, *messages: Message) -> None:
        """Each is sent and accepted before the next goes."""
        sender = self.sender(address)
        for message in messages:
            sender.send(message)
        sender.close()

    def send_bodies(self, address: str, *bodies: Any) -> None:
        self.send(address, *(Message(body=body) for body in bodies))

    def stream(self, sender: Any, payload: bytes, *, part_bytes: int | None = None) -> Delivery:
        """One delivery of these very bytes; with `part_bytes`, in transfers no larger. Waits for its outcome."""
        link = sender.link
        self.wait(lambda: link.credit)
        delivery = link.delivery(link.delivery_tag())
        if part_bytes is None:
            link.stream(payload)
        else:
            for at in range(0, len(payload), part_bytes):
                link.stream(payload[at : at + part_bytes])
                self.wait(lambda: not delivery.pending)
        link.advance()
        self.wait(lambda: delivery.settled)
        delivery.settle()
        return delivery

    def barrier(self, address: str) -> None:
        """Returns once the node has worked through all that this connection sent before, and its own answers."""
        self.send_bodies(f"{address}-barrier", "here")
        receiver = self.receiver(f"{address}-barrier")
        receiver.one().accept()
        receiver.close()

    def serves(self, address: str) -> None:
        """Sends to a queue that is empty and takes what was sent."""
        self.send_bodies(address, "x")
        receiver = self.receiver(address)
        arrival = receiver.one()
        assert arrival.body == "x"
        arrival.accept()
        receiver.close()

    def await_depth(self, address: str, wanted: int) -> None:
        """Waits until a browser that drains finds so many entries: what was settled goes with the next commit."""

        def depth() -> int:
            browser = self.receiver(address, proton.reactor.Copy())
            count = len(browser.drain())
            browser.close()
            return count

        eventually(depth, lambda count: count == wanted, what=f"{wanted} entries in {address}")


class Modes(LinkOption):
    """Settle modes by hand."""

    def __init__(self, *, sender: int | None = None, receiver: int | None = None) -> None:
        self.sender = sender
        self.receiver = receiver

    def apply(self, link: Any) -> None:
        if self.sender is not None:
            link.snd_settle_mode = self.sender
        if self.receiver is not None:
            link.rcv_settle_mode = self.receiver


PRESETTLED: Final = Modes(sender=Link.SND_SETTLED)
SECOND: Final = Modes(receiver=Link.RCV_SECOND)


class ByNumber(proton.reactor.Filter):
    """Begins at a sequence number (the node's own filter)."""

    def __init__(self, start: int) -> None:
        name = proton.symbol("holdfast:start-sequence:ulong")
        super().__init__({name: proton.Described(name, proton.ulong(start))})
