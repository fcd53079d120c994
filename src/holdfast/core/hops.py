"""The hop: one AMQP link for each (neighbour, destination), both ends (CUSTODY, "The hop").

Rules of this file: the map number -> entry lives in the sender's memory alone; a receiver keeps (epoch, last stored)
and nothing else, written with the entries; numbers are decided in order, and a failed one fails every later of its
epoch. traffic-control §3.2: the copy stays until the neighbour has stored its own.
"""

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.amqp import conditions
from holdfast.amqp.codec import encode
from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.amqp.message import split
from holdfast.amqp.performatives import Accepted, Error, Released, Source, Target
from holdfast.amqp.types import Symbol, Ulong
from holdfast.broker import entry
from holdfast.broker.address import NAME_BYTES_MAX
from holdfast.broker.queue import Queue
from holdfast.core import annotate
from holdfast.core.egress import too_large
from holdfast.core.endings import dead_letter, stone_of, tombstone
from holdfast.core.ingress import Ingress
from holdfast.core.peer import Peer
from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore
    from holdfast.core.sessions import Neighbour

CUSTODY_ADDRESS: Final = "$holdfast/custody"
EPOCH: Final = Symbol("holdfast:epoch")
CONTINUES: Final = Symbol("holdfast:continues")
DESTINATION: Final = Symbol("holdfast:destination")
LAST_STORED: Final = Symbol("holdfast:last-stored")

NUMBER: Final = Symbol("x-opt-holdfast-number")
ORIGIN: Final = Symbol("x-opt-holdfast-origin")
SEQUENCE: Final = Symbol("x-opt-holdfast-sequence")
TRACE: Final = Symbol("x-opt-holdfast-trace")
TO: Final = Symbol("x-opt-holdfast-to")
RECEIPT: Final = Symbol("x-opt-holdfast-receipt")
TOMBSTONE: Final = Symbol("x-opt-holdfast-tombstone")

RETRY_S: Final = 1.0
"""How long a sender waits before it tries again where the neighbour would not take a number."""

ROOM_BYTES: Final = 256 * 1024
"""Below that a node gives its neighbours no credit."""

_DELIVERY_ANNOTATIONS: Final = Struct(">3sBII")


def _item(key: Symbol) -> bytes:
    return encode(key)


_NUMBER_KEY: Final = _item(NUMBER) + b"\x80"
_ORIGIN_KEY: Final = _item(ORIGIN) + b"\x98"
_SEQUENCE_KEY: Final = _item(SEQUENCE) + b"\x80"
_RECEIPT_KEY: Final = _item(RECEIPT) + b"\x80"
_TO_KEY: Final = _item(TO)
_TRACE_KEY: Final = _item(TRACE)
_TOMBSTONE_KEY: Final = _item(TOMBSTONE) + b"\x41"
_U64: Final = Struct(">Q").pack


class CustodySender:
    """Our end towards `neighbour` for `destination`; a taker on the transmission queue's cursor.

    It outlives its links: what is in doubt stays its own until the next answer says how far the neighbour stored.
    """

    def __init__(self, core: "NodeCore", neighbour: "Neighbour", destination: str, queue: Queue) -> None:
        self.core = core
        self.neighbour = neighbour
        self.destination = destination
        self.queue = queue
        self.excluded: set[int] = set()
        self.peer: Peer | None = None
        self.link: Sender | None = None
        self.epoch: UUID | None = None
        self.open = False
        self.number = 0
        self.in_doubt: dict[int, int] = {}
        """Number -> sequence under `epoch`, in ascending order."""
        self.retry_at: float | None = None
        self.sent = 0
        """The highest number of our own that this life has sent there."""
        queue.shared.attach(self)

    # ------------------------------------------------------------------------------------------------ link

    def attach(self, peer: Peer) -> None:
        """Begins a fresh epoch on that connection, continuing the last one if memory still has it."""
        assert self.link is None
        self.peer = peer
        self.retry_at = None
        epoch = self.core.new_uuid()
        self.continued = self.epoch
        properties = {
            EPOCH: epoch,
            CONTINUES: self.continued,
            DESTINATION: self.destination,
        }
        self.link = self.core.session_of(peer).attach_sender(
            f"custody:{self.destination}:{epoch.hex}",
            Source(address=self.queue.name),
            Target(address=CUSTODY_ADDRESS),
            snd_settle_mode=0,
            properties=properties,
        )
        self.link.context = self
        peer.egress[self] = None
        self.epoch = epoch
        peer.touch()

    def attached(self) -> None:
        """The neighbour answered: what it has stored leaves, the rest goes again under the new epoch."""
        link = self.link
        assert link is not None
        answer = link.remote_attach
        properties = (answer.properties or {}) if answer is not None else {}
        last = properties.get(LAST_STORED)
        known = last if isinstance(last, int) else 0
        stored = [sequence for number, sequence in self.in_doubt.items() if number <= known]
        again = [sequence for number, sequence in self.in_doubt.items() if number > known]
        self.in_doubt.clear()
        cursor = self.queue.shared
        cursor.finish(stored)
        cursor.give_back(again, failed=False)
        self.number = 0
        self.open = True
        self.queue.touch()

    def lost(self) -> None:
        """The link is gone; what is in doubt stays with us until the next answer."""
        self.open = False
        self.link = None
        self.peer = None

    # ------------------------------------------------------------------------------------------------ taker

    def wants(self) -> int:
        link = self.link
        if not self.open or link is None or self.peer is None or not self.peer.writable or not link.sendable:
            return 0
        return min(link.credit, self.core.config.limits.hop_in_doubt_max - len(self.in_doubt))

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        link, peer = self.link, self.peer
        assert link is not None and peer is not None
        self.number += 1
        core = self.core
        item = entry.unpack(value)
        if self.queue.expired(value):  # its end goes in its place, lest all behind it wait
            item = entry.unpack(stone_of(core, item))
            self.queue.expired_total += 1
        assert item.identity is not None
        head, notes = annotate.for_neighbour(item, core.clock.steady_ms)
        parts = (head, self._annotations(item), *notes, item.bare)
        if too_large(link, parts):
            self.number -= 1
            dead_letter(core, value, f"larger than {self.neighbour.name!r} takes", str(self.destination))
            self.queue.shared.shown.pop(sequence)
            core.move_out(self.queue, sequence, value)
            tombstone(core, self.queue, value)
            return
        link.send(parts, context=self.number, message_format=item.message_format)
        self.in_doubt[self.number] = sequence
        if item.identity.origin == core.store_uuid and item.identity.number > self.sent:
            self.sent = item.identity.number
        peer.touch()
        if core.config.telemetry_messages:
            core.record_message("sent", self.queue, sequence, value, destination=self.destination)

    def _annotations(self, item: entry.Entry) -> bytes:
        assert item.identity is not None
        trace = encode([*item.trace, self.core.store_uuid])
        fields = [
            _NUMBER_KEY,
            _U64(self.number),
            _ORIGIN_KEY,
            item.identity.origin.bytes,
            _SEQUENCE_KEY,
            _U64(item.identity.number),
            _TO_KEY,
            encode(item.to),
            _TRACE_KEY,
            trace,
        ]
        receipt = self.core.catalog.receipts.get(self.destination, 0)
        if receipt and item.identity.origin == self.core.store_uuid:
            fields += [_RECEIPT_KEY, _U64(receipt)]
        if item.flags & entry.TOMBSTONE:
            fields.append(_TOMBSTONE_KEY)
        count = 10 + (2 if receipt and item.identity.origin == self.core.store_uuid else 0)
        count += 2 if item.flags & entry.TOMBSTONE else 0
        body = b"".join(fields)
        return _DELIVERY_ANNOTATIONS.pack(b"\x00\x53\x71", 0xD1, len(body) + 4, count) + body

    # ------------------------------------------------------------------------------------------------ events

    def credited(self) -> None:
        self.queue.touch()

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        """Accepted numbers leave; a number that was not taken ends the epoch, and all from it on goes again."""
        if isinstance(state, Accepted):
            stored = [self.in_doubt.pop(number) for number in contexts if number in self.in_doubt]
            self.queue.shared.finish(stored)
            self.queue.touch()
        elif state is not None and self.link is not None and not self.link.detached:
            self.open = False
            self.link.detach(closed=True)
            assert self.peer is not None
            self.peer.touch()
        if not settled and self.link is not None and not self.link.detached:
            self.link.settle(first, last, state)

    def gone(self, unsettled: list[Any]) -> None:
        link_was_open = self.link is not None
        peer = self.peer
        self.lost()
        if link_was_open and peer is not None and self.neighbour.peer is peer and not peer.amqp.closed:
            self.retry_at = self.core.now + RETRY_S

    def tick(self, now: float) -> None:
        if self.retry_at is not None and now >= self.retry_at and self.neighbour.established:
            assert self.neighbour.peer is not None
            self.attach(self.neighbour.peer)


class CustodyReceiver(Ingress):
    """The neighbour's end of its hop to us for `destination`, which is this node."""

    def __init__(
        self, core: "NodeCore", peer: Peer, link: Receiver, *, neighbour: str, destination: str, epoch: UUID
    ) -> None:
        super().__init__(core, peer, link)
        self.neighbour = neighbour
        self.destination = destination
        self.key = f"{neighbour}\0{destination}".encode()
        self.epoch = epoch
        self.taken = 0
        self.failed = False
        self.fenced = False
        self.parked: deque[Delivery] = deque()

    def answer(self, continues: object) -> None:
        """Runs once all that the older link had brought is on disk or thrown away (CUSTODY, hop 2)."""
        if self.fenced or self.link.detached:
            return
        stored = self.core.hop_stored.get(self.key)
        properties: dict[Any, Any] = {EPOCH: self.epoch}
        if isinstance(continues, UUID) and stored is not None and stored[0] == continues.bytes:
            properties[LAST_STORED] = Ulong(stored[1])
        self.core.hop_stored[self.key] = (self.epoch.bytes, 0)
        self.link.accept(properties=properties)
        self.refill()
        self.peer.touch()

    def refill(self) -> None:
        while self.parked and not self.failed and self._take(self.parked[0]):
            if self.parked:  # a number that fails takes all that are parked with it
                self.parked.popleft()
        if self.parked or self.failed or not self.link.attached:
            return
        if self.core.has_room(ROOM_BYTES, forwarding=True):
            self.top_up(self.core.config.limits.credit)
        else:  # full: credit is withheld, nothing is sent back and forth
            self.core.wait_for_room(self)

    def gone(self) -> None:
        self.fenced = True
        self.parked.clear()
        if self.core.custody_receivers.get(self.key) is self:
            del self.core.custody_receivers[self.key]

    def refused(self, deliveries: list[int]) -> None:
        self.fail()
        self.settle(deliveries, Released())

    def fail(self) -> None:
        """A number cannot be stored: it and every later one of this epoch go back; the sender begins a new one."""
        self.failed = True
        self.settle([delivery.delivery_id for delivery in self.parked], Released())
        self.parked.clear()

    def delivered(self, delivery: Delivery) -> None:
        if self.fenced:
            return
        if self.failed:
            self.settle([delivery.delivery_id], Released())
            return
        if self.parked or not self._take(delivery):
            self.parked.append(delivery)
        self.core.refills[self] = None

    def _take(self, delivery: Delivery) -> bool:
        """True where the number is decided; False where it must wait for room in its queue."""
        try:
            number, arrival = self._read(delivery.payload)
        except RemoteProtocolError as error:
            self.failed = True
            self.link.detach(closed=True, error=Error(Symbol(error.condition), error.description))
            self.peer.touch()
            self.core.log("WARNING", f"neighbour {self.neighbour}: {error.description}")
            return True
        if number <= self.taken:
            self.core.turn.arrived(self, delivery.delivery_id)
            return True
        taken = self.core.destination.take(arrival, message_format=delivery.message_format or 0)
        if taken is None:
            if not self.core.room_is_known:
                self.core.wait_for_room(self)
            return False
        if not taken:
            self.fail()
            self.settle([delivery.delivery_id], Released())
            return True
        self.taken = number
        self.core.put_hop(self)
        self.core.turn.arrived(self, delivery.delivery_id)
        return True

    def _read(self, payload: bytes) -> tuple[int, "Arrival"]:
        sections = split(payload)
        told = sections.delivery_annotations or {}
        number, origin, sequence = told.get(NUMBER), told.get(ORIGIN), told.get(SEQUENCE)
        to, trace, receipt = told.get(TO), told.get(TRACE), told.get(RECEIPT, 0)
        if (
            not isinstance(number, int)
            or not isinstance(origin, UUID)
            or not isinstance(sequence, int)
            or not 0 < sequence < 2**63
            or not isinstance(to, str)
            or len(to.encode("utf-8", "replace")) > NAME_BYTES_MAX
            or not isinstance(receipt, int)
            or not isinstance(trace, list)
            or len(trace) > entry.TRACE_MAX
            or not all(isinstance(store, UUID) for store in trace)
        ):
            raise RemoteProtocolError(
                conditions.INVALID_FIELD, "a transfer in custody without its number, identity or trace"
            )
        if number > self.taken + 1:
            text = f"hop number {number}, accepted is at most {self.taken + 1}"
            raise RemoteProtocolError(conditions.ILLEGAL_STATE, text)
        notes = annotate.strip(payload, sections) if sections.annotations[1] else annotate.NO_ANNOTATIONS
        header = sections.header
        return number, Arrival(
            identity=entry.Identity(origin, sequence),
            to=str(to),
            trace=tuple(trace),
            receipt=receipt,
            tombstone=bool(told.get(TOMBSTONE)),
            durable=header is not None and bool(header.durable),
            priority=header.priority if header is not None else entry.PRIORITY_DEFAULT,
            ttl_ms=header.ttl if header is not None else None,
            notes=notes,
            bare=memoryview(payload)[sections.bare :],
        )


class Arrival:
    """A message in custody as it came over a hop."""

    __slots__ = ("bare", "durable", "identity", "notes", "priority", "receipt", "to", "tombstone", "trace", "ttl_ms")

    def __init__(
        self,
        *,
        identity: entry.Identity,
        to: str,
        trace: tuple[UUID, ...],
        receipt: int,
        tombstone: bool,
        durable: bool,
        priority: int,
        ttl_ms: int | None,
        notes: annotate.Annotations,
        bare: memoryview,
    ) -> None:
        self.identity = identity
        self.to = to
        self.trace = trace
        self.receipt = receipt
        self.tombstone = tombstone
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms
        self.notes = notes
        self.bare = bare
