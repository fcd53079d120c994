"""Reads files that may be anything: no more of one than was asked for, and by default no pipe, since that would wait
for whoever writes to it."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def read_regular(path: Path, bytes_max: int) -> tuple[bytes, int]:
    """Up to `bytes_max + 1` bytes, so that the caller can tell a larger file, and the mode of the file that was read,
    since another may have its name by then. Raises OSError, also for what is no regular file."""
    with _opened(path, os.O_NONBLOCK) as stream:  # otherwise it would wait for the writer of a pipe
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return stream.read(bytes_max + 1), stat.S_IMODE(found.st_mode)


def read_any(path: Path, bytes_max: int) -> bytes:
    """Up to `bytes_max + 1` bytes of any file, a pipe included, for whose writer it waits: for a command whose user has
    named it. Raises OSError."""
    with _opened(path, 0) as stream:
        return stream.read(bytes_max + 1)


def check_regular(path: Path) -> None:
    """Raises OSError if the file cannot be read, or is no regular one."""
    read_regular(path, 0)


def _opened(path: Path, flags: int) -> BinaryIO:
    """Raises OSError, also for a name that no file can have."""
    try:
        return open(path, "rb", opener=lambda name, given: os.open(name, given | flags))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None
