"""The layout of rows of table `losses`: numbers of an origin that were given up, and their totals."""

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

_LOSS: Final = Struct(">16sQQQ")
_LOSS_TOTALS: Final = Struct(">QQQQQ")


class LossRecord(NamedTuple):
    """Lost numbers of an origin, [first, last]; given up at `at_ms` by the wall clock."""

    origin: UUID
    first: int
    last: int
    at_ms: int
    reason: str


def pack_loss(record: LossRecord) -> bytes:
    return _LOSS.pack(record.origin.bytes, *record[1:4]) + record.reason.encode()


def unpack_loss(data: bytes) -> LossRecord:
    origin, first, last, at_ms = _LOSS.unpack_from(data)
    return LossRecord(UUID(bytes=origin), first, last, at_ms, data[_LOSS.size :].decode())


def loss_key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def split_loss_key(key: bytes) -> int:
    if len(key) != 8:
        raise ValueError("no number of a loss")
    return int.from_bytes(key, "big")


LOSS_TOTALS: Final = b"all"
"""The key of the one row of table `losses` that holds totals."""


class LossTotals(NamedTuple):
    """Totals since the store was created: lost ranges, the numbers in them, when the first was lost (0: none), dead
    letters that were dropped at a bound, and their bytes."""

    ranges: int = 0
    numbers: int = 0
    since_ms: int = 0
    dropped: int = 0
    dropped_bytes: int = 0

    def with_one(self, loss: LossRecord) -> "LossTotals":
        numbers = self.numbers + loss.last - loss.first + 1
        return self._replace(ranges=self.ranges + 1, numbers=numbers, since_ms=self.since_ms or loss.at_ms)

    def without(self, loss: LossRecord) -> "LossTotals":
        numbers = self.numbers - (loss.last - loss.first + 1)
        return self._replace(ranges=self.ranges - 1, numbers=numbers, since_ms=self.since_ms if self.ranges > 1 else 0)


def pack_loss_totals(totals: LossTotals) -> bytes:
    return _LOSS_TOTALS.pack(*totals)


def unpack_loss_totals(data: bytes) -> LossTotals:
    return LossTotals(*_LOSS_TOTALS.unpack(data))
