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
    """As on disk: drawn when the store was created, and drawn again if it needs a new one (CUSTODY, "Names")."""

    copied: str | None
    """Why the store is taken for a copy or for a restored older one, as text for people; None if it is not. Stays set
    until the store has a new UUID: a node that went on under the old one would give numbers a second time."""

    def draw_uuid(self) -> UUID:
        """A UUID that no store has. It is not stored; `Batch.mint` does that."""

    def mint(self, rows: Callable[[UUID], Rows] | None = None) -> UUID:
        """A new UUID, committed together with the rows that `rows` makes for it before this returns; for a caller that
        has just opened the store. A running node has the writer's thread commit it (`Batch.mint`)."""

    on_disk: bool
    """Whether the store is a file, so that `gone` has to be polled."""

    def gone(self) -> str | None:
        """Why the file that this store writes is no longer the one at its path, as text for people; None if it is.
        While it is gone appends are refused and `room_bytes` is far below 0; stored entries can be read and retired.
        Cheap; also called in the writer's thread."""

    def space(self) -> Space:
        """How much of its disk the store uses and may use."""

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) pairs of a small table, ordered by key. Read at start only."""

    def commit(self, batch: Batch) -> None:
        """Commits the whole batch in one transaction with one sync. Runs in the writer's thread, one call at a time.

        Raises `StorageFull` (nothing written; for want of map or disk space) or `StorageError` (the disk failed; the
        store must not be used again).
        """

    def room_bytes(self) -> int:
        """Bytes of new appends that certainly fit now, without the reserve for retiring and forwarding.

        Grows the file ahead if the disk allows it, never above `bytes_max`. Negative once the reserve is in use. Called
        on the loop's thread after each commit: cheap.
        """

    def room_bytes_possible(self) -> int:
        """What `room_bytes` would be if the file were as long as the disk and `bytes_max` allow now."""

    def growth_bytes(self) -> int:
        """`room_bytes_possible` less `room_bytes`: what the file may still grow by. Cheap: measures nothing of the
        store and grows no file. At least 0."""

    def room_bytes_most(self) -> int:
        """What `room_bytes` would be if nothing were stored and the disk were otherwise empty."""

    @property
    def pieces_a_byte(self) -> int:
        """How many bytes of pieces of large messages take one byte of `room_bytes`, which holds for values of any
        size."""

    @property
    def shared_bytes(self) -> int:
        """How far below 0 `room_bytes` may go before appends are refused: what forwarding may use of the reserve."""

    def bytes_on_disk(self) -> int:
        """Bytes that the store occupies on disk, including space allocated ahead."""

    def close(self) -> None:
        """Closes the store. Idempotent."""
