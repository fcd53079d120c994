"""Syncs files and directories, so that a power loss does not undo them; replaces files as a whole.

Rules of this file: a file may be gone after a power loss if its directory was not synced after the file was created or
renamed. A path that a person named goes through `replaceable` first; `whole_file` replaces whatever has that name.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

__all__ = [
    "changing",
    "owner_of",
    "remove_leftovers",
    "replace_file",
    "replaceable",
    "sync_directories",
    "sync_file",
    "whole_file",
]

LEFT_S: Final = 86_400.0
"""After so long nobody writes a file any more that is not there under its name yet."""
_HEX: Final = re.compile("[0-9a-f]{32}")
_LINKS_MAX: Final = 40
"""Symbolic links, each named by the one before, that the kernel follows too."""
_STEM_BYTES: Final = 255 - 33
"""Of a name's 255."""
_PROCESSES: Final = Path("/proc")
"""Its links lead to open files, whatever names those have."""


def sync_file(place: Path) -> None:
    """A file's data and length, or a directory's names, on disk. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(lowest: Path, count: int | None = None) -> None:
    """The names in the directory `lowest` and in those above it up to its file system's root, or in `count` of them."""
    place = lowest.resolve()
    for directory in (place, *place.parents)[:count]:
        try:
            sync_file(directory)
        except PermissionError:
            continue  # a directory that we may not open was not created by us
        if os.path.ismount(directory):
            break


def _stem(path: Path) -> str:
    """How the hidden names of what is to become `path` begin; so short that with 32 more characters a name fits."""
    return os.fsencode(f".{path.name}")[:_STEM_BYTES].decode(errors="ignore") + "."


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """What `path` is to contain: on disk, it takes that name if the block ends without an exception; otherwise it is
    removed. Until then its name is hidden, and another for each process, also on another machine, where one may have
    our number. The directory is synced by the caller, who may put several files there. OSError."""
    part = path.with_name(_stem(path) + uuid4().hex)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def replaceable(path: Path) -> Path:
    """The file that `path` leads to, which another may take the place of: symbolic links stay. OSError where that is a
    directory, a device, a pipe or a socket, or an open file of a process (/dev/stdout); or for root where a link is of
    another user, who may write in that directory and would choose what root replaces."""
    for _ in range(_LINKS_MAX):
        place = Path(os.path.realpath(path.parent), path.name)
        if place.is_relative_to(_PROCESSES):
            raise OSError(errno.EINVAL, "it stands for an open file, and has no name", str(path))
        if not place.is_symlink():
            if place.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if place.exists() and not place.is_file():
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            return place
        if os.geteuid() == 0 and place.lstat().st_uid != 0:
            raise PermissionError(errno.EPERM, "a symbolic link of another user, which root does not follow", str(path))
        path = place.parent / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes have left of files that were to become `path`, where that was a day ago: a younger
    one may be another process's, which still writes it. What cannot be removed stays."""
    stem, ended_s = _stem(path), time.time() - LEFT_S
    with suppress(OSError):
        for file in path.parent.iterdir():
            if file.name.startswith(stem) and _HEX.fullmatch(file.name, len(stem)):
                with suppress(OSError):
                    if file.lstat().st_mtime < ended_s:
                        file.unlink()


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Puts a file with that content in the place of the one that `path` leads to, on disk: a reader sees the old or the
    new file. It has the owner that `_owner_for` says. OSError."""
    path = replaceable(path)
    owner = _owner_for(path)
    remove_leftovers(path)
    with whole_file(path, mode) as stream:
        os.fchmod(stream.fileno(), mode)  # whatever the umask is
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.fchown(stream.fileno(), *owner)
        stream.write(data)
    sync_file(path.parent)


def owner_of(path: Path) -> tuple[int, int] | None:
    """User and group of a file or directory; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def _owner_for(path: Path) -> tuple[int, int] | None:
    """User and group for what `replace_file` puts in the place of `path`: those of the file that is there, so that a
    node which runs as another user can still read it. A new file of root's gets those of its directory, for the same
    reason; nobody else may give a file away."""
    found = owner_of(path)
    return owner_of(path.parent) if found is None and os.geteuid() == 0 else found


@contextmanager
def changing(directory: Path, *, waits: bool = True) -> Iterator[None]:
    """A lock: within the block, other callers of `changing` do not change the files of that directory. `waits`: for
    them; otherwise BlockingIOError while there is one."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
