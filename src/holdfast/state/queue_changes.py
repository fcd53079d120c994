"""Changes of queues by a turn: stored with it, shown once it is on disk, reverted if it is undone.

Rules of this file: numbers are given back, moved copies return to where they were, and retirements stay
(docs/adr/0019).
"""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from heapq import heappush
from typing import Final

from holdfast.accounts import Account
from holdfast.broker import rewriting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.entries import packed
from holdfast.broker.entries.entry_log import ENTRY_BYTES
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.records import FAILURES, split_cursor_key
from holdfast.engine.port import Batch
from holdfast.peers.limits.memory import Memory
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turn, Turns, Undone

STAYING_KINDS: Final = b"rnmouw"
"""Of rows in table `custody`, those that no append needs: what a turn that is undone said there is true all the same.
Receipts, stores of neighbours, marks that passed, stores that were replaced, whose numbers they are, renewals."""

Suspended = Callable[[], Iterable[tuple[object, Container[int] | None]]]
"""Of consumers that are gone: (consumer, sequences) that are kept for a consumer that is gone; None: all of them."""


class QueueChanges:
    """The participant for all queues, their cursors and their rows."""

    def __init__(self, catalog: Catalog, turns: Turns, work: Work[Queue], memory: Memory) -> None:
        self._catalog = catalog
        self._turns = turns
        self._work = work
        self._suspended: list[Suspended] = []
        self._count_memory(memory)

    def _count_memory(self, memory: Memory) -> None:
        """Registers queues and cursors as holders in the accounts of memory."""
        queues = self._catalog.queues

        def of_cursors(account: Account, size: Callable[[Cursor], int]) -> None:
            memory.held_in(account, lambda: sum(size(cursor) for queue in queues.values() for cursor in queue.cursors))

        of_cursors(memory.read_ahead.account, lambda cursor: cursor.read_ahead_bytes)
        of_cursors(memory.ranges, lambda cursor: cursor.counted_bytes)
        of_cursors(memory.withheld.aside, lambda cursor: cursor.counted_aside)
        of_cursors(memory.withheld.given_back, lambda cursor: cursor.exclusions.counted_given_back)
        of_cursors(memory.withheld.excluded, lambda cursor: cursor.exclusions.counted_excluded)
        of_cursors(memory.withheld.ready, lambda cursor: cursor.counted_ready)
        memory.held_in(
            memory.cached, lambda: sum(len(value) for queue in queues.values() for value in queue.cache.values())
        )
        for account in (memory.queues, memory.dynamic):
            memory.held_in(account, partial(self._in_memory, account))

    def _in_memory(self, account: Account) -> int:
        mine = (queue for queue in self._catalog.queues.values() if queue.memory is account)
        return sum(queue.bytes_held + ENTRY_BYTES * queue.messages for queue in mine)

    # ------------------------------------------------------------------------------------------------ stored

    def before_commit(self, turn: Turn) -> None:
        work = self._work
        turn.visible = [(queue, queue.next_sequence) for queue in work.dirty_counters]
        turn.watermarks, turn.counts = self._catalog.rows.put()
        if turn.rewritten:  # appends are applied last: an entry that left after it was rewritten would come back
            gone = {(queue.queue_id, sequence) for queue, sequence in turn.rewritten}.intersection(
                [*turn.batch.retires, *work.moved]
            )
            turn.batch.appends[:] = [item for item in turn.batch.appends if item[:2] not in gone]

    def committed(self, turn: Turn) -> None:
        latest = self._work.rewritten
        for (queue, sequence), value in turn.rewritten.items():
            if latest.get((queue.queue_id, sequence)) is value:
                del latest[queue.queue_id, sequence]
        for queue, sequence in turn.visible:
            if self._catalog.has(queue):
                queue.show_up_to(sequence)
        for cursor, sequences in turn.counts:
            if isinstance(cursor.counts, DeliveryCounts):
                cursor.counts.stored(sequences)
                if self._catalog.has_cursor(cursor):
                    cursor.queue.touch()
        for cursor, watermark in turn.watermarks:
            cursor.is_stored = True
            cursor.watermark_stored = max(
                cursor.watermark_stored, min(watermark, cursor.watermark)
            )  # a stop takes watermarks back
            if self._catalog.has(cursor.queue):
                cursor.queue.touch()

    # ------------------------------------------------------------------------------------------------ undone

    def undo(self, undone: Undone) -> None:
        work, turns = self._work, undone.turns
        oldest_first = turns[::-1]
        referred = [*(item for turn in oldest_first for item in turn.referred), *work.referred]
        undone.lost = self._undo_unstored(referred)
        work.referred = []
        never = {(queue.queue_id, sequence) for queue, sequence, _ in referred}  # no blob knows these places
        left = [*(place for turn in oldest_first for place in turn.left), *work.left]
        work.left = [place for place in left if place not in never]
        retry = self._turns.gathered.batch
        for turn in turns:  # the older snapshot is put back last
            self._undo(turn, retry)
        self._undo_rewritten(oldest_first, retry)

    def _undo_unstored(self, referred: list[tuple[Queue, int, int]]) -> dict[Queue, None]:
        """Entries of queues in memory stay, except large messages, whose bytes are not on disk. Returns the queues of
        these; everything that came for them in the turn is refused, and small messages may be duplicated by that."""
        lost: dict[Queue, None] = {}
        for queue, sequence, _ in referred:
            if not queue.config.durable and self._catalog.has(queue):
                value = queue.ephemeral.pop(sequence, None)
                if value is not None:
                    queue.undo(sequence, value)
                    queue.count_memory()
                    lost[queue] = None
        return lost

    def _undo(self, turn: Turn, retry: Batch) -> None:
        """Reverts the turn; retirements, and rows that no append needs, are added to `retry`."""
        batch, catalog = turn.batch, self._catalog
        by_id = catalog.by_id
        for queue_id, sequence, value in batch.appends:
            queue = by_id.get(queue_id)
            if queue is not None:
                if (queue, sequence) not in turn.rewritten:
                    queue.undo(sequence, value)
                queue.touch_counters()
        for queue, _ in turn.visible:  # entries in memory stay, and their numbers too, over all retries
            if (not queue.config.durable or queue.visible < queue.next_sequence) and catalog.has(queue):
                queue.touch_counters()
        for cursor, _ in turn.watermarks:  # requested again, otherwise the cursor waits for it for ever
            if catalog.has(cursor.queue):
                cursor.queue.touch_counters()
        for cursor, sequences in turn.counts:
            if isinstance(cursor.counts, DeliveryCounts) and catalog.has_cursor(cursor):
                cursor.counts.changed |= sequences
                cursor.queue.touch_counters()
        moved = {(queue.queue_id, sequence) for queue, sequence, _ in turn.moves}
        retry.retires += [item for item in batch.retires if item not in moved and item not in turn.tied]
        self._undo_moves(turn, retry)
        self._undo_tied(turn)
        gone = set(retry.deletes)  # of the turn gathered after this one: its deletions stay
        reverted = ("windows", "bindings")
        retry.deletes += [place for place in batch.deletes if place[0] not in reverted]  # with their consequences
        for (table, key), record in batch.puts.items():
            if (table, key) in gone or (table == "node" and key[:1] == FAILURES):  # as memory has them by then
                continue
            if table in ("queues", "node") or (table == "custody" and key[:1] in STAYING_KINDS):
                retry.puts.setdefault((table, key), record)
        for table, key in batch.puts:
            if table == "subscriptions":
                queue_id, name = split_cursor_key(key)
                queue = by_id.get(queue_id)
                if queue is not None and (
                    name in queue.named or (not name and (queue.shared.tracked or queue.sweeping))
                ):
                    queue.dirty(queue.named.get(name, queue.shared))

    def _undo_moves(self, turn: Turn, retry: Batch) -> None:
        """Moved entries are in their queues again; if such a queue was deleted since, they leave with its other
        entries."""
        back: dict[Queue, list[int]] = {}
        for queue, sequence, value in turn.moves:
            if not self._catalog.has(queue):
                retry.retires.append((queue.queue_id, sequence))
                continue
            queue.messages += 1
            queue.bytes_held += packed.size_of(value)
            back.setdefault(queue, []).append(sequence)
        for queue, sequences in back.items():
            _requeue(queue, sequences, turn.failures)
            queue.touch_counters()
            queue.touch()

    def _undo_tied(self, turn: Turn) -> None:
        """Entries that were tied to the turn return to their holders."""
        for (queue_id, sequence), tied in turn.tied.items():
            queue = self._catalog.by_id.get(queue_id)
            if queue is None:
                continue
            queue.messages += 1
            queue.bytes_held += tied.size
            tied.cursor.acquired[sequence] = Acquired(tied.consumer, tied.size)
            if sequence >= tied.cursor.position:
                tied.cursor.ahead.add(sequence)
            if tied.failures is not None:
                tied.cursor.counts[sequence] = tied.failures
            queue.touch_counters()
            _reopen(queue, tied.cursor, sequence)

    def _undo_rewritten(self, turns: tuple[Turn, ...], retry: Batch) -> None:
        """Entries that `turns`, the oldest first, rewrote get the value of the commit that stays, or of the store.
        Entries that leave all the same leave with their earlier size."""
        last = {place: value for turn in turns for place, value in turn.rewritten.items()}
        in_flight = self._turns.in_flight
        kept = {} if in_flight is None else in_flight.rewritten
        self._work.rewritten = {(queue.queue_id, sequence): value for (queue, sequence), value in kept.items()}
        gone = set(retry.retires) if last else set()
        for (queue, sequence), value in last.items():
            if not self._catalog.has(queue):
                continue
            queue.uncache(sequence)
            before = queue.value(sequence)
            if before is not None and (queue.queue_id, sequence) not in gone:
                rewriting.replace(queue, sequence, value, before)

    # ------------------------------------------------------------------------------------------------ recovered

    def suspended_by(self, find: Suspended) -> None:
        """Registers a holder of entries for consumers that are gone."""
        self._suspended.append(find)

    def suspended(self) -> dict[int, Container[int] | None]:
        """The consumers that are gone and have such entries, by id."""
        return {id(consumer): sequences for find in self._suspended for consumer, sequences in find()}

    def recover(self) -> None:
        """Entries that are acquired by consumers that are gone, and are not kept for them, are offered again."""
        suspended = self.suspended()
        for queue in self._catalog.queues.values():
            for cursor in queue.cursors:
                cursor.recover()
                here = set(map(id, cursor.consumers))
                lost = [
                    number
                    for number, item in cursor.acquired.items()
                    if id(item.consumer) not in here
                    and (held := suspended.get(id(item.consumer), ())) is not None
                    and number not in held
                ]
                cursor.requeue(lost, failed=True)
                queue.look_again(cursor.requeued)
            if queue.memory is not None:
                queue.counted_bytes = queue.bytes_held + ENTRY_BYTES * queue.messages


def _requeue(queue: Queue, sequences: list[int], failures: Mapping[tuple[int, int], int]) -> None:
    """Entries that were moved elsewhere return to their places. The cursor finds those ahead of it by itself; no cursor
    reads `$waiting`. A transmission queue offers nothing while entries ahead of its cursor are being moved."""
    cursor = queue.shared
    if queue.kind in (QueueKind.WAITING, QueueKind.DELAYED):
        return
    below = [sequence for sequence in sequences if sequence < cursor.position]
    known = {*cursor.acquired, *cursor.requeued} if below else set()  # of these their consumer gives them back
    for sequence in below:
        if sequence not in known:
            known.add(sequence)
            heappush(cursor.requeued, sequence)
        cursor.counts.setdefault(sequence, failures.get((queue.queue_id, sequence), 1))
    for sequence in sequences:
        if sequence >= cursor.position and (queue.queue_id, sequence) in failures:  # it had been handed out ahead
            cursor.counts.setdefault(sequence, failures[queue.queue_id, sequence])
        _reopen(queue, cursor, sequence)
    queue.look_again(below)
    cursor.freed(sequences)


def _reopen(queue: Queue, cursor: Cursor, sequence: int) -> None:
    """If the cursor began to remember finished entries while this entry was leaving, the entry is not finished; if it
    began and ended meanwhile, the entry is not swept."""
    if not (cursor.tracked or queue.sweeping):
        return
    queue.keep_unswept(sequence)
    if sequence < cursor.floor:
        if sequence + 1 < cursor.floor:
            cursor.finished.add(sequence + 1, cursor.floor - 1)
        cursor.floor = sequence
    elif sequence in cursor.finished:
        cursor.finished.remove(sequence)
    queue.reclaim_from = min(queue.reclaim_from, sequence)
    queue.dirty(cursor)
