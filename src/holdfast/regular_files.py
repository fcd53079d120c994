"""Reads files that may be anything: a pipe holds nobody up who does not ask for it, and of a large file no more is read
than was asked for."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def read_regular(path: Path, bytes_max: int) -> tuple[bytes, int]:
    """Up to `bytes_max + 1` bytes, so that the caller can tell a larger file, and the mode of the file that was read,
    since another may have its name by then. OSError, also for what is no regular file: a pipe may have no writer."""
    with _opened(path, os.O_NONBLOCK) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return stream.read(bytes_max + 1), stat.S_IMODE(found.st_mode)


def read_any(path: Path, bytes_max: int) -> bytes:
    """As `read_regular`, and also a pipe, to its end: for a command whose user has named it. OSError."""
    with _opened(path) as stream:
        return stream.read(bytes_max + 1)


def _opened(path: Path, further: int = 0) -> BinaryIO:
    try:
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | further))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None  # a NUL in the name


def check_regular(path: Path) -> None:
    """OSError if the file cannot be read, or is no regular one."""
    read_regular(path, 0)
