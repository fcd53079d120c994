"""How entries end other than by being accepted: rejected, dead-lettered, purged, expired in transit.

Rules of this file: a copy elsewhere and the retirement of its original are one batch; a message that ends in transit
leaves a tombstone in its transmission queue (CUSTODY, end to end 3).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.amqp.wire.types import Symbol, Uint
from holdfast.broker import rewriting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.moving_out import MovingOut
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.links.disk import Disk
from holdfast.links.pressure import Pressure
from holdfast.names import DEAD_LETTERS
from holdfast.peers.limits.memory import Memory
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state import tied
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns
from holdfast.units import MIB

REASON: Final = Symbol("x-opt-dead-letter-reason")
DEAD_FROM: Final = Symbol("x-opt-dead-letter-from")
DEAD_DELIVERIES: Final = Symbol("x-opt-dead-letter-deliveries")
"""How often the delivery of a message had failed that became a dead letter for that."""
NO_NOTES: Final[Mapping[Symbol, object]] = MappingProxyType({})
DEAD: Final = "dead"
"""The holder of an entry that others read too, until its dead letter is on disk."""
REASON_CHARACTERS_MAX: Final = 500
DEATH_BYTES_MAX: Final = 4_096
"""Bytes of the annotations about its end, besides other annotations at their bound."""
MOVED_COUNT: Final = 200
MOVED_BYTES: Final = 4 * MIB
"""Bytes of one commit beyond which nothing more is moved to the dead letters, except rejected messages: so the commit
does not grow while the disk does not answer."""
NOTE_BYTES: Final = 256
"""Bytes that each annotation of a consumer counts besides the message, and each subscription that has it, because they
take time however short they are."""


class Ended(NamedTuple):
    """The cost of one message's outcome: bytes read, how many of these are annotations, and whether the batch has its
    result."""

    read_bytes: int
    note_bytes: int
    in_batch: bool


@dataclass(frozen=True, slots=True, eq=False)
class DeadLettered(Effect):
    """The turn has a dead letter whose original others read too: the handler learns whether the turn was stored.
    `was_held`: whether a consumer held the message; then its delivery has failed."""

    queue: str
    sequence: int
    cursor: Cursor = field(repr=False)
    was_held: bool = field(default=True, repr=False)


class DeadLettering:
    """Ends entries. `unroutable`: how many messages for unknown nodes became dead letters since the node's start."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        room: Room,
        memory: Memory,
        pressure: Pressure,
        disk: Disk,
    ) -> None:
        self._config = config
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._work = work
        self._room = room
        self._memory = memory
        self._pressure = pressure
        self._disk = disk
        self.unroutable = 0
        self.moving = MovingOut(catalog, DEAD)
        turns.effects.on_decided(DeadLettered, self._decided)

    def end_rejected(self, cursor: Cursor, sequence: int, reason: str) -> Ended:
        """Dead-letters an entry that a consumer rejected, with its reason, in the batch that retires it. Only retires
        it if the store has no room, or if the queue is `$dead-letters` itself."""
        queue = cursor.queue
        value = None if queue.kind is QueueKind.DEAD_LETTERS else queue.value(sequence)
        size = 0 if value is None else len(value)
        if value is None or not self._room.has(size, forwarding=True):
            cursor.finish([sequence])
            return Ended(size, 0, False)
        shown = entry.with_earlier(value, cursor.failures(sequence) or 0)  # its consumer has seen it
        self._move_to_dead_letters(cursor, sequence, shown, reason)
        return Ended(size, packed.note_bytes(value), True)

    def end_too_large(self, cursor: Cursor, sequence: int, value: bytes, size: int) -> bool:
        """Dead-letters an entry, of `size` bytes as a delivery, because no consumer accepts so much. False if that is
        not possible."""
        if cursor.queue.kind is QueueKind.DEAD_LETTERS or not self._room.has(len(value), forwarding=True):
            return False
        ended = cursor.links_ended.get(sequence, 0)
        reason = f"its {size} bytes are more than the consumers take: {ended} links were detached because of it"
        self._move_to_dead_letters(cursor, sequence, entry.with_earlier(value, cursor.failures(sequence)), reason)
        return True

    def _move_to_dead_letters(self, cursor: Cursor, sequence: int, value: bytes, reason: str) -> None:
        queue = self._catalog.queue_of(cursor)
        self.dead_letter(queue.host, value, reason, queue.name)
        if not queue.config.durable:
            cursor.finish([sequence])
        elif cursor.tracked:
            cursor.acquired[sequence] = cursor.acquired[sequence]._replace(consumer=DEAD)
            self._tie(cursor, [sequence])
        else:
            shown = cursor.counts.get(sequence, 0 if cursor.is_counted else 1)
            self._turns.gathered.failures[queue.queue_id, sequence] = shown
            self.move_out(queue, sequence, value)
            cursor.moved(sequence)

    def end_overfull(self, cursor: Cursor, values: Mapping[int, bytes], reason: str) -> None:
        """Dead-letters entries that no consumer holds, because their subscription exceeds its bounds. The caller has
        checked that there is room."""
        queue = self._catalog.queue_of(cursor)
        assert cursor.tracked
        for sequence, value in values.items():
            self.dead_letter(queue.host, entry.with_earlier(value, cursor.failures(sequence)), reason, queue.name)
        cursor.acquire_for(DEAD, {sequence: packed.size_of(value) for sequence, value in values.items()})
        self._tie(cursor, list(values), was_held=False)

    def _tie(self, cursor: Cursor, sequences: list[int], *, was_held: bool = True) -> None:
        """Entries held by DEAD are finished if the turn with their dead letters is stored."""
        turn, name = self._turns.gathered, cursor.queue.name
        for sequence in sequences:
            turn.decided.append(DeadLettered(self._turns.event, name, sequence, cursor, was_held))
            self.moving.add(cursor, sequence)
        tied.retire(self._catalog, turn, cursor, DEAD, sequences)

    def _decided(self, effect: "DeadLettered", stored: bool) -> None:
        """The dead letter is on disk, or was undone: then its message is offered again."""
        cursor = effect.cursor
        mine = self.moving.decided(cursor, [effect.sequence])
        if not mine:
            return
        if stored:
            cursor.finish(mine)
        elif effect.was_held:
            cursor.requeue(mine, failed=True)
        else:
            cursor.take_back(mine, DEAD)
        cursor.queue.touch()

    def suspended(self) -> Iterator[tuple[object, None]]:
        """The holders of entries that are being dead-lettered; they never disconnect."""
        yield DEAD, None

    def dead_letter_exhausted(self, queue: Queue, subscription: str, value: bytes, failures: int) -> None:
        """A copy of an entry whose delivery has failed so often becomes a dead letter."""
        whose = f" to subscription {subscription!r}" if subscription else ""
        most = queue.config.deliveries_max
        times = "once" if failures == 1 else f"{failures} times"
        reason = f"its delivery{whose} failed {times}; deliveries_max of the queue is {most}"
        value = entry.with_earlier(value, failures)
        self.dead_letter(queue.host, value, reason, queue.name, {DEAD_DELIVERIES: Uint(failures)})

    def dead_letter(
        self, host: str, value: bytes, reason: str, place: str, notes: Mapping[Symbol, object] = NO_NOTES
    ) -> int:
        """Appends the entry to the dead letters of that host, with the reason, its queue and `notes`; returns its
        sequence there."""
        reason = reason[:REASON_CHARACTERS_MAX]
        bytes_max = self._config.limits.annotation_bytes_max + DEATH_BYTES_MAX
        told = {REASON: reason, DEAD_FROM: place, **notes}
        item = entry.unpack(annotate.merge(value, annotate.to_add(told), bytes_max))
        dead = entry.pack(
            flags=item.flags & (entry.DURABLE | entry.BLOB),
            enqueued_ms=self._clock.wall_ms,
            bare=item.bare,
            priority=item.priority,
            message_format=item.message_format,
            annotation_count=item.annotation_count,
            annotations=item.annotations,
            earlier=item.earlier,
        )
        return self._catalog.own(host, DEAD_LETTERS).append(dead, packed.size_of(dead))

    def has_room_for_dead_letter(self, size: int) -> bool:
        """Whether the disk works, and the store has room for the dead letter beside its original of `size` bytes."""
        return not self._disk.takes_nothing and self._room.has(size + DEATH_BYTES_MAX, forwarding=True)

    def has_moved_its_share(self) -> bool:
        """Whether the gathered commit has reached the bound for moved entries."""
        return len(self._turns.gathered.moves) >= MOVED_COUNT or self._work.batch.bytes_appended >= MOVED_BYTES

    def move_out(self, queue: Queue, sequence: int, value: bytes) -> None:
        """Retires the entry for all readers, in the batch that has its copy. Only for a durable queue whose cursor is
        not `tracked`; otherwise a subscription would never see the entry, so the caller uses `Cursor.finish`
        instead."""
        assert queue.config.durable and not queue.shared.tracked
        size = packed.size_of(value)
        queue.touch_counters()
        queue.touch()
        queue.uncache(sequence)
        queue.messages -= 1  # from here on nothing is called that could fail
        queue.bytes_held -= size
        self._turns.gathered.moves.append((queue, sequence, value))
        self._work.moved.append((queue.queue_id, sequence))

    def dead_letter_on_its_way(self, queue: Queue, sequence: int, value: bytes, reason: str, place: str) -> None:
        """Dead-letters a message in transmission that no link holds; a tombstone replaces it."""
        self.dead_letter(queue.host, value, reason, place)
        self.move_out(queue, sequence, value)
        self._tombstone(queue, value)

    def send_elsewhere(
        self, queue: Queue, sequence: int, value: bytes, target: Queue, identity: entry.Identity
    ) -> None:
        """Sends a message in transmission that no link holds to another node, as a new message with that identity; a
        tombstone replaces it."""
        item = annotate.without_relayed(entry.unpack(value))
        copied = entry.pack(
            flags=item.flags & (entry.DURABLE | entry.BLOB),
            enqueued_ms=self._clock.wall_ms,
            bare=item.bare,
            priority=item.priority,
            expires_ms=item.expires_ms,
            message_format=item.message_format,
            annotation_count=item.annotation_count,
            annotations=item.annotations,
            identity=identity,
            to=item.to,
            expires_at_ms=item.expires_at_ms,
        )
        target.append(copied, packed.size_of(copied))
        self.move_out(queue, sequence, value)
        self._tombstone(queue, value)

    def dead_letter_unroutable(self, host: str, value: bytes, to: str, node: str) -> int:
        """Dead-letters a message of that host for an unknown node, with that reason; returns its sequence there."""
        self.unroutable += 1
        return self.dead_letter(host, value, f"{self._config.name!r} has no route to {node!r}", f"{to}@{node}")

    def annotate_entry(self, peer: Peer, queue: Queue, sequence: int, notes: annotate.Notes) -> tuple[Ended, str]:
        """Message annotations of modified are merged into what is stored (CLIENTS 21), as far as they fit: a message's
        own bound, its queue's, the store's, and what may be in memory for that connection until the turn is on disk.
        Beyond one of them the entry stays unchanged; then the second result says why."""
        durable = queue.config.durable
        bytes_max = self._config.limits.annotation_bytes_max
        if not self._memory.admits(peer, bytes_max):
            return Ended(0, 0, False), "memory is short"
        value = queue.value(sequence)
        if value is None:
            return Ended(0, 0, False), ""
        merged = annotate.merge(value, notes, bytes_max)
        size = len(merged) + NOTE_BYTES * (len(notes.added) + len(queue.named))
        ended = Ended(size, packed.note_bytes(value), False)
        self._pressure.rewrote(peer, size)
        grown = packed.size_of(merged) - packed.size_of(value)
        if merged is value:
            most = f"{bytes_max} bytes (annotation_bytes_max) and {annotate.ANNOTATIONS_MAX} in number"
            return ended, f"the annotations of a message are at most {most}"
        if not self._may_grow(queue, grown):
            return ended, f"queue {queue.name!r} has no room"
        if durable and not self._room.has(len(merged)):
            return ended, "the store has no room"
        rewriting.replace(queue, sequence, value, merged, self._turns.gathered.rewritten if durable else None)
        if not durable:
            queue.ephemeral[sequence] = merged
            queue.count_memory()
        elif not merged[1] & entry.BLOB and self._memory.cached.charge(len(merged)):
            queue.cache[sequence] = merged
        return ended._replace(in_batch=durable), ""

    def _may_grow(self, queue: Queue, grown: int) -> bool:
        """Whether an entry of the queue may grow by so many bytes."""
        if grown <= 0:
            return True
        if queue.memory is not None and not queue.memory.fits(grown):
            return False
        bytes_max = (
            self._config.dead_letters.bytes_max if queue.kind is QueueKind.DEAD_LETTERS else queue.config.bytes_max
        )
        return bytes_max is None or queue.bytes_held + grown <= bytes_max

    def end_in_transit(self, gone: list[tuple[Queue, int, bytes]]) -> None:
        """Appends tombstones for entries that leave with this batch; if it is refused, the entries return to their
        places."""
        if not gone:
            return
        places = {(queue.queue_id, sequence) for queue, sequence, _ in gone}
        batch = self._work.batch
        batch.retires[:] = [item for item in batch.retires if item not in places]
        self._turns.gathered.moves += gone
        self._work.moved += [(queue.queue_id, sequence) for queue, sequence, _ in gone]
        for queue, _, value in gone:
            self._tombstone(queue, value)

    def _tombstone(self, queue: Queue, value: bytes) -> None:
        """Appends a tombstone for a message that ended in transit (CUSTODY, end to end 3)."""
        item = entry.unpack(value)
        if item.identity is None or item.flags & entry.TOMBSTONE:
            return
        stone = make_tombstone(item, self._clock.wall_ms)
        queue.append(stone, packed.size_of(stone))


def make_tombstone(item: entry.Entry, wall_ms: int) -> bytes:
    """The end of a message in custody, with its identity."""
    return entry.pack(
        flags=entry.DURABLE | entry.TOMBSTONE,
        enqueued_ms=wall_ms,
        bare=b"\x00\x53\x77\x40",
        identity=item.identity,
        trace=item.trace,
        to=item.to,
    )
