"""A set of bindings as one node holds it, what differs between two, and its parts by the hashes of its rows.

Rules of this file: values; a set is never changed, another takes its place. Source: docs/adr/0079.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import Final, NamedTuple

from holdfast.federation.rows import (
    DIGEST_END,
    EVERYTHING,
    HASH_DIGITS,
    VOID,
    Row,
    Stamp,
    digest_of,
    edge_hash,
    row_hash,
)

BRANCHING: Final = 16
"""The number of parts in a part: one for each digit."""

STEPS_MAX: Final = 64
"""The maximum number of changes by which a set knows earlier forms of itself: so many versions a follower may be behind
before it has to compare parts. A set has no more of them than rows, or STEPS_FEW."""

STEPS_FEW: Final = 8

STEPS_ROWS: Final = 64
"""The number of rows that these changes may have together, however few the set has."""

SET_BYTES: Final = 1_024
EDGE_BYTES: Final = 128
"""The estimated memory of a set without its rows, and of each of its edges."""


class Key(NamedTuple):
    """Identifies a set: its origin and its topic."""

    origin: str
    topic: str


class Edition(NamedTuple):
    """Identifies one form of a set."""

    stamp: Stamp
    digest: int


NOTHING: Final = Edition(VOID, 0)


class Step(NamedTuple):
    """A change of a set's rows. `form`, `edition`, `edges`: of what it was made from."""

    form: int
    edition: Edition
    edges: frozenset[str]
    add: frozenset[Row]
    remove: frozenset[Row]


_forms = count(1)


@dataclass(frozen=True, slots=True)
class Held:
    """`edges`: the neighbours to which the origin forwards the topic by dynamic entries. `taken`: the digest that the
    parent said; another than `digest` only where `#` stands for rows that do not fit here. `marked`: the rows that have
    bits: summaries, and what the origin sends on by static entries. `form`: sets with the same one have the same rows;
    `steps`: the last changes that led to these rows, so that `difference` costs what changed."""

    stamp: Stamp
    rows: frozenset[Row]
    edges: frozenset[str]
    digest: int
    taken: int
    bytes: int = field(compare=False)
    marked: frozenset[Row] = field(compare=False)
    form: int = field(default_factory=lambda: next(_forms), compare=False)
    steps: tuple[Step, ...] = field(default=(), compare=False)
    """They have no more rows together than the set, or STEPS_ROWS: its estimated memory, `bytes`, includes them."""

    @property
    def edition(self) -> Edition:
        """The edition that its followers are sent."""
        return Edition(self.stamp, self.digest)

    @property
    def source(self) -> Edition:
        """The edition that its parent has."""
        return Edition(self.stamp, self.taken)

    @property
    def is_whole(self) -> bool:
        return self.digest == self.taken


def make(stamp: Stamp, rows: Iterable[Row], edges: Iterable[str]) -> Held:
    kept, ends = frozenset(rows), frozenset(edges)
    digest = digest_of(kept, ends)
    return Held(stamp, kept, ends, digest, digest, held_bytes(kept, ends), _marked(kept))


def held_bytes(rows: Iterable[Row], edges: Collection[str]) -> int:
    """The estimated memory of a set."""
    return SET_BYTES + EDGE_BYTES * len(edges) + sum(row.held_bytes for row in rows)


def _marked(rows: Iterable[Row]) -> frozenset[Row]:
    return frozenset(row for row in rows if row.bits)


def changed(held: Held, stamp: Stamp, *, add: Iterable[Row], remove: Iterable[Row], edges: frozenset[str]) -> Held:
    """As `make`, from a set that is nearly the same."""
    add, remove = frozenset(add) - held.rows, frozenset(remove) & held.rows
    digest = held.digest + sum(map(edge_hash, edges - held.edges)) - sum(map(edge_hash, held.edges - edges))
    size = held.bytes + EDGE_BYTES * (len(edges) - len(held.edges))
    if not add and not remove:
        digest %= DIGEST_END
        return replace(held, stamp=stamp, edges=edges, digest=digest, taken=digest, bytes=size)
    digest = (digest + sum(map(row_hash, add)) - sum(map(row_hash, remove))) % DIGEST_END
    size += sum(row.held_bytes for row in add) - sum(row.held_bytes for row in remove)
    rows = held.rows | add if add else held.rows
    rows = rows - remove if remove else rows
    steps = (*held.steps, Step(held.form, held.edition, held.edges, add, remove))
    steps = steps[-min(STEPS_MAX, max(STEPS_FEW, len(rows))) :]
    while sum(len(step.add) + len(step.remove) for step in steps) > max(STEPS_ROWS, len(rows)):
        steps = steps[1:]
    return Held(stamp, rows, edges, digest, digest, size, (held.marked | _marked(add)) - remove, steps=steps)


def difference(old: Held | None, new: Held | None) -> tuple[Collection[Row], Collection[Row]]:
    """The rows that `new` has and `old` has not, and those that `old` alone has. If one comes from the other by a few
    changes, it costs what these changed."""
    if old is None or new is None:
        return (() if new is None else new.rows), (() if old is None else old.rows)
    steps = steps_from(old.form, new)
    return together(steps) if steps is not None else (new.rows - old.rows, old.rows - new.rows)


def steps_from(form: int, held: Held) -> Sequence[Step] | None:
    """The changes that led from an earlier form of the set to this one; None if they are not known."""
    if form == held.form:
        return ()
    for at in range(len(held.steps) - 1, -1, -1):
        if held.steps[at].form == form:
            return held.steps[at:]
    return None


def together(steps: Sequence[Step]) -> tuple[Set[Row], Set[Row]]:
    """What changes, one after the other, come to. No row is in both of one change."""
    if len(steps) == 1:
        return steps[0].add, steps[0].remove
    add: set[Row] = set()
    remove: set[Row] = set()
    for step in steps:
        add |= step.add - remove
        remove -= step.add
        remove |= step.remove - add
        add -= step.remove
    return add, remove


def stamped(held: Held, stamp: Stamp) -> Held:
    return replace(held, stamp=stamp)


def bounded(held: Held, rows_max: int) -> Held:
    """The set; `#` in place of its rows where these are more than a set may have."""
    return held if len(held.rows) <= rows_max else make(held.stamp, [EVERYTHING], held.edges)


def substitute(stamp: Stamp, edges: frozenset[str], taken: int) -> Held:
    """A substitute for a set that does not fit here. It matches more, and is never refused."""
    made = make(stamp, [EVERYTHING], edges)
    return replace(made, taken=taken)


def is_sound(held: Held) -> bool:
    """Whether a digest that differs from the set's own is explained by a substitute."""
    return held.is_whole or held.rows == frozenset([EVERYTHING])


class Parts:
    """The rows of a set by the hexadecimal digits of their hashes: the number of rows with the same prefix, and their
    sum. O(n log n) to make, O(log n) to ask."""

    __slots__ = ("_hashes", "_rows", "_sums")

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = sorted(rows, key=row_hash)
        self._hashes = [row_hash(row) for row in self._rows]
        self._sums = [0, *accumulate(self._hashes)]

    def _span(self, prefix: str) -> tuple[int, int]:
        low = int(prefix.ljust(HASH_DIGITS, "0"), 16)
        end = low + 16 ** (HASH_DIGITS - len(prefix))
        return bisect_left(self._hashes, low), bisect_left(self._hashes, end)

    def count(self, prefix: str) -> int:
        first, end = self._span(prefix)
        return end - first

    def rows(self, prefix: str) -> Sequence[Row]:
        first, end = self._span(prefix)
        return self._rows[first:end]

    def digest(self, prefix: str) -> int:
        first, end = self._span(prefix)
        return (self._sums[end] - self._sums[first]) % DIGEST_END

    def digests(self, prefix: str) -> tuple[int, ...]:
        """The digests of the parts with one more digit."""
        return tuple(self.digest(f"{prefix}{digit:x}") for digit in range(BRANCHING))
