"""Expired entries leave their queues even if no consumer reads them (ADR 0023).

Rules of this file: a turn examines a bounded number of entries, and none while its batch is large already. Entries that
a consumer holds stay with it. A queue that a subscription takes by sequence keeps expired entries until the
subscription has advanced, because a range must always contain the same messages. A message in transit becomes a
tombstone, and one that waits for an earlier number is finished, so that no destination waits for their numbers.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.broker import rewriting
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.wheel import BLOCK_BITS, BLOCK_COUNT, STEP_S_MAX, due_s
from holdfast.broker.entries.work import RETIRES_MAX, Work
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.dead_lettering import make_tombstone
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns

STEP_COST: Final = 1_000
"""The work of one turn: an entry costs 1, so do 4 KiB of entries, and a visit to the store costs VISIT_COST."""

VISIT_COST: Final = 20
COST_BYTES: Final = 4_096

PAUSE_S: Final = 0.02
"""Seconds between two turns that found nothing to drop, if there is more to examine."""

AGAIN_S: Final = 2
"""Seconds until entries are tried again that could not leave, because their queue was stopped or the disk had no
room."""

WALL_S: Final = 10.0
"""How often the wall clock is compared with the steady one while a message expires at a wall time."""

JUMP_MS: Final = 500
"""By how much the wall clock must have moved against the steady one before such messages are examined again."""

TIMER_S: Final = 0.001
"""A deadline lies this much behind its second, because the steady clock counts whole milliseconds."""


class Scan(NamedTuple):
    """A queue's entries from `first` on, below `end`, that are still to be examined."""

    queue: Queue
    first: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class UnhideExpired(Effect):
    """Expired entries are off the disk, and need no longer be hidden. `gone`: (queue id, sequences)."""

    gone: list[tuple[int, list[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class CountExpired(Effect):
    """Entries in custody have ended, or are examined again."""

    queue_id: int
    sequences: list[int]


class Expiry:
    """The expiry of one node's entries."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        room: Room,
        destination: Destination,
        *,
        may_expire: Callable[[object], bool],
    ) -> None:
        """`may_expire`: whether entries acquired by that consumer may expire, because it is a hop whose session is
        lost. The next session says which of them the neighbour stored; the others are sent as tombstones."""
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._work = work
        self._room = room
        self._destination = destination
        self._lets_go = may_expire
        self._started_at, self._steady_at_start_ms = clock.now, clock.steady_ms
        self._scan: Scan | None = None
        self._unread: deque[Scan] = deque()
        """Entries from before this start, for which it is not known when they expire."""
        self._not_before = clock.now
        self._ahead_ms = clock.wall_ms - clock.steady_ms
        """By how much the wall clock is ahead of the steady one, as far as it is followed."""
        self._wall_due = clock.now
        turns.effects.on(UnhideExpired, self._unhide)
        turns.effects.on_decided(CountExpired, self._decided)
        for queue in catalog.queues.values():
            if queue.timed is not None:
                self._unread.append(Scan(queue, queue.timed[0], min(queue.timed[1], queue.next_sequence)))

    def next_deadline(self) -> float | None:
        if len(self._work.batch.retires) >= RETIRES_MAX:
            return None  # asked again when the commit under way is done
        due = self._next_look()
        return due if due is None or not self._work.wheel.walled else min(due, self._wall_due)

    def _next_look(self) -> float | None:
        if self._scan is not None or self._unread:
            return self._not_before
        first = self._work.wheel.first_s()
        if first is None:
            return None
        due = self._started_at + (first * 1000 - self._steady_at_start_ms) / 1000 + TIMER_S
        return max(due, self._not_before)

    def forget(self, queue: Queue) -> None:
        """The queue is deleted."""
        self._work.wheel.forget(queue)
        self._unread = deque(scan for scan in self._unread if scan.queue is not queue)
        if self._scan is not None and self._scan.queue is queue:
            self._scan = None

    def tick(self, now: float) -> None:
        """Does one turn's share."""
        batch = self._work.batch
        if self._work.wheel.walled and now >= self._wall_due:
            self._follow_wall(now)
        if now < self._not_before or len(batch.retires) >= RETIRES_MAX:
            return
        leaving: set[tuple[int, int]] | None = None
        gone: list[tuple[int, list[int]]] = []
        left = STEP_COST
        while left > 0 and (scan := self._scan or self._next()) is not None:
            if leaving is None:
                leaving = {*batch.retires, *self._work.retires_in_flight, *self._work.moved}
            left -= self._look(scan, leaving, gone)
        more = self._scan is not None or bool(self._unread)
        self._not_before = now + PAUSE_S if more and not gone else now

    def _follow_wall(self, now: float) -> None:
        """If the wall clock was set, examines messages again that expire by it."""
        self._wall_due = now + WALL_S
        ahead_ms = self._clock.wall_ms - self._clock.steady_ms
        if abs(ahead_ms - self._ahead_ms) < JUMP_MS:
            return
        self._ahead_ms = ahead_ms
        for queue in self._work.wheel.walled:
            blocks = sorted(queue.expiring)
            if not queue.config.durable:  # a scan of memory has one block
                for block in blocks:
                    self._work.wheel.note(queue, block << BLOCK_BITS, self._clock.steady_ms // 1000)
            elif blocks:
                others = [scan for scan in self._unread if scan.queue is not queue]
                first = min([blocks[0] << BLOCK_BITS, *(scan.first for scan in self._unread if scan.queue is queue)])
                end = max([(blocks[-1] + 1) << BLOCK_BITS, *(s.end for s in self._unread if s.queue is queue)])
                self._unread = deque([*others, Scan(queue, first, end)])

    def _next(self) -> Scan | None:
        found = self._work.wheel.take(self._clock.steady_ms // 1000)
        if found is not None:
            queue, block = found
            self._scan = Scan(queue, block << BLOCK_BITS, (block + 1) << BLOCK_BITS)
        elif self._unread:
            self._scan = self._unread.popleft()
        return self._scan

    def _look(self, scan: Scan, leaving: set[tuple[int, int]], gone: list[tuple[int, list[int]]]) -> int:
        """Continues a scan by one visit to the store; returns its cost."""
        queue = scan.queue
        if queue.taken_by is not None or queue.stopped:
            later = self._clock.steady_ms // 1000 + (AGAIN_S if queue.stopped else STEP_S_MAX)
            end = min(scan.end, scan.first + STEP_COST * BLOCK_COUNT)
            for sequence in range(scan.first, end, BLOCK_COUNT):
                self._work.wheel.note(queue, sequence, later)
            self._scan = scan._replace(first=end) if end < scan.end else None
            return VISIT_COST + (end - scan.first) // BLOCK_COUNT
        found, ended = _entries(queue, scan)
        size = sum([len(value) for _, value in found])
        expired = [item for item in found if self._is_over(queue, *item, leaving)]
        if expired and queue.holds_custody:
            self._end_in_custody(queue, expired)
        elif expired:
            if not gone:  # before anything is hidden, which then is for no longer than its batch needs
                self._turns.gathered.then.append(UnhideExpired(self._turns.event, gone))
            hidden = queue.queue_id, [sequence for sequence, _ in expired]
            queue.drop_expired_all(expired)
            gone.append(hidden)
        if not ended and found[-1][0] + 1 < scan.end:
            self._scan = scan._replace(first=found[-1][0] + 1)
        else:
            self._scan = None
            if queue.visible < min(scan.end, queue.next_sequence):  # the rest of the block is not on disk yet
                self._work.wheel.note(queue, queue.visible, self._clock.steady_ms // 1000 + 1)
            self._ended(queue)
        return VISIT_COST + len(found) + size // COST_BYTES

    def _is_over(self, queue: Queue, sequence: int, value: bytes, leaving: set[tuple[int, int]]) -> bool:
        """Whether the entry has expired; notes when it will if not."""
        if value[12:20] == entry.NEVER or (queue.in_transit and not value[1] & entry.CUSTODY):
            return False
        clock = self._clock
        if not queue.expired(value):
            expires_ms = packed.end_of(value, clock.steady_ms, clock.wall_ms)
            if value[1] & entry.EXPIRES_AT:
                self._work.wheel.walled[queue] = None
            waited_ms = max(0, clock.wall_ms - packed.enqueued_ms_of(value))
            ttl_ms = expires_ms - clock.steady_ms + waited_ms
            self._work.wheel.note(queue, sequence, due_s(expires_ms, ttl_ms))
            return False
        acquired = [cursor.acquired[sequence] for cursor in queue.cursors if sequence in cursor.acquired]
        if (queue.queue_id, sequence) in leaving or not all(self._lets_go(item.consumer) for item in acquired):
            self._work.wheel.note(queue, sequence, clock.steady_ms // 1000 + STEP_S_MAX)  # it may come back
            return False
        return True

    def _end_in_custody(self, queue: Queue, found: list[tuple[int, bytes]]) -> None:
        """Ends expired messages in custody, whose numbers a destination may wait for: a tombstone replaces one in
        transit."""
        done: list[int] = []
        for sequence, value in found:
            if queue.in_transit:
                stone = make_tombstone(entry.unpack(value), self._clock.wall_ms)
                ended = self._room.has(len(stone), forwarding=True)
                if ended:
                    rewriting.replace(queue, sequence, value, stone, self._turns.gathered.rewritten)
            else:
                ended = self._destination.expire(queue, sequence, value)
            if ended:
                done.append(sequence)
            else:
                self._work.wheel.note(queue, sequence, self._clock.steady_ms // 1000 + AGAIN_S)
        if done:
            self._turns.gathered.decided.append(CountExpired(self._turns.event, queue.queue_id, done))

    def _decided(self, effect: CountExpired, stored: bool) -> None:
        """The turn in which they ended is on disk, or was undone."""
        queue, sequences = self._catalog.by_id.get(effect.queue_id), effect.sequences
        if queue is None:
            return
        if stored:
            queue.expired_total += len(sequences)
        else:
            first, end = queue.timed or (sequences[0], sequences[-1] + 1)
            queue.set_timed((min(first, sequences[0]), max(end, sequences[-1] + 1)))
            queue.look_again(sequences)

    def _unhide(self, effect: UnhideExpired) -> None:
        """They have left the disk."""
        for queue_id, sequences in effect.gone:
            queue = self._catalog.by_id.get(queue_id)
            if queue is not None:
                queue.hidden.difference_update(sequences)

    def _ended(self, queue: Queue) -> None:
        """If no entry with a time to live is left, a restart need not examine the queue."""
        if queue.expiring or any(scan.queue is queue for scan in self._unread):
            return
        self._work.wheel.walled.pop(queue, None)
        if queue.timed is not None:
            queue.set_timed(None)


def _entries(queue: Queue, scan: Scan) -> tuple[list[tuple[int, bytes]], bool]:
    """The next entries to examine, at most a block and at least one entry; and whether they are the last."""
    if not queue.config.durable:
        ephemeral = queue.ephemeral
        end = min(scan.end, queue.visible)  # what a scan of memory has is one block
        return [(sequence, ephemeral[sequence]) for sequence in range(scan.first, end) if sequence in ephemeral], True
    found = queue.read(scan.first, count_max=min(BLOCK_COUNT, scan.end - scan.first), bytes_max=READ_BYTES)
    ended = not found or found[-1][0] >= scan.end - 1
    while found and found[-1][0] >= scan.end:
        found.pop()
    return found, ended
