"""Clients' producers: into a queue here, or into the transmission queue for another node (CUSTODY, "Producers").

Rules of this file: at a full queue `block` parks deliveries that were already sent and gives no credit, `refuse`
rejects.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.connection import Deliveries, Delivery, Receiver
from holdfast.amqp.effort import HEAD_BYTES_FREE, TAKEN
from holdfast.amqp.message.expiry import expiry_of_whole
from holdfast.amqp.message.message import Sections, split
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import NUMBER
from holdfast.amqp.wire.performatives import Error, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.bands import PRIORITY_MOST
from holdfast.broker.dropping import make_room
from holdfast.broker.entries import annotate, delays, entry
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.broker.stored.producers import Producer
from holdfast.broker.topic import Topic
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.addresses.dynamic_nodes import DynamicNodes
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.admission import Admission, Offered, full_text
from holdfast.endpoints.numbered_runs import NumberedRuns
from holdfast.endpoints.overtaking import OVERTAKEN_MAX, OvertakingIntake, band_of
from holdfast.endpoints.plain_runs import PlainRuns
from holdfast.endpoints.publishers import Publishers
from holdfast.endpoints.spreading import BRANCH_EFFORT, LEARNS, NOWHERE, Branch, Spreading
from holdfast.endpoints.transactions.transactional_work import TransactionalWork
from holdfast.endpoints.transactions.work import Prepared
from holdfast.engine.outbox import Outbox
from holdfast.errors import RemoteProtocolError
from holdfast.links.disk import Disk
from holdfast.links.incoming import IncomingParts
from holdfast.links.ingress import rejection
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer
from holdfast.schema import is_whole_within
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns

TRANSACTION_CREDIT: Final = 64
"""Credit at a full queue for a connection with an open transaction: its messages may fit if the transaction also takes
some."""

ENTRY_OVERHEAD: Final = 512
"""Bytes that an entry may have beyond its payload: its fixed part, identity, address."""


class NoRoom(RemoteProtocolError):
    """There is no room for the message now."""


WAITS: Final = "waits"
"""The result for a message that waits for room."""


@dataclass(frozen=True, slots=True)
class ProducerParts(IncomingParts):
    """What clients' producers use besides `IncomingParts`."""

    config: NodeConfig
    turns: Turns
    room: Room
    disk: Disk
    outbox: Outbox
    duplicates: Duplicates
    identities: Identities
    dead_lettering: DeadLettering
    dynamic_nodes: DynamicNodes
    resolver: Resolver
    transactional_work: TransactionalWork
    catalog: Catalog
    publishers: Publishers
    admission: Admission
    spreading: Spreading


class ProducerLink(OvertakingIntake):
    """A client's link into `queue`. `destination`: the other node, if `queue` is its transmission queue. `unknown`: the
    other node, if it is unknown and `queue` is the dead letters.
    """

    parts: ProducerParts

    remembers_tags = False

    def __init__(
        self,
        parts: ProducerParts,
        peer: Peer,
        link: Receiver,
        queue: Queue,
        *,
        destination: str | None = None,
        to: str = "",
        unknown: str | None = None,
        producer: Producer | None = None,
        subject: str = "",
    ) -> None:
        """`subject`: for messages to a topic without one of their own."""
        super().__init__(parts, peer, link)
        self.queue = queue
        self._subject = annotate.subject_items(subject)
        self.destination = destination
        self.to = to
        self.unknown = unknown
        self.producer = producer
        self._offered = Offered()
        self._plain = PlainRuns(parts.limits.annotation_bytes_max)
        self._numbered = None if producer is None else NumberedRuns(producer)
        parts.links.producers_of(queue)[self] = None

    @property
    def _tells_publisher(self) -> bool:
        """Whether a subscription of its topic needs the publisher of each message."""
        return isinstance(self.queue, Topic) and self.queue.asks_publishers

    def stays(self, lost: Container[Queue]) -> bool:
        queue = self.queue
        if queue.config.durable or queue in lost:
            return False
        return not (isinstance(queue, Topic) and any(listener in lost for listener in queue.listeners))

    @property
    def _is_spread(self) -> bool:
        """Whether its messages may go to other nodes, so that each is examined singly."""
        return isinstance(self.queue, Topic) and self.parts.spreading.is_spread(self.queue)

    # ------------------------------------------------------------------------------------------------ credit

    def refill(self) -> None:
        if self.ends:
            self.stop()
            return
        self.take_parked()
        if not self.parked:
            limit = self.parts.limits.credit
            if not self._has_disk():
                self.stop()
                return
            queue, priority = self.queue, self._offered.priority
            room = queue.room(limit, priority) if queue.config.when_full == "block" else limit
            if not room and self.queue.memory is not None:
                self.parts.memory.wait(self)
            if not room and self.parts.transactional_work.has_open(self.peer):  # it may take what the message replaces
                room = min(limit, TRANSACTION_CREDIT)
            self.top_up(room)
            if queue.bands is not None:
                self._withdraw(room, limit)
            return
        if self.parts.disk.takes_nothing:
            self.stop()
        elif self.queue.bands is not None:
            self._let_pass()
        if self.queue.memory is not None:
            self.parts.memory.wait(self)

    def _withdraw(self, room: int, limit: int) -> None:
        """Withdraws credit beyond the room in its band, so that few messages are in flight when that is full; refilled
        when the whole queue is open to it."""
        if self.link.attached and self.link.credit > room + room // 8:
            self.link.grant(room)
            self.peer.touch()
        if room < limit:
            self.parts.admission.wait(self.queue, self._offered.priority)

    def _let_pass(self) -> None:
        """While some of its messages wait, the link has credit for more urgent ones, as far as these have room; none if
        it has recently sent none."""
        credit = 0
        if self.may_pass and band_of(self._offered.priority) > self.lanes.highest:
            credit = self.queue.room(max(0, OVERTAKEN_MAX - len(self.parked)), self._offered.priority)
        given = self.link.credit
        if self.link.attached and (given > credit or given <= credit // 2) and given != credit:
            self.link.grant(credit)
            self.peer.touch()

    @property
    def _waits_for_disk(self) -> bool:
        """Whether this link treats a full disk as a full queue that blocks (docs/adr/0026)."""
        return self.may_wait and self.queue.config.when_full == "block"

    def _has_disk(self) -> bool:
        """Whether the disk allows credit; called again when the disk's state changes."""
        disk = self.parts.disk
        if disk.gives_credit(self.queue) or not (disk.takes_nothing or self._waits_for_disk):
            return True
        self.wait_for_room()
        return False

    def overflow(self, delivery: Delivery) -> None:
        """If the disk is full a client gets `rejected`, because some clients take `released` for success
        (docs/adr/0026)."""
        if delivery.settled or not self.queue.config.durable or self._fits_disk(delivery.payload):
            super().overflow(delivery)
        else:
            self._answer(delivery, self.parts.disk.refusal)

    def _fits_disk(self, payload: bytes | memoryview) -> bool:
        return self.parts.room.has(len(payload) + ENTRY_OVERHEAD)

    def detach_with(self, reason: str, condition: str) -> None:
        """Detaches it with the error: a newer link took its place (CUSTODY, "Producers"), or its queue was deleted."""
        self.link.detach(closed=True, error=Error(Symbol(condition), reason))
        self.peer.touch()
        self.link.context = None
        self.gone()

    def gone(self) -> None:
        super().gone()
        self.parts.links.producers_of(self.queue).pop(self, None)
        self.parts.memory.waiting.pop(self, None)
        if self.producer is not None and self.producer.holder is self:
            self.producer.holder = None
        self.parts.dynamic_nodes.left(self, self.queue)

    # ------------------------------------------------------------------------------------------------ messages

    def delivered_all(self, run: Deliveries) -> None:
        """The hot path: messages of a run that differ only in their bare messages are stored as one, if all of them
        fit."""
        parts, queue = self.parts, self.queue
        payloads = run.payloads
        taken = 0
        if not (
            self.parked
            or self.destination
            or self.unknown
            or (self.producer and queue.bands)  # what fits depends on the priorities of those before it
            or self._subject
            or self._tells_publisher
            or self._is_spread
            or parts.config.telemetry_messages
        ):
            numbered = self._numbered
            plain = payloads if numbered is None else numbered.unnumbered(payloads)
            values = self._plain.values(plain, parts.clock.wall_ms, run.message_format)
            stored_bytes = sum([len(value) for value in values])
            size = stored_bytes - len(values) * entry.FIXED_BYTES
            lowest = PRIORITY_MOST if queue.bands is None else self._came(values)
            if (
                values
                and queue.fits_all(len(values), size, lowest)
                and parts.room.has(stored_bytes + len(values) * ENTRY_OVERHEAD)
            ):
                taken = len(values)
                if isinstance(queue, Topic):
                    taken, asked = queue.append_some(values, TAKEN)
                    self.peer.amqp.took(asked)
                else:
                    queue.append_all(values, size)
                if numbered is not None:
                    numbered.stored(parts.turns.gathered, taken)
                if not run.settled:
                    parts.turns.gathered.arrived_all(self, run.first_id, taken)
                parts.links.refills[self] = None
        if taken < len(payloads):
            super().delivered_all(run._replace(first_id=run.first_id + taken, payloads=payloads[taken:]))

    def _came(self, values: list[bytes]) -> int:
        """Records the priorities of entries that arrive at a queue with bands; returns the lowest."""
        priorities = [value[2] for value in values]
        highest = max(priorities, default=0)
        if priorities:
            self._offered.came(highest, len(priorities))
            assert self.queue.bands is not None
            for priority in {highest, entry.PRIORITY_DEFAULT} & {*priorities}:
                self.queue.bands.came(priority, self.parts.clock.now)
        return min(priorities, default=0)

    def _read(self, payload: bytes, *, later: bool = False) -> tuple[Sections, annotate.Annotations, Any]:
        """The message's sections, the annotations that are kept, and its producer's number as it was sent;
        RemoteProtocolError if they cannot be read. `later`: it is published later, to the subscriptions of that
        time."""
        told_max = self.parts.limits.annotation_bytes_max
        sections = split(payload, told_max)
        notes = annotate.strip(payload, sections, told_max) if sections.annotations[1] else annotate.NO_ANNOTATIONS
        if delays.may_be_asked(notes.items):
            self._check_delay(notes)
            later = True
        if self._tells_publisher or (later and isinstance(self.queue, Topic)):
            told = self.parts.publishers.items(self.peer)
            notes = notes._replace(item_count=notes.item_count + 2, items=bytes(notes.items) + told)
        if self._subject:
            notes = notes._replace(item_count=notes.item_count + 2, items=notes.items + self._subject)
        if sections.bare > HEAD_BYTES_FREE:
            self.peer.amqp.took(sections.bare)
        number: Any = notes.number
        if sections.delivery_annotations is not None and number is None:
            number = sections.delivery_annotations.get(NUMBER)
        if self.producer is not None and not is_whole_within(number, 1, 2**63):
            text = f"invalid value {number!r} for {NUMBER} of a named producer; expected 1 to 2^63 - 1"
            raise RemoteProtocolError(conditions.INVALID_FIELD, text)
        return sections, notes, number

    def _check_delay(self, notes: annotate.Annotations) -> None:
        """RemoteProtocolError if the message requests delayed delivery that is not possible."""
        clock, queue = self.parts.clock, self.queue
        wrong = delays.fault(notes.item_count, notes.items)
        if wrong is not None:
            raise RemoteProtocolError(conditions.INVALID_FIELD, wrong)
        if self.destination is not None or self.unknown is not None:
            return  # its destination holds it
        if delays.due_in(notes.item_count, notes.items, clock.steady_ms, clock.wall_ms) is None:
            return
        if not queue.config.durable:
            text = f"queue {queue.name!r} is in memory, where nothing is delayed"
            raise RemoteProtocolError(conditions.NOT_IMPLEMENTED, text)
        full = self.parts.catalog.delayed_full(queue.host)
        if full:
            raise NoRoom(conditions.RESOURCE_LIMIT_EXCEEDED, full)

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        parts = self.parts
        payload = delivery.payload
        try:
            sections, notes, number = self._read(payload)
        except RemoteProtocolError as error:
            later = isinstance(error, NoRoom)
            return self._answer(delivery, rejection(error.condition, error.description, later=later))
        producer = self.producer
        if producer is not None and number in producer.stored:
            if not delivery.settled:
                parts.turns.gathered.arrived(self, delivery.delivery_id)
            parts.duplicates.suppressed += 1
            return True
        size = _size_of(payload, sections, notes, large=large)
        queue = self.queue
        when_full = queue.config.when_full
        priority = entry.PRIORITY_DEFAULT if sections.header is None else sections.header.priority
        if queue.bands is not None:
            self._offered.came(priority)
        fits = queue.fits(size, priority) or (when_full == "drop-oldest" and make_room(queue, size))
        if not fits and when_full != "dead-letter":
            if when_full != "refuse" and self.may_wait:  # what is not on disk yet cannot be dropped before it is
                parts.admission.wait(queue, priority)
                return False
            parts.admission.refuse(queue, self.peer, priority, size)
            text = full_text(queue, size, priority)
            return self._answer(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text, later=True))
        if queue.config.durable and not self._fits_disk(payload):
            if self._waits_for_disk or not parts.room.is_known:
                self.wait_for_room()
                return False
            return self._answer(delivery, self.parts.disk.refusal)
        ranges_max = parts.limits.ranges_max if parts.memory.ranges.room else 1
        if producer is not None and not producer.admits(number, ranges_max):
            text = f"producer {producer.name!r} has too many gaps in its numbers; the limit is {ranges_max}"
            text += " (ranges_max, or 1 while memory is short)"
            return self._answer(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text, later=True))
        branches: tuple[Branch, ...] = NOWHERE
        is_spread = self._is_spread
        if is_spread:
            value = self._pack(delivery, sections, notes, None, large=large)
            branches = parts.spreading.branches(queue, value)
            refused = self._no_room_elsewhere(branches, value, size, priority)
            if refused is not None:
                return refused is not WAITS and self._answer(delivery, refused)
            self.peer.amqp.took(BRANCH_EFFORT * len(branches))
        else:
            identity = None if self.destination is None else parts.identities.next(self.destination)
            value = self._pack(delivery, sections, notes, identity, large=large)
        if isinstance(queue, Topic):
            self.peer.amqp.took(queue.asked)
        if branches:
            parts.spreading.spread(queue, branches, value)
        if fits and is_spread and isinstance(queue, Topic):  # listeners get it once it is stored
            sequence = queue.append_now(value, size)
        elif fits:
            sequence = self.keep(value, size)
        else:
            sequence = parts.dead_lettering.dead_letter(queue.host, value, f"queue {queue.name!r} is full", queue.name)
        if producer is not None:
            parts.turns.gathered.keep_producer(producer)
            producer.stored.add(number)
        if not delivery.settled:
            parts.turns.gathered.arrived(self, delivery.delivery_id)
        if parts.config.telemetry_messages:
            record_message(parts.outbox, "stored", queue, sequence, value)
        return True

    def _no_room_elsewhere(self, branches: tuple[Branch, ...], value: bytes, size: int, priority: int) -> object:
        """The outcome of a message if a copy for another node finds no room; WAITS if it waits for room; else None."""
        parts = self.parts
        if parts.spreading.learns(self.queue):
            if self.may_wait:
                self.wait_for_room()
                return WAITS
            return rejection(conditions.RESOURCE_LIMIT_EXCEEDED, LEARNS, later=True)
        sizes = parts.spreading.sizes(branches, value)
        if (full := parts.spreading.full(sizes, priority=priority)) is not None:
            if full.queue.config.when_full != "refuse" and self.may_wait:
                parts.admission.wait(full.queue, priority, self.queue)
                self.wait_for_room()
                return WAITS
            parts.admission.refuse(full.queue, self.peer, priority, size)
            text = full_text(full.queue, sizes[full], priority)
            return rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text, later=True)
        if branches and not parts.room.has((len(value) + ENTRY_OVERHEAD) * (1 + len(branches))):
            if self._waits_for_disk or not parts.room.is_known:
                self.wait_for_room()
                return WAITS
            return self.parts.disk.refusal
        return None

    def _pack(
        self,
        delivery: Delivery,
        sections: Sections,
        notes: annotate.Annotations,
        identity: entry.Identity | None,
        *,
        large: Stream | None,
    ) -> bytes:
        """The entry of a message."""
        header, clock = sections.header, self.parts.clock
        ttl = header.ttl if header is not None else None
        bare = memoryview(delivery.payload)[sections.bare :]
        expires_at_ms = expiry_of_whole(delivery.payload, sections.bare) if large is None else large.expires_at_ms
        if (
            self.destination is None
            and not notes.item_count
            and large is None
            and not expires_at_ms
            and (header is None or (ttl is None and header.priority == 4))
        ):
            return entry.pack_plain(
                header is not None and header.durable, clock.wall_ms, delivery.message_format or 0, bare
            )
        flags = entry.DURABLE if header is not None and header.durable else 0
        return entry.pack(
            flags=flags | entry.BLOB if large is not None else flags,
            enqueued_ms=clock.wall_ms,
            bare=bare,
            priority=header.priority if header is not None else entry.PRIORITY_DEFAULT,
            expires_ms=0 if ttl is None else max(1, clock.steady_ms + ttl - self.waited_ms(delivery.delivery_id)),
            message_format=delivery.message_format or 0,
            annotation_count=notes.item_count,
            annotations=notes.items,
            identity=identity,
            to=self.to,
            expires_at_ms=expires_at_ms,
        )

    # ------------------------------------------------------------------------------------------------ transactions

    def prepare(self, delivery: Delivery, *, large: Stream | None) -> Prepared:
        """The part of the message that a transaction keeps until its discharge; RemoteProtocolError for a malformed
        message."""
        sections, notes, number = self._read(delivery.payload, later=True)
        value = self._pack(delivery, sections, notes, None, large=large)
        size = _size_of(delivery.payload, sections, notes, large=large)
        producer = self.producer
        known = 0 if producer is None else int(number)
        return Prepared(value, size, self.queue, self.destination, self.to, self.unknown, producer, known)

    def in_transaction(self, delivery: Delivery, state: TransactionalState) -> bool:
        return self.parts.transactional_work.post(self, delivery, state)

    def large_in_transaction(self, stream: Stream, state: TransactionalState) -> bool:
        return self.parts.transactional_work.begin_large(self.peer, stream, state)

    def take_in_transaction(self, stream: Stream, state: TransactionalState) -> None:
        self.parts.transactional_work.post_large(self, stream, state)

    def keep(self, value: bytes, size: int) -> int:
        """Adds the entry to the turn; returns its sequence."""
        if self.unknown is not None:
            return self.parts.dead_lettering.dead_letter_unroutable(self.queue.host, value, self.to, self.unknown)
        return self.queue.append(value, size)


def _size_of(payload: bytes, sections: Sections, notes: annotate.Annotations, *, large: Stream | None) -> int:
    """The message's size as its queue counts it."""
    size = len(payload) - sections.bare + len(notes.items)
    if large is not None:
        size += entry.blob_of(payload).length - entry.REFERENCE_BYTES
    return size
