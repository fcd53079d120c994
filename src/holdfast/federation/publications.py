"""The publications that came here, by the store in which each was accepted, so that copies on other ways are known.

Rules of this file: pure. What came goes with the batch of its turn: one row with all that is remembered of a store, and
at most ROWS_MAX rows beside it with what came since, so that a turn writes little. A number that was undone makes the
next row a whole one. Source: docs/adr/0082.
"""

from collections.abc import Iterable
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.records import PAIRS, pack_ranges, unpack_ranges
from holdfast.errors import RemoteProtocolError, StorageError

RANGES_MAX: Final = 4_096
"""The maximum number of remembered ranges of publications of one store."""

RANGES_ALL_MAX: Final = 65_536
"""The maximum of all stores together, about 6 MB. Beyond it, the stores from which nothing came for longest are
forgotten."""

PUBLISHERS_MAX: Final = 10_000

ROWS_MAX: Final = 32
"""The maximum number of rows of one store beside its complete row."""

PREFIX: Final = b"p"
_HASH_BYTES: Final = 16
KEY_BYTES: Final = len(PREFIX) + _HASH_BYTES + 1


class Seen(Enum):
    """What this node knows about a publication."""

    NEW = "new"
    COPY = "copy"
    OLD = "old"
    """The publication is older than what is remembered: it is delivered, and counted in the metrics."""


class Publications:
    """`ranges`: the numbers that came, by store, the latest last; `floors`: numbers below are not remembered any
    more."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """`rows`: those of table `bindings`, of which others are passed over. Raises StorageError."""
        self.ranges: dict[str, RangeSet] = {}
        self.floors: dict[str, int] = {}
        self._count = 0
        """The number of ranges of all stores."""
        self._fresh: dict[str, RangeSet] = {}
        """Publications that are in no batch yet."""
        self._rows: dict[str, int] = {}
        """By store: the number of rows beside its complete row."""
        self._untrue: set[str] = set()
        """Stores whose rows may contain undone publications, or lack known ones."""
        self._gone: list[str] = []
        """Forgotten stores, of which rows may be on disk."""
        self._leaving: dict[str, int] = {}
        """By store whose rows leave the disk with a turn that is not decided yet: the number of these beside its
        complete row."""
        self._load(rows)

    # ------------------------------------------------------------------------------------------------ what comes

    def has(self, store: str, number: int) -> bool:
        """Whether the publication is known to have arrived before."""
        return number in self.ranges.get(store, ())

    def take(self, store: str, number: int) -> Seen:
        """Whether it arrived before; records that it has arrived now."""
        numbers = self.ranges.pop(store, None) or RangeSet()
        self.ranges[store] = numbers  # the latest is the last
        if number in numbers:
            return Seen.COPY
        if number < self.floors.get(store, 0):
            return Seen.OLD
        self._add(store, number, number)
        self._fresh.setdefault(store, RangeSet()).add(number)
        return Seen.NEW

    def forget(self, store: str, number: int) -> None:
        """Removes it, because the turn in which it arrived was undone."""
        for forgotten, rows in self._leaving.items():  # they are on disk still
            self._rows[forgotten] = max(rows, self._rows.get(forgotten, 0))
            self._gone.append(forgotten)
        self._leaving.clear()
        numbers = self.ranges.get(store)
        if numbers is None or number not in numbers:
            return
        before = len(numbers)
        numbers.remove(number)
        self._count += len(numbers) - before
        self._untrue.add(store)
        if store in self._fresh:
            self._fresh[store].remove(number)

    def stored(self) -> None:
        """The turn of the last `records` is on disk."""
        self._leaving.clear()

    def _add(self, store: str, first: int, last: int) -> None:
        numbers = self.ranges[store]
        before = len(numbers)
        numbers.add(first, last)
        while len(numbers) > RANGES_MAX:
            _, low = next(iter(numbers))
            numbers.drop_below(low + 1)
            self.floors[store] = low + 1
        self._count += len(numbers) - before
        while len(self.ranges) > PUBLISHERS_MAX or (self._count > RANGES_ALL_MAX and len(self.ranges) > 1):
            gone = next(iter(self.ranges))
            self._count -= len(self.ranges.pop(gone))
            self.floors.pop(gone, None)
            self._fresh.pop(gone, None)
            self._gone.append(gone)

    # ------------------------------------------------------------------------------------------------ the disk

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """The rows for the batch of this turn: key and value, or None for a row to delete."""
        found: dict[bytes, bytes | None] = {}
        for store in self._gone:
            rows = self._rows.pop(store, -1)
            for place in range(rows + 1):
                found[_key(store, place)] = None
            if rows >= 0:
                self._leaving[store] = max(rows, self._leaving.get(store, 0))
            self._untrue.discard(store)
        for store, fresh in self._fresh.items():
            if not len(fresh):
                continue
            beside = self._rows.get(store)
            if beside is not None and beside < ROWS_MAX and store not in self._untrue:
                self._rows[store] = beside + 1
                found[_key(store, beside + 1)] = _row(store, 0, fresh)
                continue
            for place in range(1, (ROWS_MAX if store in self._untrue else beside or 0) + 1):
                found[_key(store, place)] = None
            found[_key(store, 0)] = _row(store, self.floors.get(store, 0), self.ranges[store])
            self._rows[store] = 0
            self._untrue.discard(store)
        self._gone.clear()
        self._fresh.clear()
        return list(found.items())

    def _load(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            if key[:1] != PREFIX:
                continue
            store, floor, numbers = unpack(key, value)
            self.ranges.setdefault(store, RangeSet())
            self.floors[store] = max(floor, self.floors.get(store, 0))
            self._rows[store] = max(key[-1], self._rows.get(store, 0))
            for first, last in numbers:
                self._add(store, first, last)


def _key(store: str, place: int) -> bytes:
    return PREFIX + blake2b(store.encode(), digest_size=_HASH_BYTES).digest() + bytes([place])


def _row(store: str, floor: int, numbers: RangeSet) -> bytes:
    return encode([store, Ulong(floor), pack_ranges(numbers)])


def unpack(key: bytes, value: bytes) -> tuple[str, int, RangeSet]:
    """The store, floor and numbers in one row. Raises StorageError."""
    try:
        fields: Any = decode(value)[0]
    except RemoteProtocolError as error:
        raise StorageError(f"a row of publications cannot be read: {error.description}") from error
    match fields:
        case [str() as store, int() as floor, bytes() as numbers, *_] if len(numbers) % PAIRS.size == 0:
            pass
        case _:
            raise StorageError("a row of publications cannot be read: it has another form")
    if len(key) != KEY_BYTES or key != _key(store, key[-1]):
        raise StorageError("a row of publications cannot be read: its key is another's")
    return store, floor, unpack_ranges(numbers)
