"""The space of a store on disk: what new entries may take, the reserve, and the file that grows ahead of need.

Rules of this file: the reported room exists, whatever the next commit contains; what is not measured is reckoned, and
then less. What the loop's thread calls writes nothing to the disk, which may be frozen (docs/adr/0026).

Why a reserve: LMDB never writes a page in place, and uses a freed one again only in the second transaction after the
one that freed it; so a full store needs spare pages to retire from.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final

import lmdb

from holdfast.errors import StorageFull
from holdfast.storage.files.allocation import Allocation, file_limit_bytes
from holdfast.storage.files.readers import NodeReaderLock
from holdfast.storage.layout.pages import META_PAGES
from holdfast.storage.layout.records import Group
from holdfast.storage.port import Batch, Space
from holdfast.units import MIB

__all__ = ["Room"]

RESERVE_BYTES_MAX: Final = 16 * MIB
DISK_SHARE: Final = 4
"""The reserve, and what is kept allocated ahead, are each one part in so many of what the store may have at the most:
a fixed size would leave a small disk nothing for messages, and nothing for others."""

OWN_BYTES: Final = MIB
OWN_SHARE: Final = 16
"""What tables, and the list of free pages after much was stored and left, may take of an empty store: so many
bytes, or a share of a small one."""
DISK_BYTES_PER_BYTE: Final = 3
"""The worst that LMDB makes of a value: 1.4 KB, of which one fits a page that was split in its middle."""
DISK_BYTES_PER_ENTRY: Final = 48
"""Key, node header and slot of an entry on a page half full; the former covers it from 48 bytes on."""
MEASURE_EVERY_S: Final = 0.25
"""How long a count of the free pages holds, less what was taken since."""
GROW_WAIT_S: Final = 0.05
"""What the loop's thread waits for a growing file; a few milliseconds are the rule."""
COMMIT_PAGES: Final = 64
"""Pages that any commit may copy: the paths to what it touches, and the list of free pages."""


class Room:
    """Of the store in `path`: its environment, what reads it beside, and `writing`, which is held while one writes.

    `bytes_max`, the file's bound, is a whole number of pages. It may be more than what was asked for: where that is
    below what is stored, retiring must still have pages to copy to. `ahead_bytes` as for `LmdbStore`.

    Every method raises lmdb.Error and OSError for a disk that fails.
    """

    def __init__(
        self,
        path: Path,
        env: lmdb.Environment,
        databases: Sequence[Any],
        readers: NodeReaderLock,
        writing: Lock,
        *,
        page_bytes: int,
        bytes_max: int,
        ahead_bytes: int,
    ) -> None:
        self._path = path
        self._env = env
        self._databases = databases
        self._readers = readers
        self._writing = writing
        self._page_bytes = page_bytes
        self._ahead_wanted_bytes = ahead_bytes
        self._reserve_bytes = self._ahead_bytes = 0
        self._middle_bytes = 0
        """Free below the file's end when last measured, less the most that was used of it since."""
        self._measure_at = 0.0
        self._closed = False
        bytes_max -= bytes_max % page_bytes
        lacking = min(RESERVE_BYTES_MAX, bytes_max // DISK_SHARE) // 2 - self._spare_bytes(bytes_max)
        if lacking > 0:
            # Half the reserve, which appends leave: with more a full store would grow each time that it is opened.
            bytes_max += lacking + -lacking % page_bytes
            env.set_mapsize(bytes_max)
            readers.renew()
        self.bytes_max = bytes_max
        self.allocation: Allocation

    def allocate(self, data_fd: int) -> None:
        """Takes the disk space that is kept ahead, once; the file is open as `data_fd`. All else comes after it."""
        self.allocation = Allocation(data_fd, self.bytes_max)
        self._measure_disk()
        self.allocation.grow(self.used_bytes() + self._ahead_bytes)

    def close(self) -> None:
        """Under `writing`: the file grows no more."""
        self._closed = True

    # ------------------------------------------------------------------------------------------------ what is left

    def room_bytes(self) -> int:
        """See `Store.room_bytes`: a third of what is free, less the reserve; for values from 48 bytes on.

        Asked after every commit: while there is plenty, what is free in the file's middle is counted now and then, and
        taken to be less by the most that each commit since may have used.
        """
        sure = self.surely_bytes()
        if sure is None:
            sure = self._measure_room()
        return (sure - self._reserve_bytes) // DISK_BYTES_PER_BYTE

    def room_bytes_most(self) -> int:
        """See `Store.room_bytes_most`."""
        most = min(self.allocation.bytes_most, self.allocation.disk_bytes())
        most -= min(RESERVE_BYTES_MAX, most // DISK_SHARE) + min(OWN_BYTES, most // OWN_SHARE)
        return most // DISK_BYTES_PER_BYTE

    def growth_bytes(self) -> int:
        """What `room_bytes` would be more if the file were as long as the disk allows now, at most
        `allocation.bytes_most`."""
        return (self.bytes_most() - self.allocation.bytes) // DISK_BYTES_PER_BYTE

    @property
    def shared_bytes(self) -> int:
        """See `Store.shared_bytes`."""
        return self._reserve_bytes // 2 // DISK_BYTES_PER_BYTE

    def space(self) -> Space:
        """See `Store.space`."""
        allocation = self.allocation
        return Space(allocation.occupied(), self.bytes_max, allocation.free_on_disk(), file_limit_bytes())

    def bytes_most(self) -> int:
        """What the file may grow to on the disk as it is now, at most `allocation.bytes_most`."""
        return min(self.allocation.bytes_most, self.allocation.bytes + self.allocation.free_on_disk())

    def surely_bytes(self) -> int | None:
        """At the most what `sure_bytes` says, for one call of LMDB; None where it is to be measured."""
        if monotonic() >= self._measure_at:
            return None
        if self._readers.foreign:  # a backup's snapshot may keep what is free from being used
            return None
        sure = self._tail_bytes() + max(0, self._middle_bytes)
        return sure if sure >= self._ahead_bytes else None

    def _measure_room(self) -> int:
        """`sure_bytes`, now; the file grows where it is less than is to be ahead."""
        sure = self._measure()
        # Disk space may have come back while nothing is committed.
        if sure is not None and sure < self._ahead_bytes and self.allocation.can_grow(self._ahead_target(0)):
            self._grow_aside()
            sure = self._measure()
        return self.sure_bytes() if sure is None else sure

    def _measure(self) -> int | None:
        """`sure_bytes`, noted; None during a write: what a commit takes is not to be counted as there."""
        if not self._writing.acquire(blocking=False):
            return None
        try:
            self._readers.look()
            sure = self.sure_bytes()
            self._middle_bytes = sure - self._tail_bytes()
            self._measure_at = monotonic() + MEASURE_EVERY_S
            return sure
        finally:
            self._writing.release()

    def _grow_aside(self) -> None:
        """Grows the file in a thread that is waited for briefly: on a frozen file system it does not come back."""
        failures: list[OSError] = []

        def grow() -> None:
            with self._writing:
                try:
                    if not self._closed:
                        self._grow(0)
                except OSError as error:
                    failures.append(error)

        thread = Thread(target=grow, name="holdfast-growing", daemon=True)
        thread.start()
        thread.join(GROW_WAIT_S)
        if failures:
            raise failures[0]

    # ------------------------------------------------------------------------------------------------ a commit

    def make(self, batch: Batch, groups: list[Group]) -> None:
        """Raise `StorageFull` unless the appends fit and leave half of the reserve; grow the file first."""
        rows = _row_sizes(batch, groups)
        total = sum(rows) + sum([len(key) + len(value) for (_, key), value in batch.puts.items()])
        count = len(rows) + len(batch.puts)
        needed = total * DISK_BYTES_PER_BYTE + count * DISK_BYTES_PER_ENTRY
        needed += COMMIT_PAGES * self._page_bytes + self._reserve_bytes // 2
        if self._tail_bytes() >= needed + self._reserve_bytes // 2:
            return
        self._grow(needed)
        if self._tail_bytes() >= needed:
            return
        sure = self.sure_bytes()
        if sure >= needed:
            return
        needed = self._needed_bytes(batch, groups)
        if sure >= needed:
            return
        raise StorageFull(
            f"store {self._path}: {total} bytes of new entries do not fit; free: {max(0, sure)} bytes, "
            f"of which {self._reserve_bytes} are kept for retiring and forwarding"
        )

    def _needed_bytes(self, batch: Batch, groups: list[Group]) -> int:
        """What the appends may take at the worst, each row by its own size."""
        page = self._page_bytes
        needed = COMMIT_PAGES * page + self._reserve_bytes // 2
        for size in _row_sizes(batch, groups):
            if size < page // 2:
                needed += max(size * DISK_BYTES_PER_BYTE, 2 * size + DISK_BYTES_PER_ENTRY)
            else:
                needed += (size // (page - 16) + 1) * page + DISK_BYTES_PER_ENTRY
        for value in batch.puts.values():
            needed += (len(value) // page + 1) * page  # a leaf each at the worst
        return needed

    def took(self, batch: Batch) -> None:
        """The batch is on disk, and may have taken so many pages at the most."""
        size = batch.bytes_appended or sum([len(value) for _, _, value in batch.appends])
        rows = len(batch.appends) + len(batch.puts) + len(batch.retires)
        pages = COMMIT_PAGES + (size * DISK_BYTES_PER_BYTE + rows * DISK_BYTES_PER_ENTRY) // self._page_bytes
        self._middle_bytes -= pages * self._page_bytes
        if self._readers.foreign:
            self._readers.took(pages)

    # ------------------------------------------------------------------------------------------------ the file

    def _grow(self, needed: int) -> bool:
        """Allocate ahead where less than `_ahead_bytes` or `needed` is left at the end. Under `writing`."""
        if self._tail_bytes() >= max(self._ahead_bytes, needed):
            return False
        self._measure_disk()
        return self.allocation.grow(self._ahead_target(needed))

    def _ahead_target(self, needed: int) -> int:
        """How long the file is to become: half as much again as is wanted, so that not every commit grows it."""
        wanted = max(self._ahead_bytes, needed)
        return self.used_bytes() + wanted + wanted // 2

    def _measure_disk(self) -> None:
        """Adjusts the reserve, and the space allocated ahead, to the disk's present free space. They never shrink: what
        was set aside is allocated."""
        most = self.bytes_max // DISK_SHARE
        if self._ahead_bytes == min(self._ahead_wanted_bytes, most) + min(RESERVE_BYTES_MAX, most):
            return
        share = self.bytes_most() // DISK_SHARE
        self._reserve_bytes = max(self._reserve_bytes, min(RESERVE_BYTES_MAX, share))
        self._ahead_bytes = max(self._ahead_bytes, min(self._ahead_wanted_bytes, share) + self._reserve_bytes)

    def used_bytes(self) -> int:
        """Of the file, up to the last page that was ever used."""
        return (self._env.info()["last_pgno"] + 1) * self._page_bytes

    def _tail_bytes(self) -> int:
        """Allocated and never used."""
        return self.allocation.bytes - self.used_bytes()

    def sure_bytes(self) -> int:
        """What may be used by the next commit, the reserve included."""
        return self._spare_bytes(self.allocation.bytes)

    def _spare_bytes(self, end: int) -> int:
        """In a file of `end` bytes never used, or free again; less what the list of free pages takes and what has
        to come of age."""
        with self._env.begin() as txn:
            stats = [txn.stat(), *[txn.stat(database) for database in self._databases]]
        used = sum([stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats])
        last = self._env.info()["last_pgno"] + 1
        free = last - META_PAGES - used
        if self._readers.foreign:
            free = min(free, self._readers.reusable_pages())
        free -= free * 8 // self._page_bytes + COMMIT_PAGES
        return end + (max(0, free) - last) * self._page_bytes


def _row_sizes(batch: Batch, groups: list[Group]) -> list[int]:
    """Bytes of each value that the batch's appends and pieces are stored as."""
    sizes = [len(value) for group in groups for _, value in (*group.records, *group.chunks)]
    return sizes + [len(data) for _, _, data in batch.pieces]
