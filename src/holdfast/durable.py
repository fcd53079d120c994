"""Syncs files and directories, so that a power loss does not undo them; replaces files as a whole.

Rules of this file: a file may be gone after a power loss if its directory was not synced after the file was created or
renamed. A path that a person named goes through `replacing`, which replaces what it may (replaceable.py); `whole_file`
replaces whatever has that name.
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

from holdfast.replaceable import Place, replaceable

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
_STEM_BYTES: Final = 255 - 33
"""A name has at most 255 bytes; the dot and 32 hex digits take 33."""


class NotSynced(OSError):
    """The file is replaced, and its directory cannot be synced: a power loss may undo that."""


def sync_file(place: Path, directory: int | None = None) -> None:
    """A file's data and length, or a directory's names, on disk. `directory`: an open one, in which `place` is. Raises
    OSError."""
    descriptor = os.open(place, os.O_RDONLY, dir_fd=directory)
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
def whole_file(path: Path, mode: int = 0o666, directory: int | None = None) -> Iterator[BinaryIO]:
    """What `path` is to contain: on disk, it takes that name if the block ends without an exception; otherwise it is
    removed. Until then its name is hidden, and another for each process, also on another machine, where one may have
    our number. `mode` is subject to the umask. `directory`: the file's own, if it is open. The directory is synced by
    the caller, who may put several files there. OSError."""
    part = path.with_name(_stem(path) + uuid4().hex)
    name, hidden = (path, part) if directory is None else (Path(path.name), Path(part.name))
    descriptor = _created(path, hidden, mode, directory)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(hidden, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden, dir_fd=directory)
        raise


def _created(path: Path, hidden: Path, mode: int, directory: int | None) -> int:
    """Creates `hidden`. An OSError names `path`, the name that the user knows."""
    try:
        return os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A new file, which replaces the one that `path` leads to, on disk, if the block ends without an exception: a
    reader sees the old or the new file.

    `mode`: exactly that, whatever the umask is; and the owner that `_owner_for` says, without whom nothing is replaced.
    None: the mode of the file that is there, and its owner if we may give it away; otherwise its group loses its
    rights. OSError; `NotSynced` if the file is replaced nevertheless."""
    with replaceable(path) as place:
        there, keeps = place.file_stat, mode is None
        owner = _owner_for(place, path, is_new_given=not keeps)
        if mode is None:
            mode = 0o666 if there is None else stat.S_IMODE(there.st_mode) & 0o777
        _remove_leftovers(place)
        with whole_file(place.path, mode, place.directory) as file:
            made = os.fstat(file.fileno())
            if owner is not None and owner != (made.st_uid, made.st_gid):
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
            sync_file(Path(), place.directory)
        except OSError as error:
            raise NotSynced(error.errno, error.strerror, str(path)) from error


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replaces the file that `path` leads to by one with that content and exactly that mode (`replacing`)."""
    with replacing(path, mode) as file:
        file.write(data)


def _remove_leftovers(place: Place) -> None:
    """Removes what killed processes have left of files that were to become that one, where that was a day ago: a
    younger one may be another process's, which still writes it. What cannot be removed stays."""
    stem, ended_s = _stem(place.path), time.time() - LEFTOVER_AGE_S
    with suppress(OSError):
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place.directory)
        try:
            for name in os.listdir(directory):
                if name.startswith(stem) and _HEX.fullmatch(name, len(stem)):
                    with suppress(OSError):
                        if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < ended_s:
                            os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def _owner_for(place: Place, path: Path, *, is_new_given: bool) -> tuple[int, int] | None:
    """User and group for what is put there: those of the file that is there, so that a node which runs as another user
    can still read it. `is_new_given`: a new file of root's gets those of its directory, for the same reason; nobody
    else may give a file away.

    Root gives nothing to a user who may have put the file, or a directory above it, there for that: PermissionError, as
    of the kernel, which does not open such a file either."""
    is_root, found = os.geteuid() == 0, place.file_stat
    if found is None and is_root and is_new_given:
        found = place.directory_stat
    if found is None:
        return None
    if is_root and found.st_uid != 0 and place.untrusted is not None:
        raise PermissionError(errno.EPERM, _untrusted_text(place.untrusted, found.st_uid), str(path))
    return found.st_uid, found.st_gid


def _untrusted_text(untrusted: Path, user: int) -> str:
    where = f"{untrusted} belongs to another user, and not only the owner of {untrusted.parent} may write there"
    return f"the file would be user {user}'s: {where}; remove it, or name a file elsewhere"


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
