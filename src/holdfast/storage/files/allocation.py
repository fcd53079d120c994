"""Allocates disk space in advance, so that an append never finds the disk full half-way.

Rules of this file: the file only grows at its end, by whole MiB, and never while a transaction writes (without
fallocate in the file system, libc writes a byte to each block, which would race with the transaction).
"""

import errno
import os
import resource
from typing import Final

from holdfast.units import MIB

__all__ = ["FULL_ERRNOS", "Allocation", "file_limit_bytes"]

FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a file system says where space, quota or file size has run out; anything else is a failing disk."""


def file_limit_bytes() -> int | None:
    """Most bytes that a file which this process writes may have (ulimit -f); None without a limit. It may be changed
    from outside at any time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


class Allocation:
    """The allocated length of one file, `fd`, open for writing and owned by the caller.

    `bytes_max` bounds what is counted; a file that was longer stays so.
    """

    def __init__(self, fd: int, bytes_max: int) -> None:
        self._fd = fd
        self._bytes_max = bytes_max
        self.bytes = min(os.fstat(fd).st_size, bytes_max)
        """Bytes from the file's start that have blocks on disk."""
        if self.bytes:
            # A copy may have holes. This walks extents, not blocks; if it is refused, nothing is worse than before.
            try:
                os.posix_fallocate(fd, 0, self.bytes)
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise

    def grow(self, wanted: int) -> bool:
        """Grows the file to `wanted` bytes, or as far as disk and `bytes_most` allow. True if it grew. Raises OSError
        for a failing disk, never for a full one.
        """
        target = self._target(wanted)
        if target <= self.bytes:
            return False
        before = self.bytes
        try:
            os.posix_fallocate(self._fd, self.bytes, target - self.bytes)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        self.bytes = max(before, min(target, os.fstat(self._fd).st_size))
        return self.bytes > before

    def can_grow(self, wanted: int) -> bool:
        """Whether `grow` would try."""
        return self._target(wanted) > self.bytes

    @property
    def bytes_most(self) -> int:
        """What the file may grow to, on a disk with enough room: `bytes_max`, or less by the process's limit."""
        limit = file_limit_bytes()
        return self._bytes_max if limit is None else min(self._bytes_max, max(self.bytes, limit // MIB * MIB))

    def _target(self, wanted: int) -> int:
        target = min(_up(wanted), self.bytes_most)
        if target > self.bytes:
            # Whatever the disk has: the last MiB may be the one that a retirement needs.
            target = min(target, self.bytes + self.free_on_disk() // MIB * MIB)
        return target

    def free_on_disk(self) -> int:
        """Free bytes of the file system."""
        state = os.fstatvfs(self._fd)
        return state.f_bavail * state.f_frsize

    def disk_bytes(self) -> int:
        """Size of the file system in bytes."""
        state = os.fstatvfs(self._fd)
        return state.f_blocks * state.f_frsize

    def occupied(self) -> int:
        """Bytes on disk, as the file system counts blocks."""
        return os.fstat(self._fd).st_blocks * 512


def _up(count: int) -> int:
    return -(-count // MIB) * MIB
