"""The store's contract: entries in order, blobs in pieces, small tables, one transaction with one sync a batch.

Rules of this file: types only. `lmdb.py` and `memory.py` implement it; `tests/contract/test_store.py` holds
both to it. `Batch` and `EntryReader` are the broker's own (`engine/port.py`).

Ordering that a store promises: when `commit` returns, everything in the batch is on stable storage; when it
raises, nothing of the batch is. `commit` runs in the writer's thread; every other method runs on the loop's
thread and may run while a commit is in flight, and sees the last finished commit or the one before it.
"""

from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

from holdfast.engine.port import PIECE_BYTES, TABLES, Batch, EntryReader, Rows, Space

__all__ = ["PIECE_BYTES", "TABLES", "Batch", "EntryReader", "Rows", "Space", "Store"]


class Store(EntryReader, Protocol):
    """A store that is open. Made by `LmdbStore(path, …)` or `MemoryStore()`."""

    uuid: UUID
    """Drawn when the store was made, or anew where it needs another (CUSTODY, "Names"): as on disk."""

    copied: str | None
    """Why the store is taken for a copy, or an older one put back, for people to read; None where it is not. Stands
    until it has another UUID: whoever goes on under the old UUID would give numbers a second time."""

    def draw_uuid(self) -> UUID:
        """A UUID that no store has. Nothing is stored of it: `Batch.mint` does that."""

    def mint(self, rows: Callable[[UUID], Rows] | None = None) -> UUID:
        """A fresh UUID, committed before the return together with what `rows` says of it: for who begins with the
        store. A node that runs has the writer's thread commit it (`Batch.mint`)."""

    on_disk: bool
    """Whether `gone` is to be asked now and then."""

    def gone(self) -> str | None:
        """Why the file that this store writes is not the one at its place any more, for people to read; None where it
        is. While it is gone no append is taken, and `room_bytes` is far below 0; what is there can be read and retired.
        Cheap; also called in the writer's thread."""

    def space(self) -> Space:
        """What it has of its disk."""

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) of a small table, by key. Read at start only."""

    def commit(self, batch: Batch) -> None:
        """The whole batch, one transaction, one sync. Runs in the writer's thread, one call at a time.

        Raises `StorageFull` (nothing written; for want of map or disk space) or `StorageError` (the disk
        failed; the store is not to be used again).
        """

    def room_bytes(self) -> int:
        """Bytes of new appends that are sure to fit now, the reserve for retiring and forwarding left aside.

        Grows the file ahead where the disk allows, never the size over `bytes_max`. Negative inside the
        reserve. Called on the loop's thread after each commit: cheap.
        """

    def room_bytes_possible(self) -> int:
        """What `room_bytes` would be if the file were as long as the disk and `bytes_max` allow now."""

    def room_bytes_most(self) -> int:
        """What `room_bytes` would be if nothing were stored, and nobody else had anything on its disk."""

    @property
    def pieces_a_byte(self) -> int:
        """How many bytes of pieces take one byte of `room_bytes`, which is told for values of any size."""

    @property
    def shared_bytes(self) -> int:
        """How far below 0 `room_bytes` may go before appends are refused: what forwarding may use of the reserve."""

    def bytes_on_disk(self) -> int:
        """Bytes that the store occupies on disk, allocated-ahead space included."""

    def close(self) -> None:
        """Idempotent."""
