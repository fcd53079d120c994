"""A broker in the test's own loop, on the server side of holdfast.amqp: what a node does to a client, and faults.

It keeps what it accepted in lists, remembers producers' numbers and, if told to, tags, and can hold outcomes back,
cut every connection, fall silent, or refuse links. Nothing of it is durable; nothing of it is fast.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from holdfast.amqp.connection import Connection as Engine
from holdfast.amqp.connection import Settings
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.login.exchanges import LoginNotChecked, Proof
from holdfast.amqp.login.keys import Clear
from holdfast.amqp.message.message import Message, split
from holdfast.amqp.session.events import (
    ConnectionClosed,
    CreditChanged,
    Delivery,
    LinkAttached,
    LinkDetached,
    Opened,
    Outcomes,
    ProtocolFailed,
    ResumeAborted,
)
from holdfast.amqp.wire.extensions import NUMBER
from holdfast.amqp.wire.performatives import Accepted, Error, Header, Modified, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol, Timestamp, Ulong
from holdfast.broker.stored.ranges import RangeSet
from holdfast.units import MIB

ENQUEUED_MS = 1_356_998_400_000
CREDIT = 500


@contextmanager
def closed_port() -> Iterator[int]:
    """A TCP port on which nobody listens, nor can by chance: it is held meanwhile, for whoever asks for this one."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@dataclass
class Entry:
    """One message in a queue; `link` holds it while it is with a consumer."""

    sequence: int
    bare: bytes
    enqueued_ms: int
    count: int = 0
    link: Sender | None = None


@dataclass
class Queue:
    """Entries not yet accepted by a consumer, and everything that was ever appended."""

    entries: list[Entry] = field(default_factory=list)
    appended: list[Entry] = field(default_factory=list)
    next_sequence: int = 1


class FakeBroker:
    """`async with FakeBroker() as broker`; `broker.url`. `decide` may reject: payload → outcome or None.

    `keeps_maps`: links on which it receives can be resumed; `tags` is what it said of deliveries, by link and tag.
    """

    def __init__(self, *, users: dict[str, str] | None = None, idle_time_out_s: float | None = None) -> None:
        self.queues: dict[str, Queue] = {}
        self.producers: dict[tuple[str, str], RangeSet] = {}
        self.producer_links: dict[tuple[str, str], Receiver] = {}
        self.producer_epochs: dict[tuple[str, str], int] = {}
        self.users = users
        self.logins = 0
        self.logins_not_checked = 0
        """So many logins are refused before a password is looked at."""
        self.idle_time_out_s = idle_time_out_s
        self.hold_outcomes = False
        self.close_opened: list[tuple[str, str]] = []
        """Of each connection that opens, while there are any: the error with which it is closed at once."""
        self.silent = False
        self.keeps_maps = False
        self.tags: dict[tuple[str, bytes], Any] = {}
        self.resumed: list[Delivery] = []
        self.frame_size = 65_536
        self.message_bytes_max = 64 * MIB
        self.handle_max = 1023
        self.incoming_window = 8_192
        self.answers_attaches = True
        self.refuse: tuple[str, str] | None = None
        self.untruths: dict[Symbol, Any] = {}
        """What it says to a producer in the place of what it has stored."""
        self.after_attach: Callable[[Peer, Any], None] | None = None
        """Called with each link that was accepted, once its answer is on the way."""
        self.knows_filters = True
        """False: as a broker of another kind, which leaves out filters and takes messages away."""
        self.decide: Callable[[bytes], Any] | None = None
        self.on_append: Callable[[int, bytes], None] | None = None
        """Told each number of a producer and the message that is appended with it."""
        self.answer: Callable[[dict[str, Any], Any], tuple[int, str, Any]] | None = None
        self.connections: list[Peer] = []
        self.accepts = 0
        self.attaches = 0
        self.changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        """Listens, on the same port as before if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Takes no connection and ends those there are, as a crash does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Ends every connection at once, without a word."""
        for peer in list(self.connections):
            peer.transport.abort()

    def queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue())

    def put(self, name: str, *bodies: bytes) -> None:
        """Appends messages and offers them."""
        for body in bodies:
            self.append(name, Message(data=[body]).encode())
        self.offer()

    def append(self, name: str, bare: bytes) -> None:
        queue = self.queue(name)
        entry = Entry(queue.next_sequence, bare, ENQUEUED_MS + queue.next_sequence)
        queue.next_sequence += 1
        queue.entries.append(entry)
        queue.appended.append(entry)

    def bodies(self, name: str) -> list[bytes]:
        """Everything ever appended, in order."""
        return [Message.decode(entry.bare).body_bytes() for entry in self.queue(name).appended]

    def offer(self) -> None:
        for peer in self.connections:
            peer.offer()

    def release_outcomes(self) -> None:
        self.hold_outcomes = False
        for peer in self.connections:
            peer.settle()

    def detach_all(self, condition: str | None, description: str = "") -> None:
        """Detaches every link of every connection."""
        error = None if condition is None else Error(Symbol(condition), description)
        for peer in self.connections:
            for link in peer.links:
                link.detach(error=error)
            peer.flush()

    async def until(self, condition: Callable[[], bool], limit_s: float = 10.0) -> None:
        """Waits for `condition`, looked at whenever something came."""
        async with asyncio.timeout(limit_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Peer(asyncio.Protocol):
    """One connection at the broker."""

    transport: asyncio.Transport

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.engine = Engine(
            Settings(
                container_id="fake",
                max_frame_size=broker.frame_size,
                max_message_size=broker.message_bytes_max,
                handle_max=broker.handle_max,
                incoming_window=broker.incoming_window,
                sasl_required=broker.users is not None,
                mechanisms=("ANONYMOUS", "PLAIN") if broker.users is None else ("PLAIN",),
                idle_time_out_s=broker.idle_time_out_s,
                first_transfer_id=4_294_967_290,  # serial numbers wrap at once
            ),
            server=True,
            authenticate=self.authenticate,
            now=self.loop.time(),
        )
        self.links: list[Any] = []
        self.replies: dict[str, Sender] = {}
        self.cursors: dict[Sender, int] = {}
        """Of links that only look: the sequence that comes next."""
        self.decided: list[tuple[Receiver, int, Any]] = []
        self.first_read: bytes | None = None

    def authenticate(self, mechanism: str, user: str | None, proof: Proof | None) -> bool:
        broker = self.broker
        broker.logins += 1
        if broker.logins_not_checked:
            broker.logins_not_checked -= 1
            raise LoginNotChecked
        if broker.users is None:
            return True
        password = broker.users.get(user or "")
        return password is not None and proof is not None and proof(Clear(password))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.broker.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.connections.remove(self)
        for link in self.links:
            self.give_back(link)
        self.broker.changed.set()
        self.broker.offer()

    def data_received(self, data: bytes) -> None:
        if self.first_read is None:
            self.first_read = data
        if self.broker.silent:
            return
        for event in self.engine.receive(data, self.loop.time()):
            if isinstance(event, LinkAttached):
                if event.remote_initiated:
                    self.attached(event.link)
            elif isinstance(event, Delivery):
                self.delivered(event)
            elif isinstance(event, Outcomes):
                self.outcomes(event)
            elif isinstance(event, LinkDetached):
                if event.link in self.links:
                    self.links.remove(event.link)
                self.give_back(event.link)
            elif isinstance(event, ResumeAborted):
                self.top_up(event.link)
            elif isinstance(event, Opened) and self.broker.close_opened:
                condition, text = self.broker.close_opened.pop()
                self.engine.close(Error(Symbol(condition), text))
            elif isinstance(event, CreditChanged):
                pass
            elif isinstance(event, ConnectionClosed | ProtocolFailed):
                self.loop.call_soon(self.transport.close)
        if not self.broker.hold_outcomes:
            self.settle()
        self.offer()
        self.broker.changed.set()

    def flush(self) -> None:
        if not self.broker.silent and not self.transport.is_closing():
            self.transport.writelines(self.engine.take_output(self.loop.time()))

    def attached(self, link: Any) -> None:
        broker = self.broker
        broker.attaches += 1
        if not broker.answers_attaches:
            return
        if broker.refuse is not None:
            link.refuse(*broker.refuse)
            return
        self.links.append(link)
        if broker.after_attach is not None:
            self.loop.call_soon(broker.after_attach, self, link)
        attach = link.remote_attach
        if isinstance(link, Sender):
            link.context = attach.source
            if attach.source.dynamic:
                link.context = replace(attach.source, address=f"dynamic-{broker.attaches}")
                link.accept(source=link.context)
                return
            if attach.source.address == "$management":
                self.replies[str(attach.target.address)] = link
            if broker.knows_filters:
                link.accept()
            else:
                link.context = replace(attach.source, filter=None, distribution_mode=None)
                link.accept(source=link.context)
            return
        link.context = attach.target.address
        producer = (attach.properties or {}).get(Symbol("holdfast:producer"))
        properties = None
        if producer is not None:
            key = (str(link.context), str(producer))
            older = broker.producer_links.get(key)
            if older is not None and not older.detached:
                older.detach(error=Error(Symbol("amqp:link:stolen"), "another holds the name"))
                for peer in broker.connections:
                    if peer is not self:
                        peer.flush()
            broker.producer_links[key] = link
            stored = broker.producers.setdefault(key, RangeSet())
            epoch = broker.producer_epochs[key] = broker.producer_epochs.get(key, 0) + 1
            properties = {
                Symbol("holdfast:last-number"): Ulong(stored.last),
                Symbol("holdfast:producer-epoch"): Ulong(epoch),
                Symbol("holdfast:missing"): [
                    [Ulong(first), Ulong(last)] for first, last in stored.gaps(1, stored.last)
                ],
            } | broker.untruths
        unsettled = None
        if broker.keeps_maps and attach.unsettled is not None:
            unsettled = {tag: state for tag in attach.unsettled if (state := broker.tags.get((link.name, tag)))}
        link.accept(properties=properties, unsettled=unsettled)
        link.grant(CREDIT)

    def delivered(self, event: Delivery) -> None:
        link, broker = event.link, self.broker
        address = str(link.context)
        if address == "$management":
            self.answer(event)
            return
        if event.resume:
            self.broker.resumed.append(event)
            self.top_up(link)
            return
        sections = split(event.payload)
        state: Any = broker.decide(event.payload[sections.bare :]) if broker.decide is not None else None
        if state is None:
            state = Accepted()
            number = (Message.decode(event.payload).message_annotations or {}).get(NUMBER)
            key = next((key for key, held in broker.producer_links.items() if held is link), None)
            if key is None or number is None or number not in broker.producers[key]:
                broker.append(address, event.payload[sections.bare :])
                if key is not None and number is not None:
                    broker.producers[key].add(int(number))
                    if broker.on_append is not None:
                        broker.on_append(int(number), event.payload[sections.bare :])
        broker.tags[link.name, event.tag] = state
        if not event.settled:
            self.decided.append((link, event.delivery_id, state))
        self.top_up(link)

    @staticmethod
    def top_up(link: Receiver) -> None:
        if link.credit < CREDIT // 2:
            link.grant(CREDIT)

    def settle(self) -> None:
        decided, self.decided = self.decided, []
        for link, delivery_id, state in decided:
            link.settle(delivery_id, delivery_id, state)
        self.flush()

    def answer(self, event: Delivery) -> None:
        event.link.settle(event.delivery_id, event.delivery_id, Accepted())
        self.top_up(event.link)
        request = Message.decode(event.payload)
        assert request.properties is not None and self.broker.answer is not None
        code, text, body = self.broker.answer(request.application_properties or {}, request.value)
        reply = Message(
            properties=request.properties.__class__(correlation_id=request.properties.message_id),
            application_properties={"statusCode": code, "statusDescription": text},
            value=body,
        )
        self.replies[str(request.properties.reply_to)].send(reply.encode(), context=None, settled=True)

    def outcomes(self, event: Outcomes) -> None:
        for entry in event.contexts:
            if entry is None:
                continue
            queue = self.broker.queue(str(event.link.context.address))
            entry.link = None
            if isinstance(event.state, Accepted | Rejected):
                self.broker.accepts += 1
                if entry in queue.entries:
                    queue.entries.remove(entry)
            elif isinstance(event.state, Modified) and event.state.delivery_failed:
                entry.count += 1
            else:
                assert isinstance(event.state, Released | Modified)

    def give_back(self, link: Any) -> None:
        for queue in self.broker.queues.values():
            for entry in queue.entries:
                if entry.link is link:
                    entry.link = None
                    entry.count += 1

    def offer(self) -> None:
        """Sends what consumers have credit for; closes a range's link after its last entry."""
        for link in list(self.links):
            if not isinstance(link, Sender) or link.context.address == "$management" or link.detached:
                continue
            source = link.context
            queue = self.broker.queue(str(source.address))
            if source.distribution_mode == "copy":
                self.copy(link, source, queue)
                continue
            for entry in queue.entries:
                if not link.sendable:
                    break
                if entry.link is None:
                    entry.link = link
                    link.send(self.told(entry), context=entry)
        self.flush()

    def copy(self, link: Sender, source: Any, queue: Queue) -> None:
        filters = {
            str(key): value.value if isinstance(value, Described) else value
            for key, value in (source.filter or {}).items()
        }
        end = filters.get("holdfast:end-sequence:ulong")
        at = self.cursors.get(link) or filters.get("holdfast:start-sequence:ulong", 1)
        for entry in queue.appended:
            if entry.sequence < at or (end is not None and entry.sequence >= end):
                continue
            if not link.sendable:
                break
            link.send(self.told(entry), context=None, settled=True)
            at = entry.sequence + 1
        self.cursors[link] = at
        if end is not None and at >= min(end, queue.next_sequence):
            link.detach()

    @staticmethod
    def told(entry: Entry) -> list[bytes]:
        head = Message(
            header=Header(durable=True, first_acquirer=entry.count == 0, delivery_count=entry.count),
            message_annotations={
                Symbol("x-opt-sequence-number"): Ulong(entry.sequence),
                Symbol("x-opt-enqueued-time"): Timestamp(entry.enqueued_ms),
            },
        ).encode()
        return [head, entry.bare]
