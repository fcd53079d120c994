"""A broker that is no Holdfast node: AMQP 1.0 alone, with queues in memory that survive its connections.

Rules of this file: no socket and no clock; what it decides about a message is told by `decide`. It knows no extension
of Holdfast, and uses none of its annotations.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.amqp.connection import (
    Connection,
    ConnEvent,
    CreditChanged,
    Deliveries,
    Delivery,
    LinkAttached,
    LinkDetached,
    Opened,
    Outcomes,
    Receiver,
    Sender,
    SessionBegun,
    Settings,
)
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Error, Modified, Rejected, Released
from holdfast.amqp.wire.types import Symbol

CREDIT: Final = 20
UNBOUNDED: Final = 2**32

Excess = Literal["link", "session", "connection"]
"""What a link too many ends: itself, its session, or the connection. A session too many ends itself or the
connection."""

Decide = Callable[[str, bytes], object]
"""The outcome of a message for an address; None: it stays open."""


@dataclass(slots=True)
class PlainBroker:
    """`came`: what was accepted, by address, in order, each payload; `returned` and `rejected`: what was not. `offers`:
    what is there to be fetched, by address."""

    name: str = "plain"
    decide: Decide = lambda address, payload: Accepted()
    credit: int = CREDIT
    message_bytes_max: int = 0
    refuses: set[str] = field(default_factory=set)
    """Addresses at which links are refused."""
    ignores: set[str] = field(default_factory=set)
    """Addresses at which attaches are not answered."""
    settles: bool = False
    """It settles every second message that it sends, whatever it was asked for."""
    drains: bool = True
    """It answers drains."""
    begins: bool = False
    """It begins a session of its own when a connection is opened."""
    links_max: int = UNBOUNDED
    sessions_max: int = UNBOUNDED
    """What a connection may have, whatever its handle-max and channel-max say; `excess` says what one too many ends."""
    excess: Excess = "link"
    came: dict[str, list[bytes]] = field(default_factory=dict)
    returned: list[bytes] = field(default_factory=list)
    rejected: list[bytes] = field(default_factory=list)
    offers: dict[str, deque[bytes]] = field(default_factory=dict)
    fetched: list[bytes] = field(default_factory=list)
    """What was accepted of it."""
    not_taken: list[tuple[bytes, object]] = field(default_factory=list)
    """What was refused of it, with the outcome."""


class PlainConnection:
    """One connection to it."""

    def __init__(self, broker: PlainBroker, now: float, **settings: Any) -> None:
        self.broker = broker
        largest = broker.message_bytes_max or 2**40
        own: dict[str, Any] = {"container_id": broker.name, "max_message_size": largest, "runs": True}
        self.amqp = Connection(Settings(**own | settings), server=True, now=now)
        self.links: list[Receiver | Sender] = []
        self._sent = 0
        self.open: list[Delivery] = []
        """Deliveries of which nothing is decided yet."""

    def receive(self, data: bytes, now: float) -> None:
        for event in self.amqp.receive(data, now):
            self._happened(event)
        self._top_up()

    def tick(self, now: float) -> None:
        """Time has passed."""
        for event in self.amqp.tick(now):
            self._happened(event)

    @property
    def in_doubt(self) -> list[bytes]:
        """What was sent and has no outcome."""
        return [payload for link in self.links if isinstance(link, Sender) for payload in link.unsettled.values()]

    def lost(self) -> None:
        """The transport has ended: what was not answered is offered again."""
        for event in self.amqp.transport_lost():
            self._happened(event)

    def take_output(self, now: float) -> bytes:
        return b"".join(self.amqp.take_output(now))

    # ------------------------------------------------------------------------------------------------ events

    def _happened(self, event: ConnEvent) -> None:
        if isinstance(event, LinkAttached) and event.remote_initiated:
            assert isinstance(event.link, (Receiver, Sender))
            self._attach(event.link)
        elif isinstance(event, Opened) and self.broker.begins:
            self.amqp.begin()
        elif isinstance(event, SessionBegun):
            if len(self.amqp.sessions) > self.broker.sessions_max:
                self._end(event.session, "session")
        elif isinstance(event, Delivery):
            self._came(event)
        elif isinstance(event, Deliveries):
            for number, payload in enumerate(event.payloads, event.first_id):
                self._came(Delivery(event.link, number, b"", 0, event.settled, payload, None, None))
        elif isinstance(event, CreditChanged):
            self._offer(event.link)
        elif isinstance(event, Outcomes):
            self._decided(event)
        elif isinstance(event, LinkDetached):
            if event.link in self.links:
                self.links.remove(event.link)
            if isinstance(event.link, Sender) and event.link.context:
                self.broker.offers[event.link.context].extendleft(reversed(event.unsettled))

    def _attach(self, link: Receiver | Sender) -> None:
        attach = link.remote_attach
        assert attach is not None
        terminus = attach.target if isinstance(link, Receiver) else attach.source
        address = str(terminus.address)
        if address in self.broker.ignores:
            return
        if address in self.broker.refuses:
            link.refuse(conditions.NOT_FOUND, f"no address {address}")
            return
        if len(self.links) >= self.broker.links_max:
            self._end(link.session, "link", link)
            return
        link.context = address
        self.links.append(link)
        link.accept()
        if isinstance(link, Sender):
            self.broker.offers.setdefault(address, deque())
            self._offer(link)

    def _end(self, session: Any, what: str, link: Receiver | Sender | None = None) -> None:
        """There is one too many of that."""
        error = Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), f"no further {what}")
        if self.broker.excess == "connection":
            self.amqp.close(error)
        elif link is None or self.broker.excess == "session":
            session.end(error)
        else:
            link.refuse(error.condition, str(error.description))

    def _came(self, delivery: Delivery) -> None:
        outcome = self.broker.decide(delivery.link.context, bytes(delivery.payload))
        if outcome is None:
            self.open.append(delivery)
        else:
            self.settle(delivery, outcome)

    def _top_up(self) -> None:
        """Gives each link credit for as many deliveries as may be open."""
        for link in self.links:
            if isinstance(link, Receiver) and link.attached:
                left = self.broker.credit - sum(delivery.link is link for delivery in self.open)
                if link.credit <= left // 2:
                    link.grant(left)

    def settle(self, delivery: Delivery, outcome: object) -> None:
        """Answers a delivery."""
        if delivery in self.open:
            self.open.remove(delivery)
        broker, payload = self.broker, bytes(delivery.payload)
        if isinstance(outcome, Accepted):
            broker.came.setdefault(delivery.link.context, []).append(payload)
        else:
            (broker.rejected if isinstance(outcome, Rejected) else broker.returned).append(payload)
        delivery.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)

    # ------------------------------------------------------------------------------------------------ what is fetched

    def offer(self) -> None:
        """There is more to fetch."""
        for link in self.links:
            self._offer(link)

    def _offer(self, link: Receiver | Sender) -> None:
        if not isinstance(link, Sender):
            return
        waiting = self.broker.offers.get(link.context or "", deque())
        while waiting and link.sendable:
            payload = waiting.popleft()
            self._sent += 1
            link.send(payload, context=payload, settled=self.broker.settles and self._sent % 2 == 0)
        if self.broker.drains and not (waiting and link.credit):
            link.drained()

    def _decided(self, event: Outcomes) -> None:
        broker, link, state = self.broker, event.link, event.state
        for payload in event.contexts:
            if isinstance(state, Accepted):
                broker.fetched.append(payload)
            else:
                broker.not_taken.append((payload, state))
        if isinstance(state, (Released, Modified)):
            broker.offers[link.context].extendleft(reversed(event.contexts))
            self._offer(link)


def rejection(text: str) -> Rejected:
    """An outcome with that reason."""
    return Rejected(Error(Symbol("amqp:not-allowed"), text))
