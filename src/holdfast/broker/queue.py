"""A queue: entries by sequence, bounds, one shared cursor and named ones (amqp-illustrations, "Consumption from
Message Queues"; traffic-control §4.2 for bounds; CUSTODY, "Readers").

Rules of this file: emits into the turn's `Batch`, reads through `EntryReader`, never reads a clock (`Clock` is
told). A sequence is given once and never again; what a refused batch burned stays burned. `visible` is behind
`next_sequence` until the commit is on disk: nothing is shown before it is stored.
"""

from dataclasses import dataclass, field
from itertools import accumulate, repeat
from struct import Struct
from typing import Final
from uuid import UUID

from holdfast.accounts import Account
from holdfast.broker import entry, records, tracking
from holdfast.broker.cursor import READ_BYTES, RETIRES_MAX, Cursor
from holdfast.broker.exclusions import Withheld
from holdfast.broker.head import head_of
from holdfast.broker.port import EntryReader, Settings
from holdfast.broker.read_ahead import ReadAhead
from holdfast.broker.wheel import PRUNE_COUNT, due_s
from holdfast.broker.work import Clock, Work

COUNTERS: Final = Struct(">QQQQ")
"""next sequence, messages, bytes, mark of the shared cursor."""

TIMED_STEP: Final = 4_096
"""Sequences by which the stored end of those with a time to live moves on: a power of two."""

RECLAIM_COUNT: Final = 2_000
"""Entries that one turn takes off the disk behind the slowest cursor, or for a purge."""

ENTRY_BYTES: Final = 256
"""What an entry that is held in memory costs beyond its own bytes."""


@dataclass(slots=True, eq=False)
class Queue:
    """`messages` and `bytes_held` count what is on disk or on its way there; bounds hold for both together.

    `memory` counts the entries themselves, of a queue that is not durable; `counted_bytes` is this queue's part of it.
    `tombstones`: those of `messages` that are none, but the ends of messages on their way (CUSTODY, end to end 3).
    """

    queue_id: int
    name: str
    uuid: UUID
    config: Settings
    reader: EntryReader
    cached: Account
    read_ahead: ReadAhead
    ranges: Account
    withheld: Withheld
    clock: Clock
    work: Work
    memory: Account | None = None
    counted_bytes: int = 0
    next_sequence: int = 1
    visible: int = 1
    messages: int = 0
    bytes_held: int = 0
    tombstones: int = 0
    stopped: bool = False
    """Whether nothing is offered for now."""
    offered_first: int = 0
    """Which kind of its readers was first when it was offered last (core/offering.py)."""
    tombstones_stored: bool = False
    """Whether the store has a row that says how many."""
    in_total: int = 0
    out_total: int = 0
    expired_total: int = 0
    shared: Cursor = field(init=False, repr=False)
    named: dict[str, Cursor] = field(default_factory=dict)
    cache: dict[int, bytes] = field(default_factory=dict)
    dirty_cursors: dict[str, Cursor] = field(default_factory=dict)
    deleted_cursors: list[str] = field(default_factory=list)
    reclaiming: bool = False
    reclaim_from: int = 0
    """All below left the disk, or does with the batches under way."""
    sweeping: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of sequences, the highest first, whose entries nobody needs any more: they leave some each turn."""
    ephemeral: dict[int, bytes] = field(default_factory=dict)
    """The entries themselves where the queue is not durable."""
    expiring: dict[int, int] = field(default_factory=dict)
    """By block of sequences with a time to live: the second in which it is looked at (`wheel.Wheel`)."""
    expiring_max: int = PRUNE_COUNT
    timed: tuple[int, int] | None = None
    """All entries with a time to live are within these sequences, [first, end); None: there are none. Stored."""
    hidden: set[int] = field(default_factory=set)
    """Entries that expired and leave with a batch that is not on disk yet."""

    def __post_init__(self) -> None:
        self.shared = Cursor(self)

    # ------------------------------------------------------------------------------------------------ bounds

    @property
    def bounded(self) -> bool:
        """Whether what leaves may make room for more."""
        config = self.config
        return config.messages_max is not None or config.bytes_max is not None or self.memory is not None

    def fits_all(self, count: int, size: int) -> bool:
        """Whether `count` more entries of `size` bytes together stay within both bounds, and those of memory."""
        config = self.config
        if self.memory is not None and not self.memory.fits(size + count * ENTRY_BYTES):
            return False
        return (config.messages_max is None or self.messages + count <= config.messages_max) and (
            config.bytes_max is None or self.bytes_held + size <= config.bytes_max
        )

    def fits(self, size: int) -> bool:
        """As `fits_all` for one entry. An empty queue takes any size, where there is memory for it."""
        config = self.config
        if self.memory is not None and not self.memory.fits(size + ENTRY_BYTES):
            return False
        if config.messages_max is not None and self.messages >= config.messages_max:
            return False
        return config.bytes_max is None or self.bytes_held + size <= config.bytes_max or self.messages == 0

    def room(self, at_most: int) -> int:
        """Deliveries that may be asked of producers now, 0 to `at_most`; by bytes a guess, made safe by `fits`."""
        config = self.config
        room = at_most
        if config.messages_max is not None:
            room = min(room, max(0, config.messages_max - self.messages))
        if config.bytes_max is not None:
            average = max(256, self.bytes_held // self.messages if self.messages else 1024)
            left = config.bytes_max - self.bytes_held
            room = min(room, max(left // average, 1 if left > 0 else 0))
        if self.memory is not None:
            average = ENTRY_BYTES + max(256, self.bytes_held // self.messages if self.messages else 1024)
            left = self.memory.room
            room = min(room, max(left // average, 1 if left > 0 else 0))
        return room

    def count_memory(self) -> None:
        """Brings the account of memory up to date."""
        memory = self.memory
        if memory is not None:
            held = self.bytes_held + ENTRY_BYTES * self.messages
            memory.recount(self.counted_bytes, held)
            self.counted_bytes = held

    # ------------------------------------------------------------------------------------------------ append

    def append(self, value: bytes, size: int) -> int:
        """Takes an entry into the turn's batch; returns its sequence. The caller has asked `fits`."""
        sequence = self.next_sequence
        large = value[1] & entry.BLOB
        durable = self.config.durable
        if large:
            self.work.referred.append((self, sequence, entry.blob_of(value).blob))
        if durable and self.shared.takers and not large and self.cached.charge(len(value)):
            self.cache[sequence] = value  # a cursor's run sends what is cached
        if value[12:20] != entry.NEVER:
            self._expires(sequence, int.from_bytes(value[12:20], "big"))
        self.next_sequence = sequence + 1  # from here on nothing is called that could fail
        self.messages += 1
        self.bytes_held += size
        self.in_total += 1
        if value[1] & entry.TOMBSTONE:
            self.tombstones += 1
        if durable:
            batch = self.work.batch
            batch.appends.append((self.queue_id, sequence, value))
            batch.bytes_appended += len(value)
        else:
            self.ephemeral[sequence] = value
        self.work.counted[self] = None
        if not durable:
            self.count_memory()
        return sequence

    def append_all(self, values: list[bytes], size: int) -> None:
        """As `append`, for entries of `size` bytes together, none with a time to live. The caller has asked
        `fits_all`."""
        first = self.next_sequence
        count = len(values)
        sequences = range(first, first + count)
        durable = self.config.durable
        stored_bytes = sum([len(value) for value in values])
        if durable and self.shared.takers and self.cached.charge(stored_bytes):
            self.cache.update(zip(sequences, values, strict=True))
        self.next_sequence = first + count  # from here on nothing is called that could fail
        self.messages += count
        self.bytes_held += size
        self.in_total += count
        if durable:
            batch = self.work.batch
            batch.appends += zip(repeat(self.queue_id), sequences, values)
            batch.bytes_appended += stored_bytes
        else:
            self.ephemeral.update(zip(sequences, values, strict=True))
        self.work.counted[self] = None
        if not durable:
            self.count_memory()

    def undo(self, sequence: int, value: bytes) -> None:
        """The batch that held this append found no space: it never was; its number stays unused."""
        self.uncache(sequence)
        self.messages -= 1
        self.bytes_held -= entry.size_of(value)
        self.tombstones -= bool(value[1] & entry.TOMBSTONE)
        self.in_total -= 1

    def show_up_to(self, sequence: int) -> None:
        """All below `sequence` is on disk now and may be offered."""
        if sequence > self.visible:
            self.visible = sequence
            self.touch()

    # ------------------------------------------------------------------------------------------------ read

    def read(self, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Visible entries from `first` on, ascending."""
        if self.config.durable:
            found = self.reader.read(self.queue_id, first, count_max=count_max, bytes_max=bytes_max)
            while found and self.hidden:
                shown = [item for item in found if item[0] not in self.hidden]
                if shown:
                    found = shown
                    break
                first = found[-1][0] + 1
                found = self.reader.read(self.queue_id, first, count_max=count_max, bytes_max=bytes_max)
            while found and found[-1][0] >= self.visible:
                found.pop()
            if self.work.rewritten:
                latest = self.work.rewritten
                return [(sequence, latest.get((self.queue_id, sequence), value)) for sequence, value in found]
            return found
        ephemeral = self.ephemeral
        items: list[tuple[int, bytes]] = []
        if self.visible - first < len(ephemeral):  # most lie before it
            for sequence in range(first, self.visible):
                held = ephemeral.get(sequence)
                if held is not None:
                    items.append((sequence, held))
                    if len(items) >= count_max:
                        break
            return items
        for sequence, value in ephemeral.items():  # insertion order is sequence order
            if first <= sequence < self.visible:
                items.append((sequence, value))
                if len(items) >= count_max:
                    break
        return items

    def in_memory(self, first: int, end: int, bytes_max: int) -> list[bytes]:
        """The entries from `first` on, below `end`, that are cached, up to the first that is not, or past the bytes."""
        found = list(map(self.cache.get, range(first, end)))
        count = found.index(None) if None in found else len(found)
        values: list[bytes] = found[:count]  # type: ignore[assignment]  # the first None is behind them
        if sum(map(len, values)) > bytes_max:
            lengths = accumulate(map(len, values))
            del values[next(index for index, before in enumerate(lengths, 1) if before >= bytes_max) :]
        return values

    def value(self, sequence: int) -> bytes | None:
        if not self.config.durable:
            return self.ephemeral.get(sequence)
        cached = self.cache.get(sequence)
        if cached is not None:
            return cached
        if sequence in self.hidden:
            return None
        latest = self.work.rewritten.get((self.queue_id, sequence))
        return self.reader.get(self.queue_id, sequence) if latest is None else latest

    def head(self) -> int:
        """The lowest visible sequence that is neither finished nor leaving, `visible` where there is none."""
        return head_of(self)

    def oldest_wall_ms(self) -> int | None:
        """When the oldest visible entry came, None where there is none."""
        found = self.read(0, count_max=1, bytes_max=1) if self.messages else []
        return entry.unpack(found[0][1]).enqueued_ms if found else None

    # ------------------------------------------------------------------------------------------------ leave

    def retire(self, sequence: int, size: int) -> None:
        """The entry leaves with this turn's batch."""
        self.retire_all([sequence], size)

    def retire_all(self, sequences: list[int], size: int) -> None:
        """The entries, of `size` bytes together, leave with this turn's batch."""
        values = [self.value(sequence) for sequence in sequences] if self.tombstones else []
        stones = sum(1 for value in values if value is not None and value[1] & entry.TOMBSTONE)
        if self.cache and not self.cache.keys().isdisjoint(sequences):
            for sequence in sequences:
                self.uncache(sequence)
        self.tombstones = max(0, self.tombstones - stones)  # not all are counted in a store from before they were
        self.messages -= len(sequences)
        self.bytes_held -= size
        if self.config.durable:
            self.work.batch.retires += zip(repeat(self.queue_id), sequences)
        else:
            for sequence in sequences:
                value = self.ephemeral.pop(sequence, None)
                if value is not None and value[1] & entry.BLOB:
                    self.work.left.append((self.queue_id, sequence))
            self.count_memory()
        self.work.counted[self] = None
        self.work.busy[self] = None

    def drop(self, sequences: list[int], size: int) -> None:
        """Entries that no taker holds, ascending, leave with this turn's batch, whoever has still to read them."""
        try:
            for cursor in self.cursors:
                cursor.pass_over(sequences)
            self.retire_all(sequences, size)
        except Exception:
            self.shared.offer_anew(sequences)
            raise

    def uncache(self, sequence: int) -> None:
        value = self.cache.get(sequence)
        if value is not None:
            self.cached.refund(len(value))
            del self.cache[sequence]

    def expired(self, value: bytes) -> bool:
        if value[12:20] == entry.NEVER:
            return False
        return int.from_bytes(value[12:20], "big") <= self.clock.steady_ms

    def drop_expired(self, cursor: Cursor, sequence: int, value: bytes) -> None:
        """An entry whose time to live is over, met by a cursor: it leaves."""
        if cursor.tracked:
            cursor.finish_unshown(sequence)
            self.dirty(cursor)
            self.reclaim()
            return
        self.expired_total += 1
        cursor.forget_counts(sequence)
        self.retire(sequence, entry.size_of(value))

    def _expires(self, sequence: int, expires_ms: int) -> None:
        """An entry with a time to live was appended: it is looked for when that is over."""
        self.work.wheel.note(self, sequence, due_s(expires_ms, expires_ms - self.clock.steady_ms))
        if self.config.durable and (self.timed is None or sequence >= self.timed[1]):
            first = sequence if self.timed is None else self.timed[0]
            self.set_timed((first, (sequence | TIMED_STEP - 1) + 1))

    def set_timed(self, timed: tuple[int, int] | None) -> None:
        """Where a restart is to look for entries with a time to live; stored with this turn's batch."""
        self.timed = timed
        key = ("node", records.timed_key(self.queue_id))
        self.work.batch.puts.pop(key, None)
        if timed is None:
            self.work.batch.deletes.append(key)
        else:
            self.work.batch.puts[key] = records.PAIRS.pack(*timed)

    def look_again(self, sequences: list[int]) -> None:
        """Entries that a taker held are back, and may have expired meanwhile."""
        if self.expiring or self.timed is not None:
            second = self.clock.steady_ms // 1000 + 1
            for sequence in sequences:
                self.work.wheel.note(self, sequence, second)

    def unfinished(self) -> tuple[int, list[int]]:
        """Entries that may still be there: all from the first on, and those of the second below it."""
        if self.named or self.shared.tracked:
            return self.reclaim_from, []
        if self.name == "$waiting":  # no cursor goes through it
            return next((sequence for sequence, _ in self.read(0, count_max=1, bytes_max=1)), self.visible), []
        return self.shared.position, self.shared.below_position()

    def drop_expired_all(self, found: list[tuple[int, bytes]]) -> None:
        """Entries whose time to live is over, and that no taker holds, leave with this turn's batch. From now on nobody
        sees them; once the batch is on disk they are to be taken out of `hidden`.
        """
        sequences = [sequence for sequence, _ in found]
        size = sum([entry.size_of(self.cache.get(sequence, value)) for sequence, value in found])
        try:
            for cursor in self.cursors:
                cursor.drop(sequences)
            self.retire_all(sequences, size)
        except Exception:
            self.shared.offer_anew(sequences)
            raise
        self.expired_total += len(sequences)
        if self.config.durable:
            self.hidden.update(sequences)

    @property
    def in_transit(self) -> bool:
        """Whether it is a transmission queue, of which an end is told for each message that leaves."""
        return self.name.startswith("@")

    # ------------------------------------------------------------------------------------------------ cursors

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """All of them, the shared one first."""
        return (self.shared, *self.named.values())

    def readers(self) -> list[Cursor]:
        """The cursors that an entry waits for: a taking subscription stands in the shared one's place."""
        return list(self.cursors if self.taken_by is None else self.named.values())

    @property
    def taken_by(self) -> str | None:
        """The name of the subscription that alone reads, None where ordinary consumers may."""
        return next((cursor.name for cursor in self.named.values() if cursor.mode == "take"), None)

    def add_cursor(self, name: str, mode: str, start: int) -> Cursor:
        """A new named cursor at `start`; the shared one begins to remember what it finished."""
        if not self.named and not self.shared.tracked:
            tracking.begin(self.shared, self.head())
        cursor = Cursor(self, name, mode=mode, floor=start)
        self.named[name] = cursor
        self.dirty(cursor)
        self.reclaim()
        return cursor

    def remove_cursor(self, name: str) -> None:
        """Forgets a named cursor; with the last one, what the shared one had finished leaves."""
        gone = self.named.pop(name)
        gone.forget_memory()
        gone.shown.clear()  # who held them may know the cursor still
        self.dirty_cursors.pop(name, None)
        self.deleted_cursors.append(name)
        shared = self.shared
        if gone.mode == "take":  # it stood in the shared cursor's place: what it did is done
            for first, last in gone.finished:
                shared.finished.add(first, last)
            shared.advance(gone.floor)
        if not self.named:
            self.untrack()
        self.touch_counters()
        self.touch()

    def untrack(self) -> None:
        """The shared cursor is alone again: what it had finished leaves the disk, a bounded number each turn.

        Its record, which says what that is, stays until the last of it is gone: a restart goes on with it.
        """
        shared = self.shared
        finished = [(self.reclaim_from, shared.floor - 1), *shared.finished]
        self.sweeping = [(first, last) for first, last in reversed(finished) if first <= last]
        self.reclaim_from = max(self.reclaim_from, shared.floor)
        self.reclaiming = False
        shared.tracked = False
        self.dirty(shared)
        self.touch()

    def _sweep_some(self) -> None:
        """One turn's share of `sweeping`."""
        sweeping = self.sweeping
        leaving = self.leaving()
        left = RECLAIM_COUNT
        while sweeping and left > 0:
            first, last = sweeping[-1]
            found = self.read(first, count_max=min(left, last - first + 2), bytes_max=4 * READ_BYTES)
            left -= max(1, len(found))
            for sequence, value in found:
                if sequence <= last and sequence not in leaving:
                    self.retire(sequence, entry.size_of(value))
            sweeping.pop()
            beyond = next((sequence for sequence, _ in found if sequence > last), None)
            if not found:
                sweeping.clear()
            elif beyond is None:
                sweeping.append((found[-1][0] + 1, last))
            while sweeping and beyond is not None and sweeping[-1][1] < beyond:  # nothing is there before it
                sweeping.pop()
        if sweeping:
            self.touch()
        elif not self.shared.tracked:
            self.dirty_cursors.pop("", None)
            self.deleted_cursors.append("")
            self.touch_counters()

    def leaves(self, sequence: int) -> bool:
        """Whether that entry is retired already, though the store has it still."""
        return sequence in self.leaving()

    def leaving(self) -> set[int]:
        """Sequences whose retirement is in the turn's batch or in the commit under way: the store has them still."""
        pending = (self.work.batch.retires, self.work.retires_in_flight, self.work.moved)
        return {sequence for batch in pending for queue_id, sequence in batch if queue_id == self.queue_id}

    def reclaim(self) -> None:
        """What every reader has passed leaves the disk, a bounded number each turn."""
        self.reclaiming = True
        self.touch()

    def reclaim_some(self) -> None:
        """One turn's share of `reclaim`, and of what a deleted subscription left."""
        if not self.reclaiming and not self.sweeping:
            return
        if len(self.work.batch.retires) >= RETIRES_MAX:
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
                self.retire(sequence, entry.size_of(value))
            self.reclaim_from = sequence + 1
        if not found:
            self.reclaiming = False
        else:
            self.touch()

    # ------------------------------------------------------------------------------------------------ turn

    def touch(self) -> None:
        """There is something to offer or to reclaim before the turn ends."""
        self.work.busy[self] = None

    def touch_counters(self) -> None:
        self.work.counted[self] = None

    def dirty(self, cursor: Cursor) -> None:
        """The cursor's record is to be stored with this turn's batch."""
        self.dirty_cursors[cursor.name] = cursor
        self.work.counted[self] = None

    def before_commit(self) -> None:
        """Stores ahead what consumers are about to be shown, with the counters that are written anyway."""
        if self.config.durable:
            shared = self.shared
            if shared.takers:
                limit = min(self.next_sequence, shared.position + shared.wanted())
                shared.mark = max(shared.mark, limit)
            for cursor in self.named.values():
                if cursor.takers:
                    limit = min(self.next_sequence, cursor.position + cursor.wanted())
                    if limit > cursor.mark:
                        cursor.mark = limit
                        self.dirty_cursors[cursor.name] = cursor

    def tombstone_count(self) -> bytes | None:
        """The row that says how many tombstones there are; None where none is needed, now or before."""
        if not self.tombstones and not self.tombstones_stored:
            return None
        self.tombstones_stored = True
        return self.tombstones.to_bytes(8, "big")

    def counters(self) -> bytes:
        return COUNTERS.pack(self.next_sequence, self.messages, self.bytes_held, self.shared.mark)
