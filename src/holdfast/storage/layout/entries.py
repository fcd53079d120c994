"""Entries on disk: consecutive ones of a queue share a record, a large one is split (records.py). Schema 2 of
`entries`.

Rules of this file: every method works in its caller's transaction, and keeps nothing between two. A call of LMDB costs
more than copying its data, and gives up the interpreter's lock: so an entry that leaves is only marked by a bit until
its whole record leaves.

`gaps`: a record's key → which of its entries have left, a bit each, the first entry's the lowest (little endian);
absent where none has.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from holdfast.storage.layout.records import COUNT, EntryRef, Group, ends_of, key_of, length_of, pack, place_of

__all__ = ["DATABASES", "Entries"]

DATABASES: Final = (b"entries", b"chunks", b"gaps")

REWRITES_MAX: Final = 256
"""Records that one commit writes anew because most of their entries have left; each takes fresh pages first."""

_REWRITE_SHARE: Final = 4
"""A record of which less than one part in so many is left is written anew."""
_REWRITE_BYTES_MIN: Final = 4_080
"""Shorter ones would give no page back."""

_END: Final = ends_of(1)
_TWO_ENDS: Final = ends_of(2)

Transaction = Any
"""lmdb.Transaction, with buffers: keys and values are views that end with it."""


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
                other, start = place_of(cursor.key())
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
                other, start = place_of(cursor.key())
                if other == queue_id and start <= sequence:
                    for found, value in self._values(txn, cursor, start, sequence, 1):
                        return value if found == sequence else None
        return None

    def get_all(self, txn: Transaction, queue_id: int, sequences: Sequence[int], *, bytes_max: int) -> dict[int, bytes]:
        """See `EntryReader.get_all`."""
        found: dict[int, bytes] = {}
        gapped = txn.stat(self._gaps)["entries"] > 0
        start = count = base = gone = 0
        record: Any = b""
        with txn.cursor(db=self._entries) as cursor:
            for sequence in sequences:
                if not start <= sequence < start + count:
                    if not self._seek(cursor, queue_id, sequence):
                        continue
                    key, record = cursor.key(), cursor.value()
                    other, start = place_of(key)
                    count = length_of(record) if other == queue_id else 0
                    if not start <= sequence < start + count:
                        continue
                    base = 2 + 4 * count
                    gone = self._gone(txn, key) if gapped and count > 1 else 0
                if not COUNT.unpack_from(record)[0]:
                    value = self._whole(txn, bytes(cursor.key()), record)
                else:
                    index = sequence - start
                    if gone >> index & 1:
                        continue
                    begin, end = (
                        _TWO_ENDS.unpack_from(record, 4 * index - 2) if index else (0, *_END.unpack_from(record, 2))
                    )
                    value = bytes(record[base + begin : base + end])
                found[sequence] = value
                bytes_max -= len(value)
                if bytes_max <= 0:
                    break
        return found

    def _seek(self, cursor: Any, queue_id: int, sequence: int) -> bool:
        """Puts the cursor on the record that holds the place, or else on the first behind it; False: there is none."""
        key = key_of(queue_id, sequence)
        found: bool = cursor.set_range(key)
        if found and cursor.key() == key:
            return True
        if cursor.prev() if found else cursor.last():
            other, start = place_of(cursor.key())
            if other == queue_id and sequence < start + length_of(cursor.value()):
                return True
            return found and bool(cursor.next())
        return found and bool(cursor.first())

    def _values(
        self, txn: Transaction, cursor: Any, start: int, first: int, count_max: int, *, gapped: bool = True
    ) -> list[tuple[int, bytes]]:
        """The entries of the record at the cursor from `first` on, at most so many. `gapped`: some may have left."""
        record = cursor.value()
        count = COUNT.unpack_from(record)[0]
        if not count:
            return [(start, self._whole(txn, bytes(cursor.key()), record))] if start >= first else []
        gone = self._gone(txn, cursor.key()) if gapped else 0
        skipped = min(max(0, first - start), count)
        gone >>= skipped
        wanted = count - skipped if gone else min(count - skipped, count_max)
        ends = ends_of(skipped + wanted).unpack_from(record, 2)
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
                    other, start = place_of(key)
                    if other != queue_id:
                        break
                    if start > sequence:
                        at = bisect_left(sequences, start, at + 1)
                        present = True
                        continue
                    record = cursor.value()
                    count = length_of(record)
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
                    and place_of(cursor.key())[0] == queue_id
                ):
                    for entry in group.entries:
                        self._append_one(txn, cursor, entry)
                else:
                    records += group.records
                    chunks += group.chunks
            if records and place_of(records[0][0]) >= end:
                cursor.putmulti(records, append=True)
            elif records:
                _put_ascending(cursor, records)
        if chunks:
            with txn.cursor(db=self._chunks) as cursor:
                _put_ascending(cursor, chunks)

    def _end(self, cursor: Any) -> EntryRef:
        """The place behind the last of all records."""
        if not cursor.last():
            return (0, 0)
        queue_id, start = place_of(cursor.key())
        return (queue_id, start + length_of(cursor.value()))

    def _append_one(self, txn: Transaction, cursor: Any, entry: tuple[int, int, bytes]) -> None:
        """An entry before, or in the place of, others of its queue."""
        queue_id, sequence, value = entry
        if self._seek(cursor, queue_id, sequence):
            other, start = place_of(cursor.key())
            if other == queue_id and start <= sequence:
                self._write_anew(txn, cursor, start, {sequence: value}, self._gone(txn, cursor.key()))
                return
        self._put(txn, [entry])

    def _write_anew(self, txn: Transaction, cursor: Any, start: int, added: dict[int, bytes], gone: int) -> None:
        """The record at the cursor without those that are gone, and with what is added within it."""
        key = bytes(cursor.key())
        queue_id = place_of(key)[0]
        record = bytes(cursor.value())
        count = COUNT.unpack_from(record)[0]
        values: dict[int, bytes] = {}
        if count:
            ends = (0, *ends_of(count).unpack_from(record, 2))
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
        cut = not COUNT.unpack_from(record)[0]
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
        other, start = place_of(key)
        return bool(other == queue_id and start <= sequence < start + length_of(cursor.value()))


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
    ends = (0, *ends_of(count).unpack_from(record, 2))
    left = sum([ends[index + 1] - ends[index] for index in range(count) if not gone >> index & 1])
    return bool(left * _REWRITE_SHARE < len(record))


def _put_ascending(cursor: Any, records: list[tuple[bytes, bytes]]) -> None:
    """Put `records`, sorted by key. What lies beyond the last key is appended: full pages, no search."""
    last = bytes(cursor.key()) if cursor.last() else b""
    split = bisect_left(records, (last, b"\xff" * 32)) if records[0][0] <= last else 0
    if split:
        cursor.putmulti(records[:split])
    if split < len(records):
        cursor.putmulti(records[split:], append=True)
