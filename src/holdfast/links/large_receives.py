"""Large messages that are arriving: written to disk piece by piece; the entry follows with the last piece (ADR 0014).

Rules of this file: memory holds less than a piece of a delivery, and the pieces that wait for the next commit;
`sections` has the known part of the message's head. A client's delivery that cannot be stored is read to its end,
dropped and then settled; a neighbour's is given back as soon as this is known (custody/hop/receiver.py, ADR 0052).
"""

from collections import deque
from typing import Final, Protocol

from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver
from holdfast.amqp.message.expiry import expiry_of
from holdfast.amqp.message.framing import Framing
from holdfast.amqp.message.message import split
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import TransactionalState
from holdfast.broker.entries import entry
from holdfast.broker.entries.blob import PIECE_OVERHEAD, Blob
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.engine.incidents import Incidents
from holdfast.engine.port import PIECE_BYTES
from holdfast.errors import RemoteProtocolError
from holdfast.links.pressure import Pressure
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.state.blobs import Blobs
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns, Undone
from holdfast.units import KIB, MIB

COMMIT_BYTES: Final = 4 * MIB
"""The size of a batch above which pieces of large messages wait for the next batch."""

LEFT_BYTES: Final = 4 * MIB
LEFT_SHARE: Final = 4
"""The part of the store's room that large messages leave to other messages; a quarter of a small store."""

BESIDE_SHARE: Final = 32
"""One part in this many of the room for a large message is overhead: rows, and pages that are not free yet."""

RESERVED_SHARE: Final = 4
"""One part in this many of the permitted large messages is reserved for connections that have none."""

HEAD_BYTES_MAX: Final = 256 * KIB
"""Header and annotations of a large message together, at least: as much as a client's message may have of them, of
each annotation_bytes_max, and in its properties."""

HEAD_SECTIONS: Final = 4


class Bringer(Protocol):
    """The link on which a large message arrives."""

    peer: Peer
    link: Receiver
    keeps_faulty: bool
    head_bytes_max: int
    """Header and annotations of a large message together: all that one may have that comes whole."""
    growing: "Stream | None"
    parked: "deque[Delivery | Stream]"

    def refusal(self, condition: str, description: str, *, later: bool) -> object:
        """The outcome of a message that cannot be stored; `later`: the same message may be accepted later."""

    def begins(self, stream: "Stream", head: bytes) -> None:
        """The message begins with these bytes; RemoteProtocolError if more bytes are needed."""

    def stream_waits(self) -> None:
        """It must be continued after the gathered or running commit."""


class Stream:
    """One delivery. `outcome`: why it is dropped; None while it is not."""

    __slots__ = (
        "_framing", "_split_at", "address", "ahead", "blob", "bringer", "bytes_max", "counted", "expires_at_ms",
        "fault", "first", "outcome", "receives", "sections", "settled", "size", "state", "whole",
    )  # fmt: skip

    def __init__(self, receives: "LargeReceives", bringer: Bringer, part: DeliveryPart, blob: Blob) -> None:
        self.receives = receives
        self.bringer = bringer
        self.first = part._replace(payload=b"")
        self.blob = blob
        self.bytes_max = receives.bytes_most()
        """A larger message is refused, however much room there is."""
        self.settled = False
        self.size = 0
        """The bytes of it that have arrived, with all its sections."""
        self.whole = False
        self.state: TransactionalState | None = None
        """The state of the transaction that contains it."""
        self.address: str | None = None
        """Its own address, on a link without an address. Kept here, because settled deliveries may share an id."""
        self.expires_at_ms = 0
        """The wall time at which it expires by its own properties; 0 is never."""
        self.outcome: object | None = None
        self.sections: bytes | None = None
        """Header and annotations as they came; None while it is not known where they end."""
        self._split_at = 1
        """The number of bytes at which the next attempt to split is made; it doubles each time, however small the parts
        are."""
        self.fault: str | None = None
        """The fault of a malformed message that is stored nevertheless."""
        self._framing: Framing | None = Framing()
        """None once a fault was found."""
        self.ahead = bytearray()
        """Bytes that have arrived and are in no batch yet."""
        self.counted = 0
        """Bytes of it that wait for a commit, as the connection counts them."""

    def add(self, part: DeliveryPart) -> None:
        """Adds the next part."""
        self.size += len(part.payload)
        if part.last:
            self.settled = part.settled
            self.whole = True
        if self.outcome is None and self._framing is not None:
            self._follow(self._framing, part.payload)
        if self.outcome is None and self.blob.length + len(self.ahead) + len(part.payload) > self.bytes_max:
            text = f"the message is larger than this node's store can hold; the limit is about {self.bytes_max} bytes"
            self.fail(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        if self.outcome is None:
            self.ahead += part.payload
            if self.sections is None and (self.whole or len(self.ahead) >= self._split_at):
                self._split()
        self.advance()

    def _follow(self, framing: Framing, data: bytes) -> None:
        try:
            framing.feed(data)
            if self.whole:
                framing.end()
        except RemoteProtocolError as error:
            self._framing = None
            if self.bringer.keeps_faulty:
                self.fault = error.description
            else:
                self.fail(error.condition, error.description)

    def _split(self) -> None:
        """Splits off the head of the message, if all of it has arrived."""
        head_bytes_max = self.bringer.head_bytes_max
        head = bytes(self.ahead[: head_bytes_max + 1])
        cut_off = len(head) <= head_bytes_max and not self.whole
        self._split_at = 2 * len(head)
        try:
            bare = split(head).bare
            if bare < len(head):
                if not self._find_expiry(head, bare) and cut_off:
                    return
                self.bringer.begins(self, head)
        except RemoteProtocolError as error:
            if not cut_off:
                self.fail(error.condition, error.description)
            return
        if self.outcome is not None:
            return
        if bare < len(head):
            self.sections = head[:bare]
            del self.ahead[:bare]
        elif not cut_off:
            text = f"invalid message; expected at most {head_bytes_max} bytes of header and annotations, and a body"
            self.fail(conditions.RESOURCE_LIMIT_EXCEEDED, text)

    def _find_expiry(self, head: bytes, bare: int) -> bool:
        """Notes when it expires; False if its properties continue after `head`. If they exceed the bound, it never
        expires."""
        try:
            self.expires_at_ms = expiry_of(head, bare)
        except IndexError:
            return False
        return True

    def advance(self) -> None:
        """Adds pieces to the turn's batch, as far as there is room; the rest waits for the next turn."""
        if self.sections is None:
            return
        if self.outcome is None and self.ahead:
            at = self._advanced()
            del self.ahead[:at]
        waiting = len(self.ahead) if self.whole else len(self.ahead) // PIECE_BYTES * PIECE_BYTES
        self._count(waiting)
        if waiting:
            self.bringer.stream_waits()

    def _advanced(self) -> int:
        receives, blob, ahead = self.receives, self.blob, self.ahead
        batch, room = receives.work.batch, receives.room
        spare = receives.spare_bytes()
        at = 0
        while size := min(PIECE_BYTES, len(ahead) - at):
            if size < PIECE_BYTES and not self.whole:
                break
            if batch.bytes_appended >= COMMIT_BYTES:
                break
            added = size + PIECE_OVERHEAD
            if not room.has(added) or spare < added:
                if room.is_known:
                    text = "the node's disk has no room for the message"
                    self.fail(conditions.RESOURCE_LIMIT_EXCEEDED, text, later=True)
                break
            receives.turns.gathered.streams[self] = None
            batch.pieces.append((blob.number, blob.end, bytes(memoryview(ahead)[at : at + size])))
            batch.bytes_appended += added
            spare -= added
            blob.end += 1
            blob.length += size
            at += size
        return at

    @property
    def has_place(self) -> bool:
        """Whether it has one of the `streams_max` places. A transaction's message that is whole has none: it waits for
        the disk alone, never for room in a queue, and the next one of its transaction must not be refused meanwhile.
        `Pressure` bounds the bytes of such messages. Small ones that were written early keep their places, because a
        bound in bytes does not bound their number."""
        return not self.whole or self.state is None or self.size <= self.receives.stream_bytes

    @property
    def ready(self) -> bool:
        """Whether all of it is on disk or in the turn's batch, and its entry may follow."""
        return self.whole and not self.ahead and self.outcome is None

    def delivery(self) -> Delivery:
        """The delivery with a reference in place of its bare message."""
        assert self.sections is not None
        payload = self.sections + entry.reference(self.blob.number, self.blob.length)
        link, number = self.first.link, self.first.delivery_id
        return Delivery(link, number, b"", self.first.message_format, self.settled, payload, None, None)

    def fail(self, condition: str, description: str, *, later: bool = False) -> None:
        """The message cannot be accepted; the link settles it, at its end at the latest."""
        if self.outcome is None:
            self.outcome = self.bringer.refusal(condition, description, later=later)
            self.close()

    def refuse(self, why: str) -> None:
        """A batch with some of its pieces found no space."""
        self.fail(conditions.RESOURCE_LIMIT_EXCEEDED, why, later=True)

    def close(self) -> None:
        """The message has its entry, or was given up."""
        self.receives.streams.pop(self, None)
        self.receives.blobs.close(self.blob)
        self.ahead.clear()
        self._count(0)

    def _count(self, size: int) -> None:
        self.bringer.peer.ahead_bytes += size - self.counted
        self.receives.pressure.ahead_bytes += size - self.counted
        self.counted = size


class LargeReceives:
    """Begins the large messages of all links, and limits their size. `streams`: those that are arriving."""

    def __init__(
        self,
        limits: Limits,
        store: Tables,
        room: Room,
        turns: Turns,
        work: Work[Queue],
        blobs: Blobs,
        pressure: Pressure,
        incidents: Incidents,
        streams: dict[Stream, None],
    ) -> None:
        self._limits = limits
        self.stream_bytes = limits.stream_bytes
        self._store = store
        self.room = room
        self.turns = turns
        self.work = work
        self.blobs = blobs
        self.pressure = pressure
        self._incidents = incidents
        self.streams = streams

    def undo(self, undone: Undone) -> None:
        """Reverts pieces of large messages: after a failure those of other peers stay; on a full disk none do."""
        gathered = self.turns.gathered
        for turn in undone.turns:
            if undone.refusal:
                for stream in turn.streams:
                    stream.refuse(undone.refusal)
                continue
            kept = {stream.blob.number for stream in turn.streams if stream.bringer.peer not in undone.ended}
            for piece in turn.batch.pieces:
                if piece[0] in kept:
                    gathered.batch.pieces.append(piece)
                    gathered.batch.bytes_appended += len(piece[2]) + PIECE_OVERHEAD
            gathered.streams = {stream: None for stream in turn.streams if stream.blob.number in kept}

    def bytes_most(self) -> int:
        """The largest message, with all its sections, that the empty store could hold."""
        store = self._store
        room_bytes = (store.room_bytes_most() - self._left_bytes() - PIECE_BYTES) * store.pieces_a_byte
        return max(self._limits.stream_bytes, room_bytes - room_bytes // BESIDE_SHARE)

    def has_room(self, size: int) -> bool:
        """Whether a large message of so many bytes certainly fits now."""
        needed = (size + size // (BESIDE_SHARE - 1)) // self._store.pieces_a_byte + PIECE_BYTES
        return self.spare_bytes() >= needed

    def spare_bytes(self) -> int:
        """How many bytes of the room are for new large messages."""
        return self._store.room_bytes_possible() - self._left_bytes() - self.room.appended_bytes

    def _left_bytes(self) -> int:
        return min(LEFT_BYTES, self._store.room_bytes_most() // LEFT_SHARE)

    @property
    def under_way(self) -> int:
        """How many messages have one of the `streams_max` places."""
        return sum(stream.has_place for stream in self.streams)

    def may_begin(self, peer: Peer) -> bool:
        """Whether one more large message from that connection may begin. The last share of the maximum is for
        connections without one, so that messages that wait at one full queue do not block other connections."""
        most, streams = self._limits.streams_max, self.streams
        shared = most - most // RESERVED_SHARE
        if len(streams) < shared:
            return True
        count = self.under_way
        if count < shared:
            return True
        return count < most and not any(stream.has_place and stream.bringer.peer is peer for stream in streams)

    def begin(self, bringer: Bringer, part: DeliveryPart) -> Stream:
        """Creates the stream that begins with that part, which the caller adds."""
        stream = Stream(self, bringer, part, self.blobs.new())
        if not self.may_begin(bringer.peer):
            self._incidents.large_refused()
            text = f"{self.under_way} large messages are under way here; try again later"
            stream.fail(conditions.RESOURCE_LIMIT_EXCEEDED, text, later=True)
        else:
            self.streams[stream] = None
        return stream
