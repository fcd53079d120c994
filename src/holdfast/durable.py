"""Syncs files and directories, so that a power loss does not undo them; replaces files as a whole.

Rules of this file: a file may be gone after a power loss if its directory was not synced after the file was created or
renamed. A path that a person named goes through `replacing`, which decides what may be replaced; `whole_file` replaces
whatever has that name.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

__all__ = [
    "NotSynced",
    "changing",
    "replace_file",
    "replacing",
    "sync_directories",
    "sync_file",
    "whole_file",
]

LEFTOVER_AGE_S: Final = 86_400.0
"""A hidden part older than this was left by a killed process."""
_HEX: Final = re.compile("[0-9a-f]{32}")
_LINKS_MAX: Final = 40
"""Symbolic links, each named by the one before, that the kernel follows too."""
_STEM_BYTES: Final = 255 - 33
"""A name has at most 255 bytes; the dot and 32 hex digits take 33."""
_PROCESSES: Final = Path("/proc")
"""Below it a path stands for an open file of a process, not for a name."""


class NotSynced(OSError):
    """The file is replaced, and its directory cannot be synced: a power loss may undo that."""


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
    our number. `mode` is subject to the umask. The directory is synced by the caller, who may put several files there.
    OSError."""
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


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """What takes the place of the file that `path` leads to, on disk, if the block ends without an exception: a reader
    sees the old or the new file.

    `mode`: exactly that, whatever the umask is; and the owner that `_owner_for` says, without whom nothing is replaced.
    None: the mode of the file that is there, and its owner if we may give it away; otherwise its group loses its
    rights. OSError; `NotSynced` if the file is replaced nevertheless."""
    place = _replaceable(path)
    keeps = mode is None
    owner = _owner_of(place) if keeps else _owner_for(place)
    if mode is None:
        mode = 0o666 if owner is None else stat.S_IMODE(place.stat().st_mode) & 0o777
    _remove_leftovers(place)
    with whole_file(place, mode) as file:
        if owner is not None and owner != _owner_of(file.fileno()):
            try:
                os.fchown(file.fileno(), *owner)
            except PermissionError:
                if not keeps:
                    raise
                mode &= ~stat.S_IRWXG  # of another group
        if owner is not None or not keeps:
            os.fchmod(file.fileno(), mode)
        yield file
    try:
        sync_file(place.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror, str(path)) from error


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replaces the file that `path` leads to by one with that content and exactly that mode (`replacing`)."""
    with replacing(path, mode) as file:
        file.write(data)


def _replaceable(path: Path) -> Path:
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


def _remove_leftovers(path: Path) -> None:
    """Removes what killed processes have left of files that were to become `path`, where that was a day ago: a younger
    one may be another process's, which still writes it. What cannot be removed stays."""
    stem, ended_s = _stem(path), time.time() - LEFTOVER_AGE_S
    with suppress(OSError):
        for file in path.parent.iterdir():
            if file.name.startswith(stem) and _HEX.fullmatch(file.name, len(stem)):
                with suppress(OSError):
                    if file.lstat().st_mtime < ended_s:
                        file.unlink()


def _owner_of(file: Path | int) -> tuple[int, int] | None:
    """User and group of a file or directory, also of an open one; None if there is none."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def _owner_for(path: Path) -> tuple[int, int] | None:
    """User and group for what `replace_file` puts in the place of `path`: those of the file that is there, so that a
    node which runs as another user can still read it. A new file of root's gets those of its directory, for the same
    reason; nobody else may give a file away."""
    found = _owner_of(path)
    return _owner_of(path.parent) if found is None and os.geteuid() == 0 else found


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
