"""Requeues the entries of links that ended, a bounded number in each turn.

Rules of this file: the entries of most links are requeued at once. Others wait in the lane of their cursor, in the
order in which the links ended. Lanes take turns: a queue waits for its own entries, however many others have. Entries
that wait still count as held by their link: no other consumer gets them, and a restart offers them again. A cursor with
a lane hands out nothing, since that would come before the entries that wait.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from sys import maxsize
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.state.catalog import Catalog

GIVEN_BACK_MAX: Final = 10_000
"""The most work of one turn, about 10 ms: each entry that is looked at counts as 1, and so does each link."""


@dataclass(slots=True)
class Return:
    """What one link still has to give back: those of `sequences` that its consumer holds, of which the first `looked`
    were looked at. `missing`: how many it holds at least besides those that were requeued."""

    consumer: EntryConsumer
    sequences: list[int]
    failed: bool
    missing: int = 0
    looked: int = 0

    def give_back(self, cursor: Cursor, most: int) -> int:
        """Looks at the next entries, at most so many, and requeues those that the consumer holds. Returns how many it
        looked at."""
        acquired = cursor.acquired
        if self.looked == len(self.sequences) and self.missing > 0:
            self.sequences, self.looked, self.missing = [*acquired], 0, 0
        some = self.sequences[self.looked : self.looked + most]
        mine = [
            sequence
            for sequence in dict.fromkeys(some)
            if sequence in acquired and acquired[sequence].consumer is self.consumer
        ]
        cursor.requeue(mine, failed=self.failed)
        self.looked += len(some)
        self.missing -= len(mine)
        return len(some)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to look at."""
        return self.looked == len(self.sequences) and self.missing <= 0


class Returns:
    """Requeues the entries of links that ended. `lanes`: what waits, by cursor, the next cursor first."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.lanes: OrderedDict[Cursor, deque[Return]] = OrderedDict()
        self._left = GIVEN_BACK_MAX

    @property
    def waiting(self) -> list[Return]:
        """All that waits."""
        return [item for lane in self.lanes.values() for item in lane]

    @property
    def pending(self) -> bool:
        """Whether `step` is to be called in this turn."""
        return bool(self.lanes) or self._left < GIVEN_BACK_MAX

    def requeue(
        self, consumer: EntryConsumer, cursor: Cursor, sequences: list[int], *, failed: bool, held: int = 0
    ) -> None:
        """Requeues those of these entries that `consumer`, whose link has ended, still holds. If it holds fewer of them
        than `held`, as after a failure, all acquired entries are searched. `failed`: as `Cursor.requeue`."""
        count = max(held, len(sequences))
        if not count:
            return
        item = Return(consumer, sequences, failed, held)
        if cursor not in self.lanes and count <= self._left:
            self._left -= count
            item.give_back(cursor, count)
            if item.is_over:
                return
        self.lanes.setdefault(cursor, deque()).append(item)
        cursor.returning = True

    def step(self) -> None:
        """Does this turn's work, in equal shares of the lanes."""
        left = GIVEN_BACK_MAX
        while self.lanes and left > 0:
            cursor = next(iter(self.lanes))
            self.lanes.move_to_end(cursor)
            left -= self._serve(cursor, min(left, max(1, GIVEN_BACK_MAX // len(self.lanes))))
        self._left = max(0, left)

    def stop(self) -> None:
        """The node stops: requeues everything."""
        while self.lanes:
            self._serve(next(iter(self.lanes)), maxsize)

    def forget(self) -> None:
        """Others have requeued everything."""
        while self.lanes:
            self._over(next(iter(self.lanes)))

    def _serve(self, cursor: Cursor, share: int) -> int:
        """Does work of the cursor's lane until it has cost `share`, or 1 more. Returns the cost."""
        lane, exists = self.lanes[cursor], self._catalog.has_cursor(cursor)
        cost = 0
        while lane and cost < share:
            if exists:  # otherwise its entries left with it
                cost += lane[0].give_back(cursor, share - cost)
                if not lane[0].is_over:
                    continue
            cost += 1
            lane.popleft()
        if not lane:
            self._over(cursor)
        return cost

    def _over(self, cursor: Cursor) -> None:
        """Removes the cursor's lane, with whatever still waits in it; the cursor hands out entries again."""
        del self.lanes[cursor]
        cursor.returning = False
        if self._catalog.has_cursor(cursor):
            cursor.queue.touch()
