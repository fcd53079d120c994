"""A node's own set of one topic: what its clients want, what it has announced, and since which version each row is.

Rules of this file: additions are announced first, removals last; a version fits one message, so that a larger change
becomes several. Source: docs/adr/0079.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from holdfast.federation.messages import BYTES_MAX, ROWS_MAX
from holdfast.federation.rows import WIDE, Row, Stamp, covers
from holdfast.federation.sets import Held, changed
from holdfast.federation.summaries import summary


@dataclass(slots=True)
class Own:
    """`rows`: what is to be announced; `edges`: the neighbours that the topic is forwarded to."""

    rows: frozenset[Row] = frozenset()
    edges: frozenset[str] = frozenset()
    since: dict[Row, Stamp] = field(default_factory=dict)
    """Of what is on disk: the version since which each row was there all the time, in this life."""
    _summary: tuple[frozenset[Row], frozenset[Row]] | None = None
    _budget: float = 0.0
    """Bytes of exact rows that may follow a summary now."""
    _budget_at: float = 0.0

    def next(self, held: Held, now: float, keys_max: int, rows_max: int, bytes_s: float) -> Held | None:
        """The next version; None where what is announced is what is wanted, or must wait (`waits_until`)."""
        add, remove = self._difference(held, now, keys_max, rows_max, bytes_s)
        edges = held.edges | self.edges
        if not add and not remove:
            if edges == self.edges == held.edges:
                return None
            edges = self.edges  # what leaves goes last
        some = _one_message(add)
        # What is added goes first; what is removed goes with the last of it, where there is room.
        less = _one_message(remove) if len(some) == len(add) else frozenset()
        if not some and not less and edges == held.edges:
            return None
        if not some and len(less) == len(remove):
            edges = self.edges
        return changed(held, Stamp(held.stamp.life, held.stamp.version + 1), add=some, remove=less, edges=edges)

    def _difference(
        self, held: Held, now: float, keys_max: int, rows_max: int, bytes_s: float
    ) -> tuple[frozenset[Row], frozenset[Row]]:
        missing, few = self.rows - held.rows, len(self.rows) <= keys_max
        if len(self.rows) <= rows_max and (few or not missing or (self._summary is None and len(missing) <= ROWS_MAX)):
            self._summary = None
            return missing, held.rows - self.rows
        if self._summary is None or self._summary[0] is not self.rows:
            self._summary = self.rows, summary(self.rows)
            self._budget, self._budget_at = 0.0, now
        wide = self._summary[1]
        if not wide <= held.rows:
            return wide - held.rows, frozenset()
        gone = held.rows - self.rows - wide
        if len(self.rows) > rows_max:
            return frozenset(), gone
        self._budget = min(BYTES_MAX, self._budget + (now - self._budget_at) * bytes_s)
        self._budget_at = now
        some = []
        for row in islice(missing, ROWS_MAX):
            if row.size > self._budget:
                break
            self._budget -= row.size
            some.append(row)
        return frozenset(some), gone

    def is_summed(self, rows_max: int) -> bool:
        """Whether exact rows still follow a summary."""
        return self._summary is not None and len(self.rows) <= rows_max

    def committed(self, old: Held | None, new: Held | None) -> None:
        """A version is on disk."""
        if new is None:
            self.since.clear()
        elif old is None or old.stamp.life != new.stamp.life:
            self.since = dict.fromkeys(new.rows, new.stamp)
        else:
            for row in old.rows - new.rows:
                self.since.pop(row, None)
            for row in new.rows - old.rows:
                self.since[row] = new.stamp

    def recount(self, held: Held | None) -> None:
        """Counts all rows from the version on disk: later than it was is safe, and heals what was corrupted."""
        self.since = {} if held is None else dict.fromkeys(held.rows, held.stamp)

    def since_of(self, row: Row) -> tuple[Row, Stamp] | None:
        """The first version from which on all that `row` wants was announced, and by which row; None where it is not
        yet."""
        found = (row, self.since[row]) if row in self.since else None
        for other, stamp in self.since.items():
            if (found is None or stamp < found[1]) and _stands_for(other, row):
                found = other, stamp
        return found


def _stands_for(other: Row, row: Row) -> bool:
    if other.predicate is not None and other.predicate != row.predicate:
        return False
    return other.pattern == row.pattern or covers(other.pattern, row.pattern)


def _one_message(rows: Iterable[Row]) -> frozenset[Row]:
    """As many as fit; those that stand for others first."""
    some: list[Row] = []
    size = 0
    for row in sorted(rows, key=lambda row: (not row.bits & WIDE, row.pattern, row.predicate or "")):
        size += row.size
        if some and (len(some) >= ROWS_MAX or size > BYTES_MAX):
            break
        some.append(row)
    return frozenset(some)
