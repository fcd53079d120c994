"""A node's own set of one topic: what its clients want, what it has announced, and since which version each row is.

Rules of this file: additions are announced first, removals last; a version fits one message, so that a larger change
becomes several. No version has more than `rows_max` rows: what would be more is in the summary, and what makes room for
it goes in the version that adds it, which each node takes as a whole. Source: docs/adr/0079.
"""

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final

from holdfast.broker.subjects import ANY, ONE
from holdfast.federation.messages import BYTES_MAX, ROWS_MAX
from holdfast.federation.rows import EVERYTHING, RELAY, WIDE, Row, Stamp, covers
from holdfast.federation.sets import Held, bounded, changed, difference, stamped
from holdfast.federation.summaries import SUMMARY_MAX, stands_for, summary
from holdfast.federation.wanted import Wanted

COVERING_MAX: Final = 256
"""The maximum number of rows with wildcards that are checked whether they cover another row."""

BITS: Final = (0, WIDE, RELAY, WIDE | RELAY)

SUMMARY_GAP_S: Final = 0.5
"""Seconds between two looks for exact rows that may follow a summary."""


@dataclass(slots=True)
class Own:
    """`edges`: the neighbours to which the topic is forwarded."""

    edges: frozenset[str] = frozenset()
    since: dict[Row, Stamp] = field(default_factory=dict)
    """Row on disk → the version since which it has been there continuously, in this life."""
    _wanted: Wanted = field(default_factory=Wanted)
    """The bindings to announce."""
    _wide: frozenset[Row] | None = None
    """The summary, while exact rows follow it."""
    _unlooked: list[Row] = field(default_factory=list)
    """Rows that came since it was last known to cover all."""
    _budget: float = 0.0
    """The bytes of exact rows that may follow a summary now."""
    _budget_at: float = 0.0
    _looked: tuple[int, frozenset[str], Held, float] | None = None
    """The number of the change of `_wanted`, the edges and the set for which there was nothing to announce, and until
    when this is valid."""
    _wild: dict[Row, None] = field(default_factory=dict)
    """The rows of `since` that may cover others: those whose patterns have wildcards."""

    @property
    def rows(self) -> Set[Row]:
        """The bindings to announce."""
        return self._wanted.rows

    def want(self, rows: Iterable[Row]) -> None:
        """Sets the bindings to announce."""
        self._came(self._wanted.want(rows))

    def change(self, add: Iterable[Row], remove: Iterable[Row]) -> None:
        """Changes the bindings to announce; it costs what changes."""
        self._came(self._wanted.change(add, remove))

    def _came(self, rows: list[Row]) -> None:
        if self._wide is not None:
            self._unlooked += rows

    def next(self, held: Held, now: float, keys_max: int, rows_max: int, bytes_s: float) -> Held | None:
        """The next version; None if the announced rows are the wanted ones, or the change must wait. It is called after
        every event, so a result of None is cached until something changes."""
        looked, changes = self._looked, self._wanted.changes
        if looked is not None and looked[:2] == (changes, self.edges) and looked[2] is held and now < looked[3]:
            return None
        made = self._next(held, now, keys_max, rows_max, bytes_s)
        until = now + SUMMARY_GAP_S if self.is_summed(rows_max) else float("inf")
        self._looked = (changes, self.edges, held, until) if made is None else None
        return made

    def _next(self, held: Held, now: float, keys_max: int, rows_max: int, bytes_s: float) -> Held | None:
        if len(held.rows) > rows_max:  # of an earlier version of this program, or after a fault in memory
            return bounded(stamped(held, _next_stamp(held.stamp)), rows_max)
        add, remove = self._difference(held, now, keys_max, rows_max, bytes_s)
        edges = held.edges | self.edges
        if not add and not remove:
            if edges == self.edges == held.edges:
                return None
            edges = self.edges  # what leaves goes last
        some, less = _step(add, remove)
        if not some and not less and edges == held.edges:
            return None
        if not some and len(less) == len(remove):
            edges = self.edges
        return changed(held, _next_stamp(held.stamp), add=some, remove=less, edges=edges)

    def _difference(
        self, held: Held, now: float, keys_max: int, rows_max: int, bytes_s: float
    ) -> tuple[Collection[Row], Collection[Row]]:
        wanted = self._wanted
        wanted.compare(held)
        missing, extra, count = wanted.missing, wanted.extra, len(wanted.rows)
        is_direct = count <= keys_max or not missing or (self._wide is None and len(missing) <= ROWS_MAX)
        if count <= rows_max and is_direct and _has_room(held, missing, extra, rows_max):
            self._wide = None
            return missing.keys(), extra.keys()
        wide = self._summary(now, rows_max)
        if not wide <= held.rows:
            add, remove = self._covering(held, wide, rows_max)
            if add:
                return add, remove
            wide = self._wide or wide
        gone = [row for row in extra if row not in wide]
        if count > rows_max:
            return (), gone
        self._budget = min(BYTES_MAX, self._budget + (now - self._budget_at) * bytes_s)
        self._budget_at = now
        room = rows_max - len(held.rows) + len(_one_message(gone))
        if len(missing) > room and _are_one_version(missing, extra):  # the last rows, in place of the summary
            size = sum(row.size for row in missing)
            if size <= self._budget:
                self._budget -= size
                return missing.keys(), extra.keys()
        some = []
        for row in islice(missing, min(ROWS_MAX, room)):
            if row.size > self._budget:
                break
            self._budget -= row.size
            some.append(row)
        return some, gone

    def _covering(self, held: Held, wide: frozenset[Row], rows_max: int) -> tuple[list[Row], list[Row]]:
        """What brings the summary into the set, and what makes room for it. Both must be one version: what goes is
        covered by what comes. Where they do not fit one message, `#` is the summary, which needs the room of one row;
        it stays until the exact rows are there."""
        add = sorted(wide - held.rows)
        over = len(held.rows) + len(add) - rows_max
        if over <= 0:
            return add, []
        extra = self._wanted.extra
        remove = nsmallest(over, (row for row in extra if row not in wide), _order)
        rest = (row for row in held.rows if row not in wide and row not in extra)
        remove += nsmallest(over - len(remove), rest, _order)
        if _are_one_version(add, remove):
            return add, remove
        self._wide = frozenset([EVERYTHING])
        return ([], []) if EVERYTHING in held.rows else ([EVERYTHING], remove[: max(0, len(held.rows) + 1 - rows_max)])

    def _summary(self, now: float, rows_max: int) -> frozenset[Row]:
        """The summary of all rows. It stays the same while it covers what is added."""
        wide = self._wide
        if wide is None:
            self._budget, self._budget_at = 0.0, now
        if wide is None or not stands_for(wide, self._unlooked):
            wide = summary(self._wanted.rows, min(SUMMARY_MAX, rows_max))
        self._wide, self._unlooked = wide, []
        return wide

    def is_summed(self, rows_max: int) -> bool:
        """Whether exact rows still follow a summary."""
        return self._wide is not None and len(self._wanted.rows) <= rows_max

    def committed(self, old: Held | None, new: Held | None) -> None:
        """This version is on disk."""
        if new is None:
            self.since.clear()
            self._wild.clear()
        elif old is None or old.stamp.life != new.stamp.life:
            self.recount(new)
        else:
            add, remove = difference(old, new)
            for row in remove:
                self.since.pop(row, None)
                self._wild.pop(row, None)
            for row in add:
                self.since[row] = new.stamp
                if _is_wild(row):
                    self._wild[row] = None

    def recount(self, held: Held | None) -> None:
        """Counts all rows from the version on disk. A version that is too late is safe, and this repairs corrupt
        state."""
        self.since = {} if held is None else dict.fromkeys(held.rows, held.stamp)
        self._wild = dict.fromkeys(filter(_is_wild, self.since))
        self._wanted.forget()
        self._looked = None

    def since_of(self, row: Row, kept: Set[Row], *, all_of_them: bool = True) -> tuple[Row, Stamp] | None:
        """The first version in which everything that `row` wants was announced, and the row that covers it; None if
        there is none yet. `kept`: the rows of the version that is being stored; what that one withdraws covers nothing
        that was bound since it was made. At most COVERING_MAX rows with wildcards are checked; with `all_of_them` False
        only the summary's, and the binding is then confirmed by its own row, perhaps later."""
        alike = [Row(row.pattern, predicate, bits) for predicate in {None, row.predicate} for bits in BITS]
        wide = self._wide or ()
        wild = islice(self._wild, COVERING_MAX) if all_of_them else ()
        found: tuple[Row, Stamp] | None = None
        for other in (*alike, *wide, *wild):
            stamp = self.since.get(other) if other in kept else None
            if stamp is not None and (found is None or stamp < found[1]) and _stands_for(other, row):
                found = other, stamp
        return found


def _is_wild(row: Row) -> bool:
    return ANY in row.pattern or ONE in row.pattern


def _stands_for(other: Row, row: Row) -> bool:
    if other.predicate is not None and other.predicate != row.predicate:
        return False
    return other.pattern == row.pattern or covers(other.pattern, row.pattern)


def _next_stamp(stamp: Stamp) -> Stamp:
    return Stamp(stamp.life, stamp.version + 1)


def _order(row: Row) -> tuple[int, str, str, int]:
    """The smallest first, and the same in each process."""
    return row.size, row.pattern, row.predicate or "", row.bits


def _step(add: Collection[Row], remove: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """What the next version adds and removes of this. What is added goes first; what is removed goes with the last of
    it, where there is room."""
    some = _one_message(add)
    return some, _one_message(remove) if len(some) == len(add) else []


def _has_room(held: Held, add: Collection[Row], remove: Iterable[Row], rows_max: int) -> bool:
    """Whether the set has room for the next version."""
    some, less = _step(add, remove)
    return len(held.rows) + len(some) - len(less) <= rows_max


def _are_one_version(add: Collection[Row], remove: Collection[Row]) -> bool:
    some, less = _step(add, remove)
    return len(some) == len(add) and len(less) == len(remove)


def _one_message(rows: Iterable[Row]) -> list[Row]:
    """As many rows as fit into one message."""
    some: list[Row] = []
    size = 0
    for row in rows:
        size += row.size
        if some and (len(some) >= ROWS_MAX or size > BYTES_MAX):
            break
        some.append(row)
    return some
