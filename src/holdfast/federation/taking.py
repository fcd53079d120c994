"""What this node takes from one neighbour: which sets, what it has said that it has of each, and repairs under way.

Rules of this file: content comes from the parent alone; what is said of it is what is on disk. A set that does not come
out as the parent says is asked for once more, then at the next refresh. A repair ignores what it did not ask for, and
has at most OPEN_MAX questions open, half of those that the parent queues answers for. Source: docs/adr/0079.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.federation.messages import LIST_MAX, Change, Follow, PartsOf, RowsOf, Stored
from holdfast.federation.rows import DIGEST_END, HASH_DIGITS, VOID, Row, Stamp, edge_hash, row_hash
from holdfast.federation.serving import TOLD_ALL_MAX, TOLD_MAX, combined, standing_digest
from holdfast.federation.sets import NOTHING, Edition, Held, Key, Parts, changed, make, stamped, substitute

ANEW_MAX: Final = 128
"""The most refreshes, an hour, between two requests for a set that did not fit: each costs as much as fits."""

QUESTIONS_MAX: Final = 8_192
"""The maximum number of parts that one repair asks for; a set of 50,000 rows needs about 4,400. The rest is left to
the next refresh."""

ASKED_MAX: Final = 65_536
"""The same for all repairs together."""

OPEN_MAX: Final = 120
"""The maximum number of parts that a neighbour is asked for and has not begun to answer. Each is answered by up to 16
messages, and the neighbour keeps REPLIES_MAX: twice as many fit, because a refresh does not wait for answers."""


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
    rows_during_max: int
    """The most rows that the set may have during the repair: the node's bound, and as many more as there were at the
    start, any of which may leave later."""
    bytes: int = 0
    """The estimated memory of the rows that came, less those that went."""
    asked: set[str] = field(default_factory=set)
    received: dict[str, tuple[Row, ...]] = field(default_factory=dict)


class Taking:
    """The sets taken from one neighbour. `told`: the sets that it knows we take; `wanted`: the sets that we should
    take. `asked`: sets to request again, compared with what is here."""

    def __init__(self, neighbour: str, rows_max: int, bytes_max: int) -> None:
        self.neighbour = neighbour
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.told: dict[Key, Told] = {}
        self.named = 0
        """Names that it was told, of all sets."""
        self.wanted: dict[Key, None] = {}
        self.asked: dict[Key, None] = {}
        self.stops: dict[Key, None] = {}
        self.restart = True
        """Whether everything must be sent again."""
        self.repairs: dict[Key, Repair] = {}
        self.repair_bytes = self.questions = 0
        """Of all repairs: rows that came, and parts that are asked for."""
        self.requests: dict[Key, dict[str, None]] = {}
        """Parts of sets under repair that are to be asked for."""
        self.open: dict[tuple[Key, str], None] = {}
        """Parts that were asked for, and of which nothing has come."""
        self.given_up: set[Key] = set()
        """Sets whose repair failed: they are not requested again before the next refresh."""
        self.anew: set[Key] = set()
        """Sets for which `#` stands here, and which are requested once more, as what is here, until something comes."""
        self._waits: dict[Key, tuple[int, int]] = {}
        """For such sets: refreshes until the next request, and from that one to the following."""

    # ------------------------------------------------------------------------------------------------ which

    def want(self, keys: dict[Key, None]) -> None:
        for key in [key for key in self.wanted if key not in keys]:
            told = self.told.pop(key, None)
            if told is not None:
                self.named -= len(told.names)
                self.stops[key] = None
            self._forget(key)
        for key in keys:
            if key not in self.told:
                self.stops.pop(key, None)
                self.asked[key] = None
        self.wanted = keys

    def _forget(self, key: Key) -> None:
        self.asked.pop(key, None)
        self._end_repair(key)
        self.given_up.discard(key)
        self.anew.discard(key)
        self._waits.pop(key, None)

    def _end_repair(self, key: Key) -> None:
        self.requests.pop(key, None)
        gone = self.repairs.pop(key, None)
        if gone is not None:
            self.repair_bytes -= gone.bytes
            self.questions -= len(gone.asked)
            for prefix in gone.asked:
                self.open.pop((key, prefix), None)

    def say_again(self) -> None:
        """Sends the neighbour everything again; it answers with what differs."""
        self.told.clear()
        self.named = 0
        self.repairs.clear()
        self.repair_bytes = self.questions = 0
        self.requests.clear()
        self.open.clear()
        self.given_up.clear()
        self.anew.clear()
        self.stops.clear()
        self.asked = dict(self.wanted)
        self.restart = True

    def ask_again(self, key: Key) -> None:
        """Once: it did not come out as the parent says."""
        self._end_repair(key)
        if key not in self.given_up:
            self.given_up.add(key)
            self.asked[key] = None

    def refresh(self, committed: dict[Key, Held]) -> None:
        """What was given up, or never answered, may be asked for again; so is what is said to be had and is not, and
        now and then what did not fit here: it may have become smaller since."""
        self.given_up.clear()
        self.anew.clear()
        self.open.clear()
        self.named = sum(len(told.names) for told in self.told.values())
        for key, told in self.told.items():
            held = committed.get(key)
            if held is None:
                if told.has != NOTHING:
                    self.asked[key] = None
            elif held.is_whole:
                self._waits.pop(key, None)
            elif self._is_time(key):
                self.asked[key] = None
                self.anew.add(key)

    def _is_time(self, key: Key) -> bool:
        left, wait = self._waits.get(key, (0, 1))
        self._waits[key] = (left - 1, wait) if left else (wait, min(2 * wait, ANEW_MAX))
        return not left

    def follow(self, committed: dict[Key, Held]) -> Follow | None:
        """The next message; None if there is none."""
        if not (self.restart or self.asked or self.stops):
            return None
        keys = list(islice(self.asked, LIST_MAX))
        stops = tuple(islice(self.stops, LIST_MAX))
        rows = []
        for key in keys:
            held = committed.get(key)
            has = NOTHING if held is None else held.edition if key in self.anew else held.source
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
        if told is None or key in self.asked or key in self.anew or held is None:
            return None
        moved = self._moved(told, names)
        has = held.source
        if not moved and told.has == has and told.whole == whole:
            return None
        last = len(moved) <= LIST_MAX
        self.named -= len(told.names)
        for name, stamp in moved[:LIST_MAX]:
            if stamp is None:
                del told.names[name]
            else:
                told.names[name] = stamp
        self.named += len(told.names)
        told.has, told.whole = has, whole and last
        return Stored(key, has, told.whole, tuple(moved[:LIST_MAX]))

    def _moved(self, told: Told, names: dict[str, Stamp]) -> list[tuple[str, Stamp | None]]:
        """What it is to be told of names: first those that have gone, which make room for others."""
        moved: list[tuple[str, Stamp | None]] = [(name, None) for name in told.names if name not in names]
        room = len(moved) + min(TOLD_MAX - len(told.names), TOLD_ALL_MAX - self.named)
        for name, stamp in names.items():
            if name in told.names:
                if told.names[name] != stamp:
                    moved.append((name, stamp))
            elif room > 0:
                room -= 1
                moved.append((name, stamp))
        return moved

    @property
    def digest(self) -> tuple[int, int]:
        return len(self.told), combined((key, one.digest) for key, one in self.told.items())

    # ------------------------------------------------------------------------------------------------ content

    def change(self, message: Change, held: Held | None) -> Held | None:
        """The set as the parent has it; None if it stays unchanged, or must be requested."""
        if held is None:
            held = make(VOID, (), ())
        self._end_repair(message.key)
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
            before, size = (rows, 0) if repair is None else (repair.rows, repair.bytes)
            self._end_repair(key)
            repair = self.repairs[key] = _repair(message.new, message.edges, before, size, self.rows_max)
            self.repair_bytes += size
        elif repair is None or not self._was_asked(message, repair):
            return None
        mine = repair.base.digests(message.prefix)
        differing = [digit for digit in range(len(mine)) if mine[digit] != message.digests[digit]]
        for digit in differing:
            self._ask(key, repair, f"{message.prefix}{digit:x}")
        return None if differing else self._finish(key, repair)

    def _ask(self, key: Key, repair: Repair, prefix: str) -> None:
        if (
            prefix not in repair.asked
            and len(prefix) < HASH_DIGITS
            and len(repair.asked) < QUESTIONS_MAX
            and self.questions < ASKED_MAX
        ):
            repair.asked.add(prefix)
            self.questions += 1
            self.requests.setdefault(key, {})[prefix] = None

    def question(self) -> PartsOf | None:
        """The next part that the neighbour is to be asked for: set by set, since it keeps the parts of a few."""
        if not self.requests or len(self.open) >= OPEN_MAX:
            return None
        key, prefixes = next(iter(self.requests.items()))
        prefix = next(iter(prefixes))
        del prefixes[prefix]
        if not prefixes:
            del self.requests[key]
        self.open[key, prefix] = None
        repair = self.repairs[key]
        return PartsOf(key, repair.new, prefix, repair.base.digests(prefix))

    def _was_asked(self, message: PartsOf | RowsOf, repair: Repair) -> bool:
        """Whether it answers a question of that repair."""
        asked = message.prefix[:-1]
        if repair.new != message.new or asked not in repair.asked:
            return False
        self.open.pop((message.key, asked), None)
        return True

    def rows(self, message: RowsOf) -> Held | None:
        """Takes all rows of a part; returns the set if this completes it."""
        key = message.key
        if message.edges is not None:
            self._end_repair(key)
            new = make(message.new.stamp, message.rows, message.edges)
            if new.digest == message.new.digest:
                return self._came(key, new)
            self.ask_again(key)
            return None
        repair = self.repairs.get(key)
        if repair is None or not self._was_asked(message, repair):
            return None
        gone = repair.rows.intersection(repair.received.get(message.prefix, repair.base.rows(message.prefix)))
        came = {row for row in message.rows if f"{row_hash(row):016x}".startswith(message.prefix)}
        repair.total += sum(map(row_hash, came - repair.rows)) - sum(map(row_hash, gone - came))
        grown = sum(row.held_bytes for row in came - repair.rows) - sum(row.held_bytes for row in gone - came)
        repair.bytes += grown
        self.repair_bytes += grown
        repair.rows -= gone
        repair.rows |= came
        repair.received[message.prefix] = message.rows
        if len(repair.rows) > repair.rows_during_max or self.repair_bytes > self.bytes_max:
            self._end_repair(key)
            self.anew.discard(key)
            return substitute(message.new.stamp, repair.edges, message.new.digest)
        return self._finish(key, repair)

    def _finish(self, key: Key, repair: Repair) -> Held | None:
        if (repair.total + sum(map(edge_hash, repair.edges))) % DIGEST_END != repair.new.digest:
            return None
        self._end_repair(key)
        return self._came(key, make(repair.new.stamp, repair.rows, repair.edges))

    def _came(self, key: Key, new: Held) -> Held:
        self.given_up.discard(key)
        self.anew.discard(key)
        return new if len(new.rows) <= self.rows_max else substitute(new.stamp, new.edges, new.digest)


def _repair(new: Edition, edges: frozenset[str], rows: Iterable[Row], size: int, rows_max: int) -> Repair:
    """`size`: bytes of rows that an earlier repair of the set has left."""
    before = set(rows)
    most = rows_max + min(len(before), rows_max)
    return Repair(new, edges, Parts(before), before, sum(map(row_hash, before)), most, size)


def voided(held: Held) -> Held:
    """The same set with the stamp VOID: any stamp of the parent is accepted."""
    return stamped(held, VOID)
