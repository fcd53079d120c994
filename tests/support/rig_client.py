"""An AMQP client in memory, as a test drives it (support/rig.py joins it to nodes).

Rules of this file: no socket, no clock; it knows the rig only as `Shared`.
"""

from typing import Any, Protocol

from holdfast.amqp.connection import (
    Connection,
    ConnectionClosed,
    CreditChanged,
    Delivery,
    LinkAttached,
    LinkDetached,
    Outcomes,
    Receiver,
    Sender,
    Settings,
)
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Error, Properties, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from support.wires import End


class Shared(Protocol):
    """What clients share: the time, and that all that can happen happens."""

    now: float

    def settle(self) -> object: ...


class Client:
    """An AMQP client in memory. Deliveries and outcomes are kept in the order in which they came."""

    def __init__(self, rig: Shared, **settings: Any) -> None:
        self.rig = rig
        self.amqp = Connection(Settings(**{"container_id": "client"} | settings), server=False, now=rig.now)
        self.session = self.amqp.begin()
        self.end: End | None = None
        self.deliveries: list[Delivery] = []
        self.outcomes: list[tuple[Any, Any]] = []
        self.detached: list[LinkDetached] = []
        self.over = False
        self.closed: Error | None = None
        """Why the node closed the connection."""
        self._requests = 0
        self._management: tuple[Sender, Receiver] | None = None

    def receive(self, data: bytes) -> None:
        for event in self.amqp.receive(data, self.rig.now):
            if isinstance(event, Delivery):
                self.deliveries.append(event)
            elif isinstance(event, Outcomes):
                self.outcomes += [(context, event.state) for context in event.contexts]
            elif isinstance(event, LinkDetached):
                self.detached.append(event)
            elif isinstance(event, ConnectionClosed):
                self.closed = self.closed or event.error
            else:
                assert not isinstance(event, LinkAttached) or not event.remote_initiated
                assert not isinstance(event, CreditChanged) or event.link.credit >= 0

    def lost(self) -> None:
        self.over = True
        self.receive(b"")
        for event in self.amqp.transport_lost():
            if isinstance(event, LinkDetached):
                self.detached.append(event)

    def close_transport(self) -> None:
        assert self.end is not None
        self.end.wire.cut()

    @property
    def has_written(self) -> bool:
        return bool(self.amqp.output or self.amqp._login_output)

    def flush(self) -> None:
        data = b"".join(self.amqp.take_output(self.rig.now))
        if data and self.end is not None and self.end.alive:
            self.end.wire.write(self.end, data)

    # ------------------------------------------------------------------------------------------------ links

    def sender(self, address: str, *, name: str | None = None, **options: Any) -> Sender:
        self._requests += 1
        target = Target(address=address, **options.pop("target", {}))
        return self.session.attach_sender(name or f"s{self._requests}", Source(), target, **options)

    def receiver(self, address: str, *, name: str | None = None, credit: int = 1000, **options: Any) -> Receiver:
        self._requests += 1
        fields = options.pop("source", {})
        receiver = self.session.attach_receiver(
            name or f"r{self._requests}", Source(address=address, **fields), Target(address="here"), **options
        )
        if credit:
            receiver.grant(credit)
        return receiver

    def reader(self, address: str, first: int, last: int | None = None, **options: Any) -> Receiver:
        """A reader of `[first, last)` by sequence."""
        filters = {Symbol("start"): Described(Symbol("holdfast:start-sequence:ulong"), Ulong(first))}
        if last is not None:
            filters[Symbol("end")] = Described(Symbol("holdfast:end-sequence:ulong"), Ulong(last))
        filters |= options.pop("filters", {})
        source = {"filter": filters, "distribution_mode": Symbol("copy")}
        return self.receiver(address, source=source, snd_settle_mode=1, **options)

    def send(self, link: Sender, body: str, *, number: int | None = None, context: Any = None, **parts: Any) -> None:
        message = Message(data=[body.encode()], **parts)
        if number is not None:
            message.message_annotations = {Symbol("x-opt-holdfast-number"): Ulong(number)}
        link.send(message.encode(), context=body if context is None else context)

    def bodies(self, link: Receiver | None = None) -> list[str]:
        return [
            Message.decode(item.payload).body_bytes().decode()
            for item in self.deliveries
            if (link is None or item.link is link) and item.link.name != "replies"
        ]

    def messages(self, link: Receiver | None = None) -> list[Message]:
        return [Message.decode(item.payload) for item in self.deliveries if link is None or item.link is link]

    def accept(self, outcome: Any = None, *, count: int | None = None, link: Receiver | None = None) -> list[str]:
        """Settles the oldest deliveries; returns their bodies."""
        mine = [item for item in self.deliveries if link is None or item.link is link][:count]
        for item in mine:
            if not item.settled:
                item.link.settle(item.delivery_id, item.delivery_id, Accepted() if outcome is None else outcome)
        self.deliveries = [item for item in self.deliveries if item not in mine]
        return [Message.decode(item.payload).body_bytes().decode() for item in mine]

    def manage(self, operation: str, kind: str, name: str = "", **arguments: Any) -> tuple[int, dict[str, Any], str]:
        """(statusCode, body, statusDescription) of one request."""
        self.request(operation, kind, name, **arguments)
        self.rig.settle()
        return self.answer()

    def request(self, operation: str, kind: str, name: str = "", **arguments: Any) -> None:
        """A request whose answer is not waited for."""
        if self._management is None:
            replies = self.session.attach_receiver("replies", Source(address="$management"), Target(address="replies"))
            replies.grant(1000)
            self._management = self.sender("$management"), replies
            self.rig.settle()
        self._requests += 1
        told = {"operation": operation, "type": kind if "." in kind else f"holdfast:{kind}", "name": name}
        properties = Properties(message_id=f"m{self._requests}", reply_to="replies")
        request = Message(properties=properties, application_properties=told, value=arguments)
        self._management[0].send(request.encode(), context=None, settled=True)

    def answer(self) -> tuple[int, dict[str, Any], str]:
        """(statusCode, body, statusDescription): the answer to the last request; those before it are dropped."""
        found = [item for item in self.deliveries if item.link.name == "replies"]
        self.deliveries = [item for item in self.deliveries if item.link.name != "replies"]
        answer = Message.decode(found[-1].payload)
        assert answer.properties is not None and answer.properties.correlation_id == f"m{self._requests}"
        told = answer.application_properties or {}
        body = {str(key): value for key, value in answer.value.items()} if isinstance(answer.value, dict) else {}
        return int(told["statusCode"]), body, told["statusDescription"]
