"""The entries of a queue by sequence: appended, read, retired (amqp-illustrations, "Consumption from Message Queues").

Rules of this file: it writes to the turn's `Batch` and reads through `EntryReader`; it never reads a clock (`Clock` is
set from outside) and knows no cursor. A sequence is used once and never again, also if its batch is refused. `visible`
is behind `next_sequence` until the commit is on disk: nothing is shown before it is stored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Any, Final
from uuid import UUID

from holdfast.accounts import Account
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.read_ahead import ReadAhead
from holdfast.broker.entries.wheel import PRUNE_COUNT, due_s
from holdfast.broker.entries.withheld import Withheld
from holdfast.broker.entries.work import Work
from holdfast.broker.stored import records
from holdfast.engine.clock import Clock
from holdfast.engine.port import EntryReader, Settings

TIMED_STEP: Final = 4_096
"""Sequences by which the stored end of those with a time to live advances: a power of two."""

ENTRY_BYTES: Final = 256
"""What an entry that is held in memory costs beyond its own bytes."""


@dataclass(slots=True, eq=False)
class EntryLog:
    """`messages` and `bytes_held` count entries that are on disk or in a batch; a queue's bounds apply to both.

    `memory` counts the entries themselves, of a queue that is not durable; `counted_bytes` is this queue's part of it.
    `tombstones`: how many of `messages` are tombstones of messages in transit (CUSTODY, end to end 3).
    """

    queue_id: int
    name: str
    """Within its virtual host."""
    kind: QueueKind
    uuid: UUID
    config: Settings
    reader: EntryReader
    cached: Account
    read_ahead: ReadAhead
    ranges: Account
    withheld: Withheld
    clock: Clock
    work: Work[Any]
    """The turn's work of the node's queues."""
    memory: Account | None = None
    host: str = DEFAULT_HOST
    key: HostedName = field(init=False)
    """Its name with its virtual host."""
    counted_bytes: int = 0
    next_sequence: int = 1
    visible: int = 1
    messages: int = 0
    bytes_held: int = 0
    tombstones: int = 0
    tombstones_stored: bool = False
    """Whether the store has a row that says how many."""
    in_total: int = 0
    out_total: int = 0
    expired_total: int = 0
    in_transit: bool = field(init=False)
    """Whether it is a transmission queue, which records the end of each message that leaves."""
    destination: str = field(init=False)
    """The node that a transmission queue is for; of other queues ""."""
    has_consumers: bool = False
    """Whether appended entries are cached for consumers."""
    cache: dict[int, bytes] = field(default_factory=dict)
    ephemeral: dict[int, bytes] = field(default_factory=dict)
    """The entries themselves where the queue is not durable."""
    expiring: dict[int, int] = field(default_factory=dict)
    """By block of sequences with a time to live: the second in which it is looked at; kept by `wheel.Wheel`."""
    expiring_max: int = PRUNE_COUNT
    timed: tuple[int, int] | None = None
    """All entries with a time to live are within these sequences, [first, end); None: there are none. Stored."""
    hidden: set[int] = field(default_factory=set)
    """Entries that expired and leave with a batch that is not on disk yet."""

    def __post_init__(self) -> None:
        self.key = hosted(self.host, self.name)
        self.in_transit = self.kind is QueueKind.TRANSMISSION
        self.destination = self.name[1:] if self.in_transit else ""

    @property
    def holds_custody(self) -> bool:
        """Whether its messages are in transit: a tombstone takes the place of one that expires."""
        return self.kind is QueueKind.TRANSMISSION or self.kind is QueueKind.WAITING

    # ------------------------------------------------------------------------------------------------ append

    def count_memory(self) -> None:
        """Updates the account of memory."""
        memory = self.memory
        if memory is not None:
            held = self.bytes_held + ENTRY_BYTES * self.messages
            memory.recount(self.counted_bytes, held)
            self.counted_bytes = held

    def append(self, value: bytes, size: int) -> int:
        """Adds an entry to the turn's batch; returns its sequence. The caller has checked `fits`."""
        sequence = self.next_sequence
        large = value[1] & entry.BLOB
        durable = self.config.durable
        if large:
            self.work.referred.append((self, sequence, entry.blob_of(value).blob))
        if durable and self.has_consumers and not large and self.cached.charge(len(value)):
            self.cache[sequence] = value  # a cursor's run sends cached entries
        if value[12:20] != entry.NEVER:
            self._expires(sequence, value)
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
        self.work.dirty_counters[self] = None
        if not durable:
            self.count_memory()
        return sequence

    def append_all(self, values: list[bytes], size: int) -> None:
        """As `append`, for entries of `size` bytes together, none with a time to live. The caller has checked
        `fits_all`."""
        first = self.next_sequence
        count = len(values)
        sequences = range(first, first + count)
        durable = self.config.durable
        stored_bytes = sum([len(value) for value in values])
        if durable and self.has_consumers and self.cached.charge(stored_bytes):
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
        self.work.dirty_counters[self] = None
        if not durable:
            self.count_memory()

    def undo(self, sequence: int, value: bytes) -> None:
        """Reverts an append whose batch found no space; its sequence stays unused."""
        self.uncache(sequence)
        self.messages -= 1
        self.bytes_held -= packed.size_of(value)
        self.tombstones -= bool(value[1] & entry.TOMBSTONE)
        self.in_total -= 1

    def show_up_to(self, sequence: int) -> None:
        """All entries below `sequence` are on disk now and may be offered."""
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
        """The cached entries from `first` on, below `end`, up to the first that is not cached, or until the bytes are
        exceeded."""
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

    def values(self, sequences: Sequence[int], bytes_max: int) -> dict[int, bytes]:
        """Those of these entries that are on disk, as `value`, up to the one with which they are past the bytes."""
        found = self.reader.get_all(self.queue_id, sequences, bytes_max=bytes_max)
        if self.hidden:
            for sequence in self.hidden.intersection(found):
                del found[sequence]
        if self.work.rewritten:
            latest = self.work.rewritten
            return {sequence: latest.get((self.queue_id, sequence), value) for sequence, value in found.items()}
        return found

    def oldest_wall_ms(self) -> int | None:
        """The wall time of the oldest visible entry; None if there is none."""
        for _, value in self.read(0, count_max=1, bytes_max=1) if self.messages else ():
            return entry.unpack(value).enqueued_ms
        return None

    # ------------------------------------------------------------------------------------------------ cache

    def consumers_changed(self, present: bool) -> None:
        """The queue got its first ordinary consumer, or lost its last one."""
        self.has_consumers = present

    def uncache(self, sequence: int) -> None:
        value = self.cache.get(sequence)
        if value is not None:
            self.cached.refund(len(value))
            del self.cache[sequence]

    def uncache_each(self, sequences: Iterable[int]) -> None:
        """As `uncache`, for those of the entries that are cached."""
        cache, size = self.cache, 0
        for sequence in sequences:
            value = cache.pop(sequence, None)
            if value is not None:
                size += len(value)
        self.cached.refund(size)

    def uncache_run(self, sequences: Sequence[int], values: list[bytes]) -> None:
        """As `uncache` for entries that are cached, all of them, with their values."""
        self.cached.refund(sum(map(len, values)))
        cache = self.cache
        for sequence in sequences:
            del cache[sequence]

    # ------------------------------------------------------------------------------------------------ retire

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
        self.tombstones = max(0, self.tombstones - stones)  # a store of an earlier version does not count all of them
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
        self.work.dirty_counters[self] = None
        self.work.dirty_queues[self] = None

    def count_out(self, count: int) -> None:
        """Counts entries that were handed out."""
        self.out_total += count

    def leaves(self, sequence: int) -> bool:
        """Whether the entry is retired already although it is still in the store."""
        return sequence in self.leaving()

    def leaving(self) -> set[int]:
        """Sequences whose retirement is in the turn's batch or in the commit under way: the store has them still."""
        pending = (self.work.batch.retires, self.work.retires_in_flight, self.work.moved)
        return {sequence for batch in pending for queue_id, sequence in batch if queue_id == self.queue_id}

    # ------------------------------------------------------------------------------------------------ time to live

    def expired(self, value: bytes) -> bool:
        if value[12:20] == entry.NEVER:
            return False
        return packed.end_of(value, self.clock.steady_ms, self.clock.wall_ms) <= self.clock.steady_ms

    def retire_expired(self, sequence: int, size: int) -> None:
        """As `retire`, for an expired entry."""
        self.expired_total += 1
        self.retire(sequence, size)

    def _expires(self, sequence: int, value: bytes) -> None:
        """An entry with a time to live was appended: notes when it expires."""
        expires_ms = packed.end_of(value, self.clock.steady_ms, self.clock.wall_ms)
        if value[1] & entry.EXPIRES_AT:
            self.work.wheel.walled[self] = None
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
        """Entries that a consumer held were requeued, and may have expired meanwhile."""
        if self.expiring or self.timed is not None:
            second = self.clock.steady_ms // 1000 + 1
            for sequence in sequences:
                self.work.wheel.note(self, sequence, second)

    # ------------------------------------------------------------------------------------------------ turn

    def touch(self) -> None:
        """Notes that the queue has something to offer or to reclaim before the turn ends."""
        self.work.dirty_queues[self] = None

    def touch_counters(self) -> None:
        self.work.dirty_counters[self] = None

    def tombstone_count(self) -> bytes | None:
        """The row that says how many tombstones there are; None where none is needed, now or before."""
        if not self.tombstones and not self.tombstones_stored:
            return None
        self.tombstones_stored = True
        return self.tombstones.to_bytes(8, "big")
