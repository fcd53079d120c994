"""The layout of rows of custody: names, origins, hops, renewals, and links that may be resumed; and the keys of the two
clocks, by which times in those rows are read.

Rules of this file: pure packing, one pair of functions for each kind of row; fixed layouts by `struct`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.records import PAIRS, pack_ranges, unpack_ranges
from holdfast.broker.stored.tags import TagRing
from holdfast.errors import RemoteProtocolError, StorageError

_ORIGIN: Final = Struct(">QQdII")
_CLOCK: Final = Struct(">Qd")
_HOP: Final = Struct(">16sQ")
_LINK: Final = Struct(">dH")
RENEWAL: Final = Struct(">16sQQ")

NUMBERED_BY: Final = b"u"
"""Of a row of table `custody`: the store that gave the numbers of this node."""

NAME: Final = b"name"
"""Of a row of table `node`: the name under which the store was opened last."""
FIRST_NAME: Final = b"first-name"
"""The same of the name whose origins are in table `origins`; of other names they are in `custody`, by `origin_key`."""
WAITED: Final = b"waited"
"""The same of the names for which came what waits in `$waiting`."""
STEADY: Final = b"steady"
"""Of a row of table `node`: the steady clock of the last turn (state/steady.py)."""
WALL: Final = b"wall"
"""The same of the wall clock of that turn. Earlier versions write none."""


def pack_waited(waited: Sequence[tuple[int, str]]) -> bytes:
    """(end of its sequences, name) of each name except the present one."""
    return encode([[Ulong(end), name] for end, name in waited])


def unpack_waited(data: bytes) -> tuple[tuple[int, str], ...]:
    try:
        rows, _ = decode(data)
    except RemoteProtocolError as error:
        raise StorageError(f"a record of the store cannot be read: {error.description}") from error
    return tuple((int(end), str(name)) for end, name in rows)


def origin_key(origin: UUID, suffix: str) -> tuple[str, bytes]:
    """Table and key of an origin's record; `suffix`: see `origins.Origin`."""
    return ("custody", NAMED_ORIGIN + origin.bytes + suffix.encode()) if suffix else ("origins", origin.bytes)


NAMED_ORIGIN: Final = b"f"
"""Of a row of table `custody`: an origin's record, of what it numbered for another name of this node than the first."""


class OriginRecord(NamedTuple):
    """What a destination stores of an origin; `finished` is above `mark`, `ended` anywhere. `waited_s`: of the oldest
    gap, the only time in rows of earlier versions.
    """

    mark: int
    passed: int
    waited_s: float
    finished: RangeSet
    ended: RangeSet
    clocks: GapClocks


def pack_origin(record: OriginRecord) -> bytes:
    head = _ORIGIN.pack(record.mark, record.passed, record.waited_s, len(record.finished), len(record.ended))
    clocks = b"".join([_CLOCK.pack(last, waited_s) for last, waited_s in record.clocks])
    return head + pack_ranges(record.finished) + pack_ranges(record.ended) + clocks


def unpack_origin(data: bytes) -> OriginRecord:
    mark, passed, waited_s, finished, ended = _ORIGIN.unpack_from(data)
    split = _ORIGIN.size + finished * PAIRS.size
    end = split + ended * PAIRS.size
    return OriginRecord(
        mark,
        passed,
        waited_s,
        unpack_ranges(data[_ORIGIN.size : split]),
        unpack_ranges(data[split:end]),
        GapClocks(_CLOCK.iter_unpack(data[end:])),
    )


@dataclass(slots=True)
class Renewal:
    """The renumbering of one destination's queue, after a store was put back and got a new UUID: entries from `first`
    on that have a number of `store` from `since` on get new numbers. `place`: where this run of the node continues;
    `following`: the next number of `store`, until the pass has caught up; `done`: it has caught up, and the batch that
    says so may not be on disk yet. These three are not stored.
    """

    store: UUID
    since: int
    first: int
    place: int
    following: int = 1 << 62
    done: bool = False


def pack_renewal(renewal: Renewal) -> bytes:
    return RENEWAL.pack(renewal.store.bytes, renewal.since, renewal.first)


def unpack_renewal(data: bytes) -> Renewal:
    store, since, first = RENEWAL.unpack(data)
    return Renewal(UUID(bytes=store), since, first, first)


def pack_hop(epoch: bytes, last: int) -> bytes:
    return _HOP.pack(epoch, last)


def unpack_hop(data: bytes) -> tuple[bytes, int]:
    epoch, last = _HOP.unpack(data)
    return epoch, last


def pack_link(hold_s: float, target: str, tags: TagRing) -> bytes:
    """A producer's link that may be resumed: how many seconds it is kept, its target's address, and its stored tags."""
    address = target.encode()
    return _LINK.pack(hold_s, len(address)) + address + tags.pack()


def unpack_link(data: bytes, count_max: int) -> tuple[float, str, TagRing]:
    hold_s, size = _LINK.unpack_from(data)
    at = _LINK.size + size
    return hold_s, data[_LINK.size : at].decode(), TagRing.unpack(data[at:], count_max)
