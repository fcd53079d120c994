"""What this node takes from one neighbour: which sets, what it has said that it has of each, and repairs under way.

Rules of this file: content comes from the parent alone; what is said of it is what is on disk. A set that does not come
out as the parent says is asked for once more, then at the next refresh. Source: docs/adr/0079.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.federation.messages import LIST_MAX, Change, Follow, PartsOf, RowsOf, Stored
from holdfast.federation.rows import DIGEST_END, HASH_DIGITS, VOID, Row, Stamp, edge_hash, row_hash
from holdfast.federation.serving import combined, standing_digest
from holdfast.federation.sets import NOTHING, Edition, Held, Key, Parts, changed, make, stamped, substitute

ASKED_MAX: Final = 4_096
"""The maximum number of requested parts of one set that have not arrived."""


@dataclass(slots=True)
class Told:
    """What the neighbour was sent about a set that we take from it."""

    has: Edition
    whole: bool = False
    names: dict[str, Stamp] = field(default_factory=dict)

    @property
    def digest(self) -> int:
        """As `Follower.digest`."""
        return standing_digest(self.has, self.names, whole=self.whole)


@dataclass(slots=True)
class Repair:
    """A repair: the set is made equal to the parent's part by part. `base`: the rows at the start of the repair, by
    part."""

    new: Edition
    edges: frozenset[str]
    base: Parts
    rows: set[Row]
    total: int
    """The sum of the rows' hashes."""
    received: dict[str, tuple[Row, ...]] = field(default_factory=dict)


class Taking:
    """The sets taken from one neighbour. `told`: the sets that it knows we take; `wanted`: the sets that we should
    take. `asked`: sets to request again, compared with what is here."""

    def __init__(self, neighbour: str, rows_max: int) -> None:
        self.neighbour = neighbour
        self.rows_max = rows_max
        self.told: dict[Key, Told] = {}
        self.wanted: dict[Key, None] = {}
        self.asked: dict[Key, None] = {}
        self.stops: dict[Key, None] = {}
        self.restart = True
        """Whether everything must be sent again."""
        self.repairs: dict[Key, Repair] = {}
        self.requests: dict[tuple[Key, str], PartsOf] = {}
        self.given_up: set[Key] = set()
        """Sets whose repair failed: they are not requested again before the next refresh."""

    # ------------------------------------------------------------------------------------------------ which

    def want(self, keys: dict[Key, None]) -> None:
        for key in [key for key in self.wanted if key not in keys]:
            if self.told.pop(key, None) is not None:
                self.stops[key] = None
            self._forget(key)
        for key in keys:
            if key not in self.told:
                self.stops.pop(key, None)
                self.asked[key] = None
        self.wanted = keys

    def _forget(self, key: Key) -> None:
        self.asked.pop(key, None)
        self.repairs.pop(key, None)
        self.given_up.discard(key)
        for asked in [asked for asked in self.requests if asked[0] == key]:
            del self.requests[asked]

    def say_again(self) -> None:
        """Sends the neighbour everything again; it answers with what differs."""
        self.told.clear()
        self.repairs.clear()
        self.requests.clear()
        self.given_up.clear()
        self.stops.clear()
        self.asked = dict(self.wanted)
        self.restart = True

    def ask_again(self, key: Key) -> None:
        """Requests the set again, once, because the result differed from the parent's digest."""
        self.repairs.pop(key, None)
        if key not in self.given_up:
            self.given_up.add(key)
            self.asked[key] = None

    def follow(self, committed: dict[Key, Held]) -> Follow | None:
        """The next message; None if there is none."""
        if not (self.restart or self.asked or self.stops):
            return None
        keys = list(islice(self.asked, LIST_MAX))
        stops = tuple(islice(self.stops, LIST_MAX))
        rows = []
        for key in keys:
            held = committed.get(key)
            has = held.source if held is not None else NOTHING
            rows.append((key, has))
            told = self.told.setdefault(key, Told(has))
            told.has = has
            del self.asked[key]
        for key in stops:
            del self.stops[key]
        restart, self.restart = self.restart, False
        return Follow(tuple(rows), stops, restart)

    def is_urgent(self, key: Key, held: Held | None, *, whole: bool) -> bool:
        """Whether more than names must be sent about the set: its edition changed, or all its followers are now
        complete."""
        told = self.told.get(key)
        return told is not None and held is not None and (told.has != held.source or (whole and not told.whole))

    def stored(self, key: Key, held: Held | None, names: dict[str, Stamp], *, whole: bool) -> Stored | None:
        """What changed since the last message to the neighbour; None if nothing did."""
        told = self.told.get(key)
        if told is None or key in self.asked or held is None:
            return None
        moved: list[tuple[str, Stamp | None]] = [
            (name, stamp) for name, stamp in names.items() if told.names.get(name) != stamp
        ]
        moved += [(name, None) for name in told.names if name not in names]
        has = held.source
        if not moved and told.has == has and told.whole == whole:
            return None
        last = len(moved) <= LIST_MAX
        for name, stamp in moved[:LIST_MAX]:
            if stamp is None:
                del told.names[name]
            else:
                told.names[name] = stamp
        told.has, told.whole = has, whole and last
        return Stored(key, has, told.whole, tuple(moved[:LIST_MAX]))

    @property
    def digest(self) -> tuple[int, int]:
        return len(self.told), combined((key, one.digest) for key, one in self.told.items())

    # ------------------------------------------------------------------------------------------------ content

    def change(self, message: Change, held: Held | None) -> Held | None:
        """The set as the parent has it; None if it stays unchanged, or must be requested."""
        if held is None:
            held = make(VOID, (), ())
        self.repairs.pop(message.key, None)
        if not held.is_whole and held.taken == message.old.digest:
            return substitute(message.new.stamp, message.edges, message.new.digest)
        if held.digest == message.old.digest:
            new = changed(held, message.new.stamp, add=message.add, remove=message.remove, edges=message.edges)
            if new.digest == message.new.digest:
                return self._came(message.key, new)
        self.ask_again(message.key)
        return None

    def parts(self, message: PartsOf, held: Held | None) -> Held | None:
        """Takes sums of parts, and requests those that differ. Returns the set if only its edges or its stamp
        differed."""
        key, rows = message.key, held.rows if held is not None else frozenset()
        repair = self.repairs.get(key)
        if message.edges is not None:  # it begins
            before = repair.rows if repair is not None else rows
            repair = self.repairs[key] = _repair(message.new, message.edges, before)
            for asked in [asked for asked in self.requests if asked[0] == key]:
                del self.requests[asked]
        if repair is None or repair.new != message.new:
            return None
        mine = repair.base.digests(message.prefix)
        differing = [digit for digit in range(len(mine)) if mine[digit] != message.digests[digit]]
        for digit in differing:
            prefix = f"{message.prefix}{digit:x}"
            if len(self.requests) < ASKED_MAX and len(prefix) < HASH_DIGITS:
                request = PartsOf(key, message.new, prefix, repair.base.digests(prefix))
                self.requests[key, prefix] = request
        return None if differing else self._finish(key, repair)

    def rows(self, message: RowsOf) -> Held | None:
        """Takes all rows of a part; returns the set if this completes it."""
        key = message.key
        if message.edges is not None:
            self.repairs.pop(key, None)
            new = make(message.new.stamp, message.rows, message.edges)
            if new.digest == message.new.digest:
                return self._came(key, new)
            self.ask_again(key)
            return None
        repair = self.repairs.get(key)
        if repair is None or repair.new != message.new:
            return None
        gone = repair.rows.intersection(repair.received.get(message.prefix, repair.base.rows(message.prefix)))
        came = {row for row in message.rows if f"{row_hash(row):016x}".startswith(message.prefix)}
        repair.total += sum(map(row_hash, came - repair.rows)) - sum(map(row_hash, gone - came))
        repair.rows -= gone
        repair.rows |= came
        repair.received[message.prefix] = message.rows
        if len(repair.rows) > self.rows_max:
            del self.repairs[key]
            return substitute(message.new.stamp, repair.edges, message.new.digest)
        return self._finish(key, repair)

    def _finish(self, key: Key, repair: Repair) -> Held | None:
        if (repair.total + sum(map(edge_hash, repair.edges))) % DIGEST_END != repair.new.digest:
            return None
        del self.repairs[key]
        return self._came(key, make(repair.new.stamp, repair.rows, repair.edges))

    def _came(self, key: Key, new: Held) -> Held:
        self.given_up.discard(key)
        return new if len(new.rows) <= self.rows_max else substitute(new.stamp, new.edges, new.digest)


def _repair(new: Edition, edges: frozenset[str], rows: Iterable[Row]) -> Repair:
    before = set(rows)
    return Repair(new, edges, Parts(before), before, sum(map(row_hash, before)))


def voided(held: Held) -> Held:
    """The same set with the stamp VOID: any stamp of the parent is accepted."""
    return stamped(held, VOID)
