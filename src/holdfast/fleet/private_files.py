"""Files of a fleet: written as a whole, private where they hold a secret, read up to a bound.

Rules of this file: whoever reads a file sees the one before or the new one; a change is on disk when the call returns.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.durable import sync_file
from holdfast.errors import ConfigError

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


def write(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Puts a file with that content in the place of `path`. A private file that is replaced keeps its owner, so that
    the node can read it that runs as another user. OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)  # whatever the umask is
            owner = _owner(path)
            if owner != (os.geteuid(), os.getegid()):
                os.fchown(stream.fileno(), *owner)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_file(path.parent)


def _owner(path: Path) -> tuple[int, int]:
    """That of the file, or else of its directory."""
    try:
        found = path.stat()
    except FileNotFoundError:
        found = path.parent.stat()
    return found.st_uid, found.st_gid


def read(path: Path, what: str, bytes_max: int) -> bytes:
    """The content. ConfigError that says what it should be, and names the file."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            data = stream.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}); expected a readable file") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{path}: {what} has more than {bytes_max} bytes; expected a smaller file")
    return data


def read_private(path: Path, what: str, bytes_max: int) -> bytes:
    """As `read`; ConfigError also for a file that others than its owner may read."""
    data = read(path, what, bytes_max)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(f"{path}: others may read {what} (mode {mode:04o}); make it private: chmod 600")
    return data


@contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Nobody else changes the files of that directory meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
