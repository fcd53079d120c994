"""Entries on disk: consecutive ones of a queue share a record, a large one is cut. Schema 2 of `entries`.

Rules of this file: every method works inside its caller's transaction, and keeps nothing between two. A call of LMDB
costs more than what it moves, and gives up the interpreter's lock: so a record is as long as it may be, up to
SEGMENT_BYTES, and an entry that leaves is a bit until its whole record does.

`entries`: queue id (u32 BE) + sequence of the first (u64 BE) → count (u16 BE), the end of each value behind the ends
(u32 BE each), the values, whose sequences are consecutive. Count 0: one value that is cut, here its first piece.
`gaps`: the same key → which of the record's entries have left, a bit each, the first entry's the lowest (little
endian); absent where none has. `chunks`: the same key + index (u32 BE) → the further pieces, CHUNK_BYTES each.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.storage.bounds import check_entry

__all__ = ["CHUNK_BYTES", "DATABASES", "SEGMENT_BYTES", "WHOLE_BYTES", "Entries", "Group", "by_queue", "pack"]

DATABASES: Final = (b"entries", b"chunks", b"gaps")

CHUNK_BYTES: Final = 65_520
"""The longest piece of a value that is cut: sixteen pages of 4 KiB less their header."""

WHOLE_BYTES: Final = 98_288
"""The longest record of one entry that is not cut: twenty-four pages. A message of 64 KiB has them in one row."""

SEGMENT_BYTES: Final = 16_368
"""The longest record of several entries: four pages, which are found in a row even among freed ones."""

SEGMENT_COUNT_MAX: Final = 1_024

REWRITES_MAX: Final = 256
"""Records that one commit writes anew because most of their entries have left; each takes fresh pages first."""

_REWRITE_SHARE: Final = 4
"""A record of which less than one part in so many is left is written anew."""
_REWRITE_BYTES_MIN: Final = 4_080
"""Shorter ones would give no page back."""

Transaction = Any
"""lmdb.Transaction, with buffers: keys and values are views that end with it."""
Place = tuple[int, int]
"""queue id, sequence"""

_key = struct.Struct(">IQ").pack
_unkey = struct.Struct(">IQ").unpack
_chunk_key = struct.Struct(">IQI").pack
_count = struct.Struct(">H")
_place = itemgetter(0, 1)
_queue_of = itemgetter(0)
_CUT: Final = _count.pack(0)


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
            said = _ends(number).pack(*accumulate(sizes[at:stop]))
            group.records.append((_pack(queue_id, first), b"".join((_count.pack(number), said, *values[at:stop]))))
            at = stop
            continue
        if sizes[at] + 6 > WHOLE_BYTES:
            _cut(group, first, values[at])
        else:
            said = _ends(1).pack(sizes[at])
            group.records.append((_pack(queue_id, first), b"".join((_count.pack(1), said, values[at]))))
        at += 1
    return group


def _cut(group: Group, sequence: int, value: bytes) -> None:
    view = memoryview(value)
    head = CHUNK_BYTES - 2
    group.records.append((_pack(group.queue_id, sequence), _CUT + view[:head]))
    group.chunks.extend(
        (_chunk_key(group.queue_id, sequence, index), bytes(view[start : start + CHUNK_BYTES]))
        for index, start in enumerate(range(head, len(value), CHUNK_BYTES))
    )


def by_queue(places: Sequence[Place]) -> list[tuple[int, list[int]]]:
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


class Entries:
    """The databases of entries; `handles` as lmdb.open_db gave them, in the order of DATABASES."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._entries, self._chunks, self._gaps = handles

    # ------------------------------------------------------------------------------------------------ reading

    def read(
        self, txn: Transaction, queue_id: int, first: int, *, count_max: int, bytes_max: int
    ) -> list[tuple[int, bytes]]:
        """See `EntryReader.read`."""
        found: list[tuple[int, bytes]] = []
        gapped: bool | None = None  # asked for the first record, and then once for all others
        with txn.cursor(db=self._entries) as cursor:
            present = self._seek(cursor, queue_id, first)
            while present:
                other, start = _unkey(cursor.key())
                if other != queue_id:
                    break
                if gapped is None and found:
                    gapped = txn.stat(self._gaps)["entries"] > 0
                some = self._values(
                    txn, cursor, start, first, max(1, count_max - len(found)), gapped=gapped is not False
                )
                size = sum([len(value) for _, value in some])
                if size > bytes_max:
                    for item in some:
                        bytes_max -= len(item[1])
                        if bytes_max < 0 and found:
                            return found
                        found.append(item)
                else:
                    bytes_max -= size
                    found += some
                if len(found) >= count_max:
                    break
                present = cursor.next()
        return found

    def get(self, txn: Transaction, queue_id: int, sequence: int) -> bytes | None:
        """See `EntryReader.get`."""
        with txn.cursor(db=self._entries) as cursor:
            if self._seek(cursor, queue_id, sequence):
                other, start = _unkey(cursor.key())
                if other == queue_id and start <= sequence:
                    for found, value in self._values(txn, cursor, start, sequence, 1):
                        return value if found == sequence else None
        return None

    def _seek(self, cursor: Any, queue_id: int, sequence: int) -> bool:
        """Puts the cursor on the record that holds the place, or else on the first behind it; False: there is none."""
        key = _pack(queue_id, sequence)
        found: bool = cursor.set_range(key)
        if found and cursor.key() == key:
            return True
        if cursor.prev() if found else cursor.last():
            other, start = _unkey(cursor.key())
            if other == queue_id and sequence < start + _length(cursor.value()):
                return True
            return found and bool(cursor.next())
        return found and bool(cursor.first())

    def _values(
        self, txn: Transaction, cursor: Any, start: int, first: int, count_max: int, *, gapped: bool = True
    ) -> list[tuple[int, bytes]]:
        """The entries of the record at the cursor from `first` on, at most so many. `gapped`: some may have left."""
        record = cursor.value()
        count = _count.unpack_from(record)[0]
        if not count:
            return [(start, self._whole(txn, bytes(cursor.key()), record))] if start >= first else []
        gone = self._gone(txn, cursor.key()) if gapped else 0
        skipped = min(max(0, first - start), count)
        gone >>= skipped
        wanted = count - skipped if gone else min(count - skipped, count_max)
        ends = _ends(skipped + wanted).unpack_from(record, 2)
        begin = ends[skipped - 1] if skipped else 0
        base = 2 + 4 * count
        data = bytes(record[base + begin : base + ends[-1]])
        if begin:
            ends = tuple([end - begin for end in ends[skipped:]])
        found = [(number, data[at:end]) for number, (at, end) in enumerate(pairwise((0, *ends)), start + skipped)]
        if gone:
            found = [item for index, item in enumerate(found) if not gone >> index & 1][:count_max]
        return found

    def _gone(self, txn: Transaction, key: Any) -> int:
        row = txn.get(key, db=self._gaps)
        return 0 if row is None else int.from_bytes(row, "little")

    def _whole(self, txn: Transaction, key: bytes, record: Any) -> bytes:
        pieces = [record[2:]]
        with txn.cursor(db=self._chunks) as cursor:
            if cursor.set_range(key):
                for place, piece in cursor.iternext():
                    if place[:12] != key:
                        break
                    pieces.append(piece)
        return b"".join(pieces)

    # ------------------------------------------------------------------------------------------------ writing

    def retire(self, txn: Transaction, places: Sequence[tuple[int, list[int]]]) -> None:
        """What is there of the places, which are as `by_queue` gives them, leaves."""
        rewrites = REWRITES_MAX
        gapped: bool | None = None  # a record of one entry has no gap: not asked for those
        with txn.cursor(db=self._entries) as cursor:
            for queue_id, sequences in places:
                at = 0
                present = False  # the cursor is at a record
                while at < len(sequences):
                    sequence = sequences[at]
                    if not (present and self._holds(cursor, queue_id, sequence)) and not self._seek(
                        cursor, queue_id, sequence
                    ):
                        break
                    key = bytes(cursor.key())
                    other, start = _unkey(key)
                    if other != queue_id:
                        break
                    if start > sequence:
                        at = bisect_left(sequences, start, at + 1)
                        present = True
                        continue
                    record = cursor.value()
                    count = _length(record)
                    if count > 1 and gapped is None:
                        gapped = txn.stat(self._gaps)["entries"] > 0
                    stop = bisect_left(sequences, start + count, at)
                    whole = (1 << count) - 1
                    gone = whole if stop - at == count else _bits(sequences, at, stop, start)
                    if gapped and gone != whole:
                        gone |= self._gone(txn, key)
                    at = stop
                    present = gone == whole
                    if gone == whole:
                        present = self._drop(txn, cursor, key, record, gapped=bool(gapped))
                    elif rewrites and _mostly_gone(record, count, gone):
                        rewrites -= 1
                        self._write_anew(txn, cursor, start, {}, gone)
                    else:
                        gapped = True
                        txn.put(key, gone.to_bytes((count + 7) // 8, "little"), db=self._gaps)

    def append(self, txn: Transaction, groups: Sequence[Group]) -> None:
        """The entries of `groups`; one whose place is taken is there anew."""
        records: list[tuple[bytes, bytes]] = []
        chunks: list[tuple[bytes, bytes]] = []
        with txn.cursor(db=self._entries) as cursor:
            end = self._end(cursor)
            for group in groups:
                queue_id, first, _ = group.entries[0]
                if (
                    (queue_id, first) < end
                    and self._seek(cursor, queue_id, first)
                    and _unkey(cursor.key())[0] == queue_id
                ):
                    for entry in group.entries:
                        self._append_one(txn, cursor, entry)
                else:
                    records += group.records
                    chunks += group.chunks
            if records and _unkey(records[0][0]) >= end:
                cursor.putmulti(records, append=True)
            elif records:
                _put_ascending(cursor, records)
        if chunks:
            with txn.cursor(db=self._chunks) as cursor:
                _put_ascending(cursor, chunks)

    def _end(self, cursor: Any) -> Place:
        """The place behind the last of all records."""
        if not cursor.last():
            return (0, 0)
        queue_id, start = _unkey(cursor.key())
        return (queue_id, start + _length(cursor.value()))

    def _append_one(self, txn: Transaction, cursor: Any, entry: tuple[int, int, bytes]) -> None:
        """An entry before, or in the place of, others of its queue."""
        queue_id, sequence, value = entry
        if self._seek(cursor, queue_id, sequence):
            other, start = _unkey(cursor.key())
            if other == queue_id and start <= sequence:
                self._write_anew(txn, cursor, start, {sequence: value}, self._gone(txn, cursor.key()))
                return
        self._put(txn, [entry])

    def _write_anew(self, txn: Transaction, cursor: Any, start: int, added: dict[int, bytes], gone: int) -> None:
        """The record at the cursor without those that are gone, and with what is added within it."""
        key = bytes(cursor.key())
        queue_id = _unkey(key)[0]
        record = bytes(cursor.value())
        count = _count.unpack_from(record)[0]
        values: dict[int, bytes] = {}
        if count:
            ends = (0, *_ends(count).unpack_from(record, 2))
            base = 2 + 4 * count
            values = {
                start + index: record[base + ends[index] : base + ends[index + 1]]
                for index in range(count)
                if not gone >> index & 1
            }
        values |= added
        self._drop(txn, cursor, key, record, gapped=True)
        self._put(txn, [(queue_id, sequence, value) for sequence, value in values.items()])

    def _put(self, txn: Transaction, entries: Sequence[tuple[int, int, bytes]]) -> None:
        for group in pack(entries):
            for key, value in group.records:
                txn.put(key, value, db=self._entries)
            for key, value in group.chunks:
                txn.put(key, value, db=self._chunks)

    def _drop(self, txn: Transaction, cursor: Any, key: bytes, record: Any, *, gapped: bool) -> bool:
        """The record at the cursor goes with all that belongs to it; True: the cursor is at the one behind it."""
        cut = not _count.unpack_from(record)[0]
        present: bool = cursor.delete()
        if cut:
            with txn.cursor(db=self._chunks) as pieces:
                more = pieces.set_range(key)
                while more and pieces.key()[:12] == key:
                    more = pieces.delete()
        elif gapped:
            txn.delete(key, db=self._gaps)
        return present

    def _holds(self, cursor: Any, queue_id: int, sequence: int) -> bool:
        """Whether the record at the cursor is the one that `_seek` would find."""
        key = cursor.key()
        if len(key) != 12:
            return False
        other, start = _unkey(key)
        return bool(other == queue_id and start <= sequence < start + _length(cursor.value()))


def _length(record: Any) -> int:
    """How many sequences a record covers."""
    return _count.unpack_from(record)[0] or 1


def _bits(sequences: Sequence[int], at: int, stop: int, start: int) -> int:
    """`sequences[at:stop]`, ascending, as bits from `start` on."""
    first = sequences[at]
    if sequences[stop - 1] - first == stop - 1 - at:
        return ((1 << stop - at) - 1) << first - start
    gone = 0
    for sequence in sequences[at:stop]:
        gone |= 1 << sequence - start
    return gone


def _mostly_gone(record: Any, count: int, gone: int) -> bool:
    if len(record) < _REWRITE_BYTES_MIN:
        return False
    ends = (0, *_ends(count).unpack_from(record, 2))
    left = sum([ends[index + 1] - ends[index] for index in range(count) if not gone >> index & 1])
    return bool(left * _REWRITE_SHARE < len(record))


@lru_cache(SEGMENT_COUNT_MAX)
def _ends(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


def _pack(queue_id: int, sequence: int) -> bytes:
    try:
        return _key(queue_id, sequence)
    except struct.error:
        check_entry(queue_id, sequence)
        raise


def _put_ascending(cursor: Any, records: list[tuple[bytes, bytes]]) -> None:
    """Put `records`, sorted by key. What lies beyond the last key is appended: full pages, no search."""
    last = bytes(cursor.key()) if cursor.last() else b""
    split = bisect_left(records, (last, b"\xff" * 32)) if records[0][0] <= last else 0
    if split:
        cursor.putmulti(records[:split])
    if split < len(records):
        cursor.putmulti(records[split:], append=True)
