"""Requeues the entries of links that ended, a bounded number in each turn.

Rules of this file: the entries of most links are requeued at once. Entries that wait here still count as held by their
link: no other consumer gets them, and a restart offers them again. A connection may have held millions: only the
cursors that these are of wait for the end of that, and hand out nothing, since it would come before them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.state.catalog import Catalog

GIVEN_BACK_MAX: Final = 10_000
"""Entries that are requeued in one turn: some 10 ms."""


@dataclass(slots=True)
class Return:
    """`sequences`: the rest, in order; those that the consumer no longer holds are skipped. `find`: finds them when
    their turn has come, if that was not done yet."""

    consumer: EntryConsumer
    cursor: Cursor
    sequences: deque[int]
    failed: bool
    find: Callable[[], list[int]] | None = None

    def remaining(self) -> deque[int]:
        """The sequences still to be given back; the caller removes those that it gives back."""
        if self.find is not None:
            self.sequences, self.find = deque(self.find()), None
        return self.sequences


class Returns:
    """Requeues the entries of links that ended, a bounded number each turn."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.waiting: deque[Return] = deque()
        self._left = GIVEN_BACK_MAX

    @property
    def pending(self) -> bool:
        """Whether `step` is to be called in this turn."""
        return bool(self.waiting) or self._left < GIVEN_BACK_MAX

    def requeue(self, consumer: EntryConsumer, cursor: Cursor, sequences: list[int], *, failed: bool) -> None:
        """Requeues those of these entries that `consumer`, whose link has ended, still holds. `failed`: as
        `Cursor.requeue`."""
        if sequences and (self.waiting or len(sequences) > self._left):
            self._wait(Return(consumer, cursor, deque(sequences), failed))
        elif sequences:
            self._left -= len(sequences)
            self._back(consumer, cursor, sequences, failed)

    def requeue_found(
        self, consumer: EntryConsumer, cursor: Cursor, find: Callable[[], list[int]], held: int, *, failed: bool
    ) -> None:
        """As `requeue`. `find` returns the sequences, about `held` of them; it is called now if
        this turn has room for so many, else in a later turn."""
        if held and (self.waiting or held > self._left):
            self._wait(Return(consumer, cursor, deque(), failed, find))
        else:
            self.requeue(consumer, cursor, find(), failed=failed)

    def step(self) -> None:
        """Does this turn's share."""
        left = GIVEN_BACK_MAX
        while self.waiting and left > 0:
            item = self.waiting[0]
            left -= 1  # a link costs as much as an entry
            if self._catalog.has_cursor(item.cursor):
                sequences = item.remaining()
                some = [sequences.popleft() for _ in range(min(left + 1, len(sequences)))]
                left -= len(some)
                self._back(item.consumer, item.cursor, some, item.failed)
                if sequences:
                    break
            self._over()  # all of it went back, or its queue was deleted, with all that was in it
        self._left = max(0, left)

    def stop(self) -> None:
        """The node stops: requeues everything."""
        for item in self.waiting:
            if self._catalog.has_cursor(item.cursor):
                self._back(item.consumer, item.cursor, list(item.remaining()), item.failed)
        self.forget()

    def forget(self) -> None:
        """Others have requeued everything."""
        while self.waiting:
            self._over()

    def _wait(self, item: Return) -> None:
        item.cursor.returning += 1
        self.waiting.append(item)

    def _over(self) -> None:
        """The first of those that wait does no longer."""
        cursor = self.waiting.popleft().cursor
        cursor.returning -= 1
        if not cursor.returning and self._catalog.has_cursor(cursor):
            cursor.queue.touch()

    def _back(self, consumer: EntryConsumer, cursor: Cursor, sequences: list[int], failed: bool) -> None:
        acquired = cursor.acquired
        mine = [sequence for sequence in sequences if sequence in acquired and acquired[sequence].consumer is consumer]
        cursor.requeue(mine, failed=failed)
