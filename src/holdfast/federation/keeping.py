"""The sets that a node holds: as they are on disk, as a commit under way will leave them, and as the turn has them now.

Rules of this file: nothing is said of a set but what is on disk (`committed`); what is chosen and compared is what the
turn has (`current`). A refused commit leaves everything as it was before. What is to be stored is data: `Put` and
`Drop`, whose values the AMQP codec can write.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.types import Ulong
from holdfast.federation.index import Index
from holdfast.federation.rows import Row, Stamp, row_hash
from holdfast.federation.sets import Held, Key, difference, make, substitute

SET: Final = "set"
ROW: Final = "row"

WRITES_ENOUGH: Final = 10_000
"""Rows of the store that one commit writes; the last set of them may go beyond."""


class Put(NamedTuple):
    """A row of the store, by its key."""

    key: tuple[str, ...]
    value: list[Any]


class Drop(NamedTuple):
    key: tuple[str, ...]


Write = Put | Drop


class Sets:
    """`moved`: keys whose committed form changed since the caller took this back, and how it was; `touched`: topics of
    which the current edges or origins did."""

    def __init__(self) -> None:
        self.stored: dict[Key, Held] = {}
        self.under_way: dict[Key, Held | None] | None = None
        self.staged: dict[Key, Held | None] = {}
        self.moved: dict[Key, Held | None] = {}
        self.touched: set[str] = set()
        self.bytes = 0
        self._indexes: dict[str, Index] = {}
        self._by_topic: dict[str, dict[str, None]] = {}

    # ------------------------------------------------------------------------------------------------ looking

    def current(self, key: Key) -> Held | None:
        if key in self.staged:
            return self.staged[key]
        if self.under_way is not None and key in self.under_way:
            return self.under_way[key]
        return self.stored.get(key)

    def rows(self, key: Key) -> frozenset[Row]:
        """Of the current form; none where there is none."""
        held = self.current(key)
        return frozenset() if held is None else held.rows

    def committed(self, key: Key) -> Held | None:
        return self.stored.get(key)

    def is_settled(self, key: Key) -> bool:
        """Whether the form on disk is the current one, with no change pending."""
        return key not in self.staged and (self.under_way is None or key not in self.under_way)

    def everything(self) -> list[Key]:
        return [Key(origin, topic) for topic, origins in self._by_topic.items() for origin in origins]

    def origins(self, topic: str) -> Set[str]:
        return self._by_topic.get(topic, {}).keys()

    def topics(self) -> Iterable[str]:
        return self._by_topic.keys()

    def edges(self, topic: str) -> dict[str, frozenset[str]]:
        """Of each origin."""
        found = {}
        for origin in self.origins(topic):
            held = self.current(Key(origin, topic))
            if held is not None:
                found[origin] = held.edges
        return found

    def index(self, topic: str, own: str) -> Index:
        """Of all origins but `own`."""
        index = self._indexes.get(topic)
        if index is None:
            found = ((origin, self.current(Key(origin, topic))) for origin in self.origins(topic) if origin != own)
            index = self._indexes[topic] = Index((origin, held.rows) for origin, held in found if held is not None)
        return index

    def compare(self, key: Key) -> None:
        """If the index of the set's topic differs from the set, it is rebuilt at the next query."""
        index, held = self._indexes.get(key.topic), self.current(key)
        if index is not None and not index.has(key.origin, () if held is None else held.rows):
            del self._indexes[key.topic]

    def rebuild(self) -> None:
        """Rebuilds what is derived from the sets."""
        self._indexes.clear()
        self.recount()

    def recount(self) -> None:
        """As `rebuild`, but of indexes only those that have rows of nobody: `compare` has seen to the others."""
        self._by_topic = {}
        self.bytes = 0
        for key in dict.fromkeys([*self.stored, *(self.under_way or ()), *self.staged]):
            held = self.current(key)
            if held is not None:
                self._by_topic.setdefault(key.topic, {})[key.origin] = None
                self.bytes += held.bytes
                self.touched.add(key.topic)
        for topic in [topic for topic, index in self._indexes.items() if index.origins() - self.origins(topic)]:
            del self._indexes[topic]

    # ------------------------------------------------------------------------------------------------ changing

    def put(self, key: Key, held: Held) -> None:
        self._note(key, self.current(key), held)
        self.staged[key] = held

    def drop(self, key: Key) -> None:
        self._note(key, self.current(key), None)
        self.staged[key] = None

    def _note(self, key: Key, old: Held | None, new: Held | None) -> None:
        self.bytes += (new.bytes if new is not None else 0) - (old.bytes if old is not None else 0)
        if new is None:
            self._by_topic.get(key.topic, {}).pop(key.origin, None)
            if not self._by_topic.get(key.topic, True):
                del self._by_topic[key.topic]
        else:
            self._by_topic.setdefault(key.topic, {})[key.origin] = None
        if old is None or new is None or old.edges != new.edges:
            self.touched.add(key.topic)
        index = self._indexes.get(key.topic)
        if index is not None:
            add, remove = difference(old, new)
            index.change(key.origin, (*add, *_kept(new, remove)), remove)

    # ------------------------------------------------------------------------------------------------ the disk

    @property
    def has_records(self) -> bool:
        return bool(self.staged) and self.under_way is None

    def records(self) -> list[Write]:
        """What the commit that begins now is to write: of many sets the first. One commit is under way at a time."""
        assert self.under_way is None, "a commit of sets is under way"
        writes: list[Write] = []
        taken: dict[Key, Held | None] = {}
        for key, held in self.staged.items():
            if len(writes) >= WRITES_ENOUGH:
                break
            writes += _difference(key, self.stored.get(key), held)
            taken[key] = held
        rest = {key: held for key, held in self.staged.items() if key not in taken}
        self.under_way, self.staged = taken, rest  # from here on nothing is called that could fail
        return writes

    @property
    def rows_under_way(self) -> int:
        """How many rows the sets have that the commit under way writes."""
        return sum(len(held.rows) for held in (self.under_way or {}).values() if held is not None)

    def commit(self) -> None:
        """The result of `records` is on disk."""
        assert self.under_way is not None, "no commit of sets is under way"
        for key, held in self.under_way.items():
            self.moved.setdefault(key, self.stored.get(key))
            if held is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = held
        self.under_way = None

    def refuse(self) -> list[Key]:
        """The commit failed: the sets are as before it, without the current turn's changes. Returns the keys that
        changed back."""
        gone = [*(self.under_way or ()), *self.staged]
        for key in gone:
            self._note(key, self.current(key), self.stored.get(key))
            self.staged.pop(key, None)
            if self.under_way is not None:
                self.under_way.pop(key, None)
        self.under_way = None
        return gone

    def undo(self) -> list[Key]:
        """Undoes the changes since the last commit began; that commit is still under way. Returns the keys that changed
        back."""
        gone = list(self.staged)
        for key in gone:
            under_way = self.under_way or {}
            self._note(key, self.current(key), under_way[key] if key in under_way else self.stored.get(key))
            del self.staged[key]
        return gone

    def load(self, rows: Mapping[tuple[str, ...], list[Any]]) -> None:
        """Loads what is on disk at a start."""
        found: dict[Key, list[Row]] = {}
        for path, value in rows.items():
            if path[0] == ROW:
                pattern, predicate, bits = value
                found.setdefault(Key(path[1], path[2]), []).append(Row(str(pattern), predicate, int(bits)))
        for path, value in rows.items():
            if path[0] != SET:
                continue
            key = Key(path[1], path[2])
            life, version, whole, taken, *edges = value
            stamp, ends = Stamp(int(life), int(version)), frozenset(map(str, edges))
            if whole:
                self.stored[key] = make(stamp, found.get(key, ()), ends)
            else:
                self.stored[key] = substitute(stamp, ends, int(taken))
        self.rebuild()


def _kept(new: Held | None, gone: Collection[Row]) -> Iterator[Row]:
    """The rows of `new` that differ from one that is gone in bits alone."""
    if new is None or not gone:
        return
    alike = {(row.pattern, row.predicate) for row in gone}
    for pattern, predicate in alike:
        row = Row(pattern, predicate)
        if row in new.rows:
            yield row
    for row in new.marked:
        if (row.pattern, row.predicate) in alike:
            yield row


def _difference(key: Key, old: Held | None, new: Held | None) -> Iterator[Write]:
    if new is None:
        yield Drop((SET, *key))
    else:
        head = [Ulong(new.stamp.life), Ulong(new.stamp.version), new.is_whole, Ulong(new.taken), *sorted(new.edges)]
        yield Put((SET, *key), head)
    add, remove = difference(old, new)
    for row in remove:
        yield Drop((ROW, *key, f"{row_hash(row):016x}"))
    for row in add:
        yield Put((ROW, *key, f"{row_hash(row):016x}"), [row.pattern, row.predicate, Ulong(row.bits)])
