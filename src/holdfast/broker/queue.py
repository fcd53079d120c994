"""A queue: an entry log with bounds, one shared cursor and named ones (amqp-illustrations, "Consumption from
Message Queues"; traffic-control §4.2 for bounds; CUSTODY, "Readers").

Rules of this file: as of `entries/entry_log.py`; entries are added and removed by the methods of `EntryLog`; a queue
adds the readers and decides when entries may leave.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from holdfast.broker import tracking
from holdfast.broker.bands import PRIORITY_MOST, Bands, limit
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.entries import packed
from holdfast.broker.entries.entry_log import ENTRY_BYTES, EntryLog
from holdfast.broker.entries.gone import Gone
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX, Work
from holdfast.broker.head import head_of
from holdfast.broker.stored import records
from holdfast.broker.stored.ranges import RangeSet

COUNTERS: Final = Struct(">QQQQ")
"""next sequence, messages, bytes, watermark of the shared cursor."""

RECLAIM_COUNT: Final = 2_000
"""Entries that one turn takes off the disk behind the slowest cursor, or for a purge."""


@dataclass(slots=True, eq=False)
class Queue(EntryLog):
    """`shared` is the cursor of ordinary consumers, `named` those of subscriptions."""

    work: "Work[Queue]"
    stopped: bool = False
    """Whether nothing is offered for now."""
    dropped_total: int = 0
    """Messages that were dropped to make room for later ones."""
    refused_total: int = 0
    refused_bytes: int = 0
    """Bytes of clients' messages that were refused for lack of room, since the node's start."""
    bands: Bands | None = field(init=False, default=None)
    """Room by priority; None if every priority may fill the whole queue."""
    offered_first: int = 0
    """Which kind of its readers was first when it was offered last (core/offering.py)."""
    reserved: int = 0
    reserved_bytes: int = 0
    """Bytes reserved by open transactions, and in a queue in memory by links between queues; they count towards the
    bounds (endpoints/transactions/, queue_links/handing.py)."""
    awaited: int = 0
    awaited_bytes: int = 0
    """Bytes reserved for a group of messages from another node (custody/arrival)."""
    shared: Cursor = field(init=False, repr=False)
    named: dict[str, Cursor] = field(default_factory=dict)
    dirty_cursors: dict[str, Cursor] = field(default_factory=dict)
    deleted_cursors: list[str] = field(default_factory=list)
    deleted_rows: list[bytes] = field(default_factory=list)
    """Keys of table `node` that are deleted with the deleted cursors."""
    gone: Gone = field(default_factory=Gone)
    """Set for a queue with subscriptions."""
    reclaiming: bool = False
    reclaim_from: int = 0
    """Everything below has left the disk, or leaves with the current batches."""
    kept_below: tuple[int, int] = (0, 0)
    """Below this sequence consumers held every message that could be dropped, and when the search last began at the
    first one, on the steady clock (broker/dropping.py)."""
    sweeping: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of sequences, the highest first, whose entries no reader needs: a share of them leaves in each turn."""

    def __post_init__(self) -> None:
        EntryLog.__post_init__(self)  # `super()` does not work in a dataclass with slots
        self.set_bands()
        self.shared = Cursor(self, self)
        self.shared.count_deliveries()

    # ------------------------------------------------------------------------------------------------ arrivals

    def append(self, value: bytes, size: int) -> int:
        """As `EntryLog.append`; a delayed message is put into `$delayed`, and the sequence is one of that queue."""
        held = self.hold(value)
        return self.deliver(value, size) if held is None else held

    def deliver(self, value: bytes, size: int) -> int:
        """As `append`, now."""
        if self.bands is not None:
            self.bands.came(value[2], self.clock.now)
        return EntryLog.append(self, value, size)

    def hold(self, value: bytes) -> int | None:
        """Puts a delayed message into `$delayed`; returns its sequence there, None if it is not delayed."""
        if value[24:28] == b"\0\0\0\0" or self.work.hold is None or not self.may_delay:
            return None
        return self.work.hold(self, value)

    @property
    def may_delay(self) -> bool:
        """Whether delayed messages for this queue wait in `$delayed`."""
        return self.config.durable and self.kind in (QueueKind.ORDINARY, QueueKind.TOPIC, QueueKind.REMOTE)

    # ------------------------------------------------------------------------------------------------ bounds

    @property
    def bounded(self) -> bool:
        """Whether entries that leave may make room for more."""
        config = self.config
        return config.messages_max is not None or config.bytes_max is not None or self.memory is not None

    def set_bands(self) -> None:
        """To be called when the queue's settings have changed."""
        config = self.config
        if config.room_normal >= 1 and config.room_low >= 1:
            self.bands = None
            return
        if self.bands is None:
            self.bands = Bands(config.room_low, config.room_normal, config.room_quiet_s, self.clock.now)
        else:
            self.bands.low, self.bands.normal = config.room_low, config.room_normal
            self.bands.quiet_s = config.room_quiet_s

    def bounds(self, priority: int = PRIORITY_MOST) -> tuple[int | None, int | None]:
        """Messages and bytes up to which clients' messages of that priority may fill the queue now; None: no bound."""
        config = self.config
        if self.bands is None or priority >= PRIORITY_MOST:
            return config.messages_max, config.bytes_max
        part = self.bands.part(priority, self.clock.now)
        return limit(config.messages_max, part), limit(config.bytes_max, part)

    def fits_all(self, count: int, size: int, priority: int = PRIORITY_MOST) -> bool:
        """Whether `count` more entries of `size` bytes together stay within both bounds, those of that priority, and
        those of memory."""
        if self.memory is not None and not self.memory.fits(size + count * ENTRY_BYTES):
            return False
        messages_max, bytes_max = self.bounds(priority)
        held, held_bytes = self.occupied
        return (messages_max is None or held + count <= messages_max) and (
            bytes_max is None or held_bytes + size <= bytes_max
        )

    def can_hold(self, count: int, size: int) -> bool:
        """Whether so many entries would fit into the empty queue."""
        config = self.config
        return (config.messages_max is None or count <= config.messages_max) and (
            config.bytes_max is None or size <= config.bytes_max
        )

    @property
    def occupied(self) -> tuple[int, int]:
        """Messages and bytes that count towards the bounds."""
        messages = self.messages + self.reserved + self.awaited
        return messages, self.bytes_held + self.reserved_bytes + self.awaited_bytes

    def fits(self, size: int, priority: int = PRIORITY_MOST) -> bool:
        """As `fits_all`, for one entry. An empty queue accepts any size, if there is memory for it."""
        if self.memory is not None and not self.memory.fits(size + ENTRY_BYTES):
            return False
        messages_max, bytes_max = self.bounds(priority)
        held, held_bytes = self.occupied
        if messages_max is not None and held >= messages_max:
            return False
        return bytes_max is None or held_bytes + size <= bytes_max or held == 0

    def room(self, at_most: int, priority: int = PRIORITY_MOST) -> int:
        """Credit that producers may get now for messages of that priority, 0 to `at_most`; it is estimated from the
        bytes, and `fits` checks each message."""
        messages_max, bytes_max = self.bounds(priority)
        room = at_most
        held, held_bytes = self.occupied
        if messages_max is not None:
            room = min(room, max(0, messages_max - held))
        if bytes_max is not None:
            average = max(256, self.bytes_held // self.messages if self.messages else 1024)
            left = bytes_max - held_bytes
            room = min(room, max(left // average, 1 if left > 0 else 0))
        if self.memory is not None:
            average = ENTRY_BYTES + max(256, self.bytes_held // self.messages if self.messages else 1024)
            left = self.memory.room
            room = min(room, max(left // average, 1 if left > 0 else 0))
        return room

    # ------------------------------------------------------------------------------------------------ leave

    def head(self) -> int:
        """The lowest visible sequence that is neither finished nor leaving, `visible` where there is none."""
        return head_of(self, self.shared)

    def drop(self, sequences: list[int], size: int) -> None:
        """Entries that no consumer holds, ascending, leave with this turn's batch, also if some cursor has not read
        them."""
        try:
            for cursor in self.cursors:
                if cursor.tracked or not self.named:  # from a topic only subscriptions read
                    cursor.pass_over(sequences)
            self.retire_all(sequences, size)
            if self.named:
                self.gone.note_dropped(sequences)
        except Exception:
            self.shared.offer_anew(sequences)
            raise

    def drop_wherever(self, sequence: int, size: int) -> None:
        """As `drop`, for one entry at any place."""
        try:
            for cursor in self.cursors:
                cursor.drop([sequence])
                cursor.ahead_end = max(cursor.ahead_end, sequence + 1)  # it is asked whether it is leaving
            self.retire_all([sequence], size)
            if self.named:
                self.gone.note_dropped([sequence])
        except Exception:
            self.shared.offer_anew([sequence])
            raise

    def drop_expired_all(self, found: list[tuple[int, bytes]]) -> None:
        """Expired entries that no consumer holds leave with this turn's batch, and are hidden at once; when the batch
        is on disk, the caller removes them from `hidden`.
        """
        sequences = [sequence for sequence, _ in found]
        size = sum([packed.size_of(self.cache.get(sequence, value)) for sequence, value in found])
        try:
            for cursor in self.cursors:
                cursor.drop(sequences)
            self.retire_all(sequences, size)
        except Exception:
            self.shared.offer_anew(sequences)
            raise
        self.expired_total += len(sequences)
        if self.named:
            self.gone.note_expired(sequences)
        if self.config.durable:
            self.hidden.update(sequences)

    def unfinished(self) -> tuple[int, list[int]]:
        """Entries that may still be there: all from the first on, and those of the second below it."""
        if self.named or self.shared.tracked:
            return self.reclaim_from, []
        if self.kind in (QueueKind.WAITING, QueueKind.DELAYED):  # no cursor goes through it
            return next((sequence for sequence, _ in self.read(0, count_max=1, bytes_max=1)), self.visible), []
        return self.shared.position, self.shared.below_position()

    # ------------------------------------------------------------------------------------------------ cursors

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """All cursors, the shared one first."""
        return (self.shared, *self.named.values())

    def readers(self) -> list[Cursor]:
        """The cursors that must pass an entry before it leaves: a taking subscription replaces the shared one."""
        return list(self.cursors if self.taken_by is None else self.named.values())

    @property
    def taken_by(self) -> str | None:
        """The name of the taking subscription, the only reader; None if ordinary consumers may read."""
        return next((cursor.name for cursor in self.named.values() if cursor.mode == "take"), None)

    def add_cursor(self, name: str, mode: str, start: int) -> Cursor:
        """Creates a named cursor at `start`; from then on the shared one remembers finished entries."""
        if not self.named and not self.shared.tracked:
            tracking.begin(self.shared, self.head())
        cursor = Cursor(self, self, name, mode=mode, floor=start)
        cursor.count_deliveries()
        self.named[name] = cursor
        self.dirty(cursor)
        self.reclaim()
        return cursor

    def remove_cursor(self, name: str) -> None:
        """Deletes a named cursor; with the last one, the entries that the shared one had finished leave."""
        gone = self.named.pop(name)
        self.deleted_rows += rows_of(gone)
        gone.forget_memory()
        gone.acquired.clear()  # their holders may still refer to the cursor
        self.dirty_cursors.pop(name, None)
        self.deleted_cursors.append(name)
        shared = self.shared
        if gone.mode == "take":  # it replaced the shared cursor: what it finished is finished
            for first, last in gone.finished:
                shared.finished.add(first, last)
            shared.advance(gone.floor)
        if not self.named:
            self.untrack()
        self.touch_counters()
        self.touch()

    def untrack(self) -> None:
        """The shared cursor is the only one again: entries that it has finished leave the disk, a bounded number each
        turn. Its record, which says which these are, stays until the last one has left, so that a restart continues.
        """
        shared = self.shared
        self.sweep([(self.reclaim_from, shared.floor - 1), *shared.finished])
        self.reclaim_from = max(self.reclaim_from, shared.floor)
        self.reclaiming = False
        shared.tracked = False
        self.dirty(shared)
        self.touch()

    def sweep(self, ranges: list[tuple[int, int]]) -> None:
        """No reader needs the entries of these ranges: they are swept too."""
        wanted = RangeSet([item for item in (*self.sweeping, *ranges) if item[0] <= item[1]])
        self.sweeping = [*wanted][::-1]

    def leaves(self, sequence: int) -> bool:
        """Whether the entry is leaving, or no reader needs it."""
        return EntryLog.leaves(self, sequence) or self.is_swept(sequence)

    def is_swept(self, sequence: int) -> bool:
        """Whether the entry is to be swept, because no reader needs it."""
        return any(first <= sequence <= last for first, last in self.sweeping)

    @property
    def sweeps_now(self) -> bool:
        """Whether some entries of `sweeping` are on disk, so that they may leave."""
        return bool(self.sweeping) and self.sweeping[-1][0] < self.visible

    def keep_unswept(self, sequence: int) -> None:
        """The entry stays, although it was to be swept."""
        if self.is_swept(sequence):
            wanted = RangeSet(self.sweeping)
            wanted.remove(sequence)
            self.sweeping = [*wanted][::-1]

    def _sweep_some(self) -> None:
        """One turn's share of `sweeping`."""
        sweeping = self.sweeping
        leaving = self.leaving()
        left = RECLAIM_COUNT
        while left > 0 and self.sweeps_now:
            first, last = sweeping[-1]
            found = self.read(first, count_max=min(left, last - first + 2), bytes_max=4 * READ_BYTES)
            left -= max(1, len(found))
            for sequence, value in found:
                if sequence <= last and sequence not in leaving:
                    self.retire(sequence, packed.size_of(value))
            sweeping.pop()
            beyond = next((sequence for sequence, _ in found if sequence > last), None)
            if not found:  # nothing is left below what is not on disk yet
                later = [(max(first, self.visible), last) for first, last in (*sweeping, (first, last))]
                sweeping[:] = [item for item in later if item[0] <= item[1]]
            elif beyond is None:
                sweeping.append((found[-1][0] + 1, last))
            while sweeping and beyond is not None and sweeping[-1][1] < beyond:  # nothing is there before it
                sweeping.pop()
        if sweeping:
            if self.sweeps_now:
                self.touch()
        elif not (self.shared.tracked or self.named):  # that was the last of what its last subscription kept
            self.dirty_cursors.pop("", None)
            self.deleted_cursors.append("")
            self.touch_counters()

    def reclaim(self) -> None:
        """Entries that every reader has passed leave the disk, a bounded number each turn."""
        self.reclaiming = True
        self.touch()

    def reclaim_some(self) -> None:
        """One turn's share of `reclaim`, and of the entries that a deleted subscription kept."""
        if not self.reclaiming and not self.sweeping:
            return
        if self.work.is_full(RETIRES_MAX):
            self.work.request_commit()
            self.touch()
            return
        if self.sweeping:
            self._sweep_some()
        if not self.reclaiming:
            return
        low = min((cursor.floor for cursor in self.readers() if cursor.tracked), default=0)
        found = self.read(self.reclaim_from, count_max=RECLAIM_COUNT, bytes_max=4 * READ_BYTES) if low else []
        leaving = self.leaving() if found else set()
        for sequence, value in found:
            if sequence >= low:
                self.reclaiming = False
                return
            if sequence not in leaving:
                self.retire(sequence, packed.size_of(value))
            self.reclaim_from = sequence + 1
        if not found:
            self.reclaiming = False
        else:
            self.touch()

    # ------------------------------------------------------------------------------------------------ turn

    def dirty(self, cursor: Cursor) -> None:
        """The cursor's record is to be stored with this turn's batch."""
        self.dirty_cursors[cursor.name] = cursor
        self.work.dirty_counters[self] = None

    def begin_watermark(self, cursor: Cursor) -> None:
        """A run of the node begins or ends for that cursor: its watermark must be stored."""
        if cursor.name:
            self.dirty_cursors[cursor.name] = cursor
        self.touch_counters()

    def before_commit(self) -> None:
        """Stores in advance what consumers will be shown, with the counters that are written anyway."""
        if self.config.durable:
            shared = self.shared
            if shared.consumers:
                shared.watermark = max(shared.watermark, min(self.next_sequence, shared.shown_next()))
            for cursor, shown in self.showing():
                limit = min(self.next_sequence, shown)
                if limit > cursor.watermark:
                    cursor.watermark = limit
                    self.dirty_cursors[cursor.name] = cursor

    def showing(self) -> list[tuple[Cursor, int]]:
        """The named cursors that may show entries once this turn is on disk, and one past the highest of these."""
        return [(cursor, cursor.shown_next()) for cursor in self.named.values() if cursor.consumers]

    def counters(self) -> bytes:
        return COUNTERS.pack(self.next_sequence, self.messages, self.bytes_held, self.shared.watermark)


def rows_of(cursor: Cursor) -> list[bytes]:
    """The keys of all that table `node` may have of a cursor's failed deliveries."""
    counts, queue_id, name = cursor.counts, cursor.queue.queue_id, cursor.name
    if not isinstance(counts, DeliveryCounts):
        return []
    known = {*counts, *counts.marked, *counts.changed}
    return [records.lives_key(queue_id, name), *(records.failures_key(queue_id, name, item) for item in known)]
