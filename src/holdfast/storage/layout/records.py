"""The records of `entries`: what a batch appends and retires, grouped, joined and split before its transaction. Schema
2.

Rules of this file: no call of LMDB, and no state. A call of LMDB costs more than copying its data, so a record is as
long as possible, up to SEGMENT_BYTES.

`entries`: queue id (u32 BE) + sequence of the first (u64 BE) → count (u16 BE), the end of each value behind the ends
(u32 BE each), the values, whose sequences are consecutive. Count 0: one value that is cut, here its first piece.
`chunks`: the same key + index (u32 BE) → the further pieces, CHUNK_BYTES each.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.storage.bounds import check_entry

__all__ = [
    "CHUNK_BYTES", "COUNT", "SEGMENT_BYTES", "SEGMENT_COUNT_MAX", "WHOLE_BYTES", "EntryRef", "Group", "by_queue",
    "ends_of", "key_of", "length_of", "pack", "place_of",
]  # fmt: skip

CHUNK_BYTES: Final = 65_520
"""The longest piece of a value that is cut: sixteen pages of 4 KiB less their header."""

WHOLE_BYTES: Final = 98_288
"""The longest record of one entry that is not cut: twenty-four pages. A message of 64 KiB has them in one row."""

SEGMENT_BYTES: Final = 16_368
"""The longest record of several entries: four pages, which are found in a row even among freed ones."""

SEGMENT_COUNT_MAX: Final = 1_024

EntryRef = tuple[int, int]
"""queue id, sequence"""

COUNT: Final = struct.Struct(">H")
"""What a record begins with."""
place_of: Final = struct.Struct(">IQ").unpack
"""The place of a record by its key."""

_key = struct.Struct(">IQ").pack
_chunk_key = struct.Struct(">IQI").pack
_place = itemgetter(0, 1)
_queue_of = itemgetter(0)
_CUT: Final = COUNT.pack(0)


class Group(NamedTuple):
    """What a batch appends to one queue: the entries by sequence, and the rows that they make."""

    queue_id: int
    entries: Sequence[tuple[int, int, bytes]]
    records: list[tuple[bytes, bytes]]
    chunks: list[tuple[bytes, bytes]]


def pack(appends: Sequence[tuple[int, int, bytes]]) -> list[Group]:
    """The groups of a batch's appends, by queue; of two for one place the last remains."""
    if not appends:
        return []
    if len(appends) == 1:
        return [_group(appends[0][0], appends)]
    queue_ids, sequences, _ = zip(*appends, strict=True)
    if queue_ids.count(queue_ids[0]) == len(appends) and _consecutive(sequences):
        return [_group(queue_ids[0], appends)]
    ordered = sorted(appends, key=_place)
    for (queue_id, sequence, _), (other, following, _) in pairwise(ordered):
        if sequence == following and queue_id == other:
            ordered = sorted({item[:2]: item for item in appends}.values(), key=_place)
            break
    return [_group(queue_id, list(found)) for queue_id, found in groupby(ordered, _queue_of)]


def _consecutive(sequences: Sequence[int]) -> bool:
    first = sequences[0]
    return sequences[-1] - first == len(sequences) - 1 and sequences == tuple(range(first, first + len(sequences)))


def _group(queue_id: int, entries: Sequence[tuple[int, int, bytes]]) -> Group:
    group = Group(queue_id, entries, [], [])
    _, sequences, values = zip(*entries, strict=True)
    sizes = [len(value) for value in values]
    taken = list(accumulate([size + 4 for size in sizes]))  # with what names its end
    count = len(values)
    at = 0
    while at < count:
        first = sequences[at]
        room = SEGMENT_BYTES - 2 + (taken[at - 1] if at else 0)
        stop = bisect_right(taken, room, at, min(count, at + SEGMENT_COUNT_MAX))
        if sequences[stop - 1] - first != stop - 1 - at and stop > at:
            stop = at + next(step for step in range(1, stop - at) if sequences[at + step] != first + step)
        if stop > at:
            number = stop - at
            said = ends_of(number).pack(*accumulate(sizes[at:stop]))
            group.records.append((key_of(queue_id, first), b"".join((COUNT.pack(number), said, *values[at:stop]))))
            at = stop
            continue
        if sizes[at] + 6 > WHOLE_BYTES:
            _cut(group, first, values[at])
        else:
            said = ends_of(1).pack(sizes[at])
            group.records.append((key_of(queue_id, first), b"".join((COUNT.pack(1), said, values[at]))))
        at += 1
    return group


def _cut(group: Group, sequence: int, value: bytes) -> None:
    view = memoryview(value)
    head = CHUNK_BYTES - 2
    group.records.append((key_of(group.queue_id, sequence), _CUT + view[:head]))
    group.chunks.extend(
        (_chunk_key(group.queue_id, sequence, index), bytes(view[start : start + CHUNK_BYTES]))
        for index, start in enumerate(range(head, len(value), CHUNK_BYTES))
    )


def by_queue(places: Sequence[EntryRef]) -> list[tuple[int, list[int]]]:
    """The places of each queue, ascending and once each. LocalProtocolError for one that none can be."""
    if not places:
        return []
    if len(places) == 1:
        check_entry(*places[0])
        return [(places[0][0], [places[0][1]])]
    queue_ids, sequences = zip(*places, strict=True)
    if queue_ids.count(queue_ids[0]) == len(places) and _consecutive(sequences):
        ordered = [(queue_ids[0], list(sequences))]
    else:
        found: dict[int, set[int]] = {}
        for queue_id, sequence in places:
            found.setdefault(queue_id, set()).add(sequence)
        ordered = [(queue_id, sorted(found[queue_id])) for queue_id in sorted(found)]
    for queue_id, once in ordered:
        check_entry(queue_id, once[0])
        check_entry(queue_id, once[-1])
    return ordered


def length_of(record: Any) -> int:
    """How many sequences a record covers."""
    return COUNT.unpack_from(record)[0] or 1


@lru_cache(SEGMENT_COUNT_MAX)
def ends_of(count: int) -> struct.Struct:
    """The form of the ends of so many values."""
    return struct.Struct(f">{count}I")


def key_of(queue_id: int, sequence: int) -> bytes:
    """The key of the record that begins at that place. LocalProtocolError for one that none can be."""
    try:
        return _key(queue_id, sequence)
    except struct.error:
        check_entry(queue_id, sequence)
        raise
