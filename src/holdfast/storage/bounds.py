"""Checks of a batch that both stores make before they write any of it.

Rules of this file: pure functions; a violation is a defect of the caller, never a state of the disk.
"""

from holdfast.errors import LocalProtocolError
from holdfast.storage.port import PIECE_BYTES, TABLES, Batch
from holdfast.units import MIB

TABLE_KEY_BYTES_MAX = 400
TABLE_VALUE_BYTES_MAX = MIB
QUEUE_ID_MAX = (1 << 32) - 1
SEQUENCE_MAX = (1 << 64) - 1
BLOB_MAX = (1 << 64) - 1
PIECES_MAX = (1 << 32) - 1

_TABLES = frozenset(TABLES)


def check_table(name: str) -> None:
    """Raise `LocalProtocolError` unless `name` is one of `TABLES`."""
    if name not in _TABLES:
        raise LocalProtocolError(f"invalid table {name!r}; expected one of {', '.join(TABLES)}")


def check_rows(batch: Batch) -> None:
    """`check_put` of all puts and deletes."""
    for table, key in batch.deletes:
        check_put(table, key, b"")
    for (table, key), value in batch.puts.items():
        check_put(table, key, value)


def check_put(table: str, key: bytes, value: bytes) -> None:
    """Raise `LocalProtocolError` for an unknown table, or a key or value beyond its bounds."""
    check_table(table)
    if not 0 < len(key) <= TABLE_KEY_BYTES_MAX:
        text = f"invalid key of {len(key)} bytes in table {table!r}; expected 1 to {TABLE_KEY_BYTES_MAX}"
        raise LocalProtocolError(text)
    if len(value) > TABLE_VALUE_BYTES_MAX:
        raise LocalProtocolError(
            f"invalid value of {len(value)} bytes in table {table!r}; expected up to {TABLE_VALUE_BYTES_MAX}"
        )


def check_entry(queue_id: int, sequence: int) -> None:
    """Raise `LocalProtocolError` unless these are a u32 and a u64."""
    if not (0 <= queue_id <= QUEUE_ID_MAX and 0 <= sequence <= SEQUENCE_MAX):
        raise LocalProtocolError(f"queue {queue_id}, sequence {sequence}: not a u32 and a u64")


def check_entries(places: list[tuple[int, int]]) -> None:
    """`check_entry` of all."""
    for queue_id, sequence in places:
        if not (0 <= queue_id <= QUEUE_ID_MAX and 0 <= sequence <= SEQUENCE_MAX):
            check_entry(queue_id, sequence)


def check_pieces(batch: Batch) -> None:
    """Raise `LocalProtocolError` unless pieces and drops name a u64 and u32s, and pieces have a length in bounds."""
    for blob, index, data in batch.pieces:
        _check_place(blob, index, index)
        if not 0 < len(data) <= PIECE_BYTES:
            raise LocalProtocolError(f"invalid piece of {len(data)} bytes of blob {blob}; expected 1 to {PIECE_BYTES}")
    for blob, first, end in batch.drops:
        _check_place(blob, first, end)


def _check_place(blob: int, first: int, end: int) -> None:
    if not (0 <= blob <= BLOB_MAX and 0 <= first <= PIECES_MAX and 0 <= end <= PIECES_MAX):
        raise LocalProtocolError(f"blob {blob}, pieces {first} to {end}: not a u64 and u32s")
