"""Links that bring messages from clients: into a queue here, or into the transmission queue for another node.

Rules of this file: a delivery is answered once it is on disk (`stored`) or cannot be (`refused`); at a full queue
`block` parks what was already under way and gives no credit, `refuse` rejects. CUSTODY, "Producers".
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import conditions
from holdfast.amqp.connection import Deliveries, Delivery, Receiver
from holdfast.amqp.message import BARE_STARTS, split
from holdfast.amqp.performatives import Accepted, Error, Rejected
from holdfast.amqp.types import Symbol
from holdfast.broker import entry
from holdfast.broker.producers import Producer
from holdfast.broker.queue import Queue
from holdfast.core import annotate
from holdfast.core.identity import next_identity
from holdfast.core.peer import Peer
from holdfast.core.turn import runs
from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

ACCEPTED: Final = Accepted()

ENTRY_OVERHEAD: Final = 512
"""Bytes that an entry may have beyond its payload: its fixed part, identity, address."""


def rejection(condition: str, description: str) -> Rejected:
    return Rejected(Error(Symbol(condition), description))


class Ingress:
    """What all links that bring messages share: answers in ranges, credit topped up at half."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Receiver) -> None:
        self.core = core
        self.peer = peer
        self.link = link

    def settle(self, deliveries: list[int], outcome: object) -> None:
        """One disposition for each run of delivery ids; nothing where the link is gone."""
        if self.link.detached or not deliveries:
            return
        for first, last in runs(deliveries):
            self.link.settle(first, last, outcome)
        self.peer.touch()

    def stored(self, deliveries: list[int]) -> None:
        self.settle(deliveries, ACCEPTED)

    def refused(self, deliveries: list[int]) -> None:
        self.settle(deliveries, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, "the node's disk is full"))

    def top_up(self, window: int) -> None:
        """Grants `window` where half of it is used up (CLIENTS 16); takes credit back where the window shrank."""
        if self.link.attached and self.link.credit <= window // 2 and self.link.credit != window:
            self.link.grant(window)
            self.peer.touch()

    def delivered(self, delivery: Delivery) -> None:
        raise AssertionError("each kind of link takes its own")

    def delivered_all(self, run: Deliveries) -> None:
        """As `delivered`, for each of a run."""
        for number, payload in enumerate(run.payloads, run.first_id):
            self.delivered(Delivery(self.link, number, b"", run.message_format, run.settled, payload, None, None))

    def gone(self) -> None:
        """The link was detached, by either side, or its connection is lost."""


class ProducerLink(Ingress):
    """From a client into `queue`; `destination` names the other node where `queue` is its transmission queue."""

    may_wait = True
    """Whether a message waits at a full queue that blocks; a link to many queues rejects it (relay.py)."""

    def __init__(
        self,
        core: "NodeCore",
        peer: Peer,
        link: Receiver,
        queue: Queue,
        *,
        destination: str | None = None,
        to: str = "",
        producer: Producer | None = None,
    ) -> None:
        super().__init__(core, peer, link)
        self.queue = queue
        self.destination = destination
        self.to = to
        self.producer = producer
        self.parked: deque[Delivery] = deque()
        self._plain_starts: tuple[bytes, ...] = ()
        """How a payload begins that has the header of the last plain one, and then its bare message."""
        self._header_bytes = 0
        self._header_durable = False
        core.producers_of(queue)[self] = None

    # ------------------------------------------------------------------------------------------------ credit

    def refill(self) -> None:
        """Called when the queue has room again, and once a turn while messages come."""
        while self.parked and self._take(self.parked[0]):
            self.parked.popleft()
        if not self.parked:
            limit = self.core.config.limits.credit
            self.top_up(self.queue.room(limit) if self.queue.config.when_full == "block" else limit)

    def gone(self) -> None:
        self.parked.clear()
        self.core.producers_of(self.queue).pop(self, None)
        if self.producer is not None and self.producer.holder is self:
            self.producer.holder = None
        self.core.temporaries.left(self, self.queue)

    # ------------------------------------------------------------------------------------------------ messages

    def delivered(self, delivery: Delivery) -> None:
        if self.parked or not self._take(delivery):
            self.parked.append(delivery)
        self.core.refills[self] = None

    def delivered_all(self, run: Deliveries) -> None:
        """The hot path: what of a run differs in its bare messages alone is taken at once, where it all fits."""
        core, queue = self.core, self.queue
        payloads = run.payloads
        taken = 0
        if not (self.parked or self.producer or self.destination or core.config.telemetry_messages):
            if not payloads[0].startswith(self._plain_starts):
                self._learn(payloads[0])
            at, starts = self._header_bytes, self._plain_starts
            head = entry.plain_head(self._header_durable, core.clock.wall_ms, run.message_format)
            values = []
            for payload in payloads:
                if not payload.startswith(starts):
                    break
                values.append(head + payload[at:])
            stored_bytes = sum([len(value) for value in values])
            size = stored_bytes - len(values) * entry.FIXED_BYTES
            if (
                values
                and queue.fits_all(len(values), size)
                and core.has_room(stored_bytes + len(values) * ENTRY_OVERHEAD)
            ):
                queue.append_all(values, size)
                taken = len(values)
                if not run.settled:
                    core.turn.arrived_all(self, run.first_id, taken)
                core.refills[self] = None
        if taken < len(payloads):
            super().delivered_all(run._replace(first_id=run.first_id + taken, payloads=payloads[taken:]))

    def _learn(self, payload: bytes) -> None:
        """Remembers the header before a bare message, if it has nothing that an entry would keep."""
        self._plain_starts = ()
        try:
            sections = split(payload, self.core.config.limits.annotation_bytes_max)
        except RemoteProtocolError:
            return
        header = sections.header
        if sections.annotations[1] or sections.delivery_annotations is not None:
            return
        if header is not None and (header.ttl is not None or header.priority != entry.PRIORITY_DEFAULT):
            return
        self._header_bytes = sections.bare
        self._header_durable = header is not None and header.durable
        self._plain_starts = tuple([payload[: sections.bare] + code for code in BARE_STARTS])

    def _answer(self, delivery: Delivery, outcome: object) -> bool:
        if not delivery.settled:
            self.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)
            self.peer.touch()
        return True

    def _take(self, delivery: Delivery) -> bool:
        """True where the delivery is decided (taken into the turn, or answered); False where it must wait."""
        core = self.core
        payload = delivery.payload
        try:
            told_max = core.config.limits.annotation_bytes_max
            sections = split(payload, told_max)
            notes = annotate.strip(payload, sections, told_max) if sections.annotations[1] else annotate.NO_ANNOTATIONS
            if sections.delivery_annotations is not None and notes.number is None:
                number: Any = sections.delivery_annotations.get(annotate.NUMBER)
            else:
                number = notes.number
        except RemoteProtocolError as error:
            return self._answer(delivery, rejection(error.condition, error.description))
        producer = self.producer
        if producer is not None:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**63:
                text = f"{annotate.NUMBER}: found {number!r}, accepted from a named producer is 1 to 2^63 - 1"
                return self._answer(delivery, rejection(conditions.INVALID_FIELD, text))
            if number in producer.stored:
                if not delivery.settled:
                    core.turn.arrived(self, delivery.delivery_id)
                core.duplicates_suppressed += 1
                return True
        size = len(payload) - sections.bare + len(notes.items)
        queue = self.queue
        if not queue.fits(size):
            if queue.config.when_full == "block" and self.may_wait:
                return False
            text = f"queue {queue.name!r} is full: {queue.messages} messages, {queue.bytes_held} bytes"
            return self._answer(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text))
        if not core.has_room(len(payload) + ENTRY_OVERHEAD):
            if not core.room_is_known:
                core.wait_for_room(self)
                return False
            return self._answer(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, "the node's disk is full"))
        if producer is not None and not producer.admits(number, core.config.limits.ranges_max):
            text = f"producer {producer.name!r}: more than {core.config.limits.ranges_max} gaps in its numbers"
            return self._answer(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text))
        header = sections.header
        bare = memoryview(payload)[sections.bare :]
        clock = core.clock
        if (
            self.destination is None
            and not notes.item_count
            and (header is None or (header.ttl is None and header.priority == 4))
        ):
            value = entry.pack_plain(
                header is not None and header.durable, clock.wall_ms, delivery.message_format or 0, bare
            )
        else:
            identity = None if self.destination is None else next_identity(core, self.destination)
            value = entry.pack(
                flags=entry.DURABLE if header is not None and header.durable else 0,
                enqueued_ms=clock.wall_ms,
                bare=bare,
                priority=header.priority if header is not None else entry.PRIORITY_DEFAULT,
                expires_ms=clock.steady_ms + header.ttl if header is not None and header.ttl is not None else 0,
                message_format=delivery.message_format or 0,
                annotation_count=notes.item_count,
                annotations=notes.items,
                identity=identity,
                to=self.to,
            )
        sequence = queue.append(value, size)
        if producer is not None:
            core.turn.keep_producer(producer)
            producer.stored.add(number)
        if not delivery.settled:
            core.turn.arrived(self, delivery.delivery_id)
        if core.config.telemetry_messages:
            core.record_message("stored", queue, sequence, value)
        return True
