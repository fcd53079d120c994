"""Which file a path that a person named leads to, and whether it may be replaced.

Rules of this file: the kernel protects a process that opens a file from links and files that other users have put into
a directory (fs.protected_symlinks, fs.protected_regular), but not one that reads links and renames files. So this file
applies the same rules to every component of a path. Each component is opened once and examined by its descriptor, so
that nothing that takes its place meanwhile is followed. Source: Linux, fs/namei.c, `may_follow_link` and
`may_create_in_sticky`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Place", "replaceable"]

_LINKS_MAX: Final = 40
"""Symbolic links of one path, which the kernel follows too."""
_PROCESSES: Final = Path("/proc")
"""Below it a path stands for an open file of a process, not for a name."""
_LOOK: Final = os.O_PATH | os.O_CLOEXEC
"""Opens a file, a directory or a symbolic link itself, also without the right to read it, to examine it or to open what
is below it."""
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
"""Others than its owner may write in the directory."""
_SHARED: Final = stat.S_ISVTX | stat.S_IWOTH
"""Everybody may write in the directory, and remove what is their own, as in /tmp."""


class Place(NamedTuple):
    """A file, or where one may be made. `directory`: its own, which is open; `path`: without links; `directory_stat`:
    of the directory is; `found`: what the file is, None if there is none."""

    directory: int
    path: Path
    directory_stat: os.stat_result
    file_stat: os.stat_result | None
    untrusted: Path | None
    """The first of the file and the directories of its path that another user may have put there: it is of another user
    than root, us, and the owner of the directory that it is in, and others than that owner may write in that one."""


@contextmanager
def replaceable(path: Path) -> Iterator[Place]:
    """The file that `path` leads to, in the place of which another may be put: symbolic links stay. Its directory is
    open in the block.

    OSError where that is a directory, a device, a pipe or a socket, or an open file of a process (/dev/stdout). And for
    a link of another user in a directory that everybody may write in, as the kernel has it; root follows no link of
    another user anywhere, who would choose what root replaces."""
    walk = _Walk(path)
    try:
        yield walk.place()
    finally:
        walk.close()


class _Walk:
    """From a directory to the next, one of which is open at a time. OSErrors name `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if os.geteuid() == 0 and not path.is_absolute():
            path = Path.cwd() / path  # who has put the directories above this one there matters to root alone
        self._way = _parts(path)
        self._links = 0
        self._untrusted: Path | None = None
        self._at = Path("/") if path.is_absolute() else Path.cwd()
        self._directory = os.open("/" if path.is_absolute() else ".", _LOOK | os.O_DIRECTORY)
        self._directory_stat = _stat_of(self._directory)

    def close(self) -> None:
        os.close(self._directory)

    def place(self) -> Place:
        while self._way:
            part = self._way.pop()
            if not self._way and self._at.is_relative_to(_PROCESSES):
                raise OSError(errno.EINVAL, "it stands for an open file, and has no name", str(self._path))
            opened = self._opened(part)
            if opened is None:
                return self._place_at(part, None)
            try:
                file_stat = _stat_of(opened)
                if stat.S_ISLNK(file_stat.st_mode):
                    self._follow(part, file_stat, opened)
                    continue
                if part != ".." and self._untrusted is None and _is_untrusted(file_stat, self._directory_stat):
                    self._untrusted = self._at / part
                if stat.S_ISDIR(file_stat.st_mode):
                    self._at = self._at.parent if part == ".." else self._at / part
                    self._directory_stat = file_stat
                    self._directory, opened = opened, self._directory
                elif self._way:
                    raise self._error(errno.ENOTDIR)
                elif not stat.S_ISREG(file_stat.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", str(self._path))
                else:
                    return self._place_at(part, file_stat)
            finally:
                os.close(opened)
        raise self._error(errno.EISDIR)

    def _opened(self, part: str) -> int | None:
        """The next component, a link itself; None if the last one is not there."""
        try:
            return os.open(part, _LOOK | os.O_NOFOLLOW, dir_fd=self._directory)
        except OSError as error:
            if error.errno == errno.ENOENT and not self._way:
                return None
            raise self._error(error.errno) from None

    def _follow(self, part: str, file_stat: os.stat_result, opened: int) -> None:
        self._links += 1
        if self._links > _LINKS_MAX:
            raise self._error(errno.ELOOP)
        _check_link(self._at / part, file_stat, self._directory_stat, self._path)
        target = Path(os.readlink("", dir_fd=opened))
        if target.is_absolute():
            root = os.open("/", _LOOK | os.O_DIRECTORY)
            os.close(self._directory)
            self._directory, self._at, self._directory_stat = root, Path("/"), _stat_of(root)
        self._way += _parts(target)

    def _place_at(self, part: str, file_stat: os.stat_result | None) -> Place:
        return Place(self._directory, self._at / part, self._directory_stat, file_stat, self._untrusted)

    def _error(self, number: int | None) -> OSError:
        return OSError(number, os.strerror(number or 0), str(self._path))


def _parts(path: Path) -> list[str]:
    """The last first, without the root."""
    return [*reversed(path.parts[1:] if path.is_absolute() else path.parts)]


def _stat_of(opened: int) -> os.stat_result:
    return os.fstat(opened)


def _check_link(link: Path, file_stat: os.stat_result, directory_stat: os.stat_result, path: Path) -> None:
    mine = os.geteuid()
    if mine == 0 and file_stat.st_uid != 0:
        text = f"{link} is a symbolic link of another user, which root does not follow"
        raise PermissionError(errno.EPERM, text, str(path))
    if directory_stat.st_mode & _SHARED == _SHARED and file_stat.st_uid not in (mine, directory_stat.st_uid):
        text = f"{link} is a symbolic link of another user, in a directory in which everybody may make one"
        raise PermissionError(errno.EACCES, text, str(path))


def _is_untrusted(file_stat: os.stat_result, directory_stat: os.stat_result) -> bool:
    return bool(directory_stat.st_mode & _OTHERS) and file_stat.st_uid not in (0, os.geteuid(), directory_stat.st_uid)
