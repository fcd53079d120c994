"""Blobs in LMDB: pieces by their place, each on pages of its own.

Rules of this file: works inside the caller's transaction. Layout: database `blobs`, blob (u64 BE) + index (u32 BE) →
a piece.
"""

from struct import Struct
from typing import Any, Final

import lmdb

DATABASES: Final = (b"blobs",)

_key = Struct(">QI").pack


class Pieces:
    """The pieces of all blobs; `database` as DATABASES names it."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def get(self, txn: "lmdb.Transaction[memoryview]", blob: int, index: int) -> bytes | None:
        found = txn.get(_key(blob, index), db=self._database)
        return None if found is None else bytes(found)

    def drop(self, txn: "lmdb.Transaction[memoryview]", drops: list[tuple[int, int, int]]) -> None:
        with txn.cursor(db=self._database) as cursor:
            for blob, first, end in drops:
                stop = _key(blob, end)
                found = cursor.set_range(_key(blob, first))
                while found and bytes(cursor.key()) < stop:
                    cursor.delete()
                    found = bool(cursor.key())

    def put(self, txn: "lmdb.Transaction[memoryview]", pieces: list[tuple[int, int, bytes]]) -> None:
        rows = {_key(blob, index): data for blob, index, data in pieces}  # the last of a place remains
        with txn.cursor(db=self._database) as cursor:
            cursor.putmulti(sorted(rows.items()))
