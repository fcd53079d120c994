"""Whether the file that a store has open is still in its place: a store that was moved or removed accepts no more.

Rules of this file: it writes nothing, and the check at each commit does not read the file's times.
"""

import os
from pathlib import Path

__all__ = ["Place"]


class Place:
    """The place of the file that was opened at `path` as `data_fd`."""

    def __init__(self, path: Path, data_fd: int) -> None:
        self._path = path
        self._data_fd = data_fd
        self.gone: str | None = None
        """What `look` answered last."""
        self._named = self._name()
        """The file's name as the system had it when it was opened; None if it does not report it."""

    def look(self) -> str | None:
        """See `Store.gone`: whether the path leads to the file that is open. See `may_be_gone`."""
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self.gone = f"{self._path} was removed or moved"
        except OSError:
            pass  # a disk that fails says so at a commit
        else:
            same = os.path.samestat(there, os.fstat(self._data_fd))
            self.gone = None if same else f"{self._path} is another file than the one that was opened"
        return self.gone

    def may_be_gone(self) -> bool:
        """Whether `look` is due before something is added: the file's name is another one than at its opening.

        Not `look` itself: once a process has read a file's times, the next write has to write new ones to disk
        (multigrain timestamps, Linux 6.13), and a commit takes a quarter longer. It does not see that another file
        system was mounted over the place; who looks each second does.
        """
        return self.gone is not None or self._named is None or self._name() != self._named

    def _name(self) -> str | None:
        try:
            return os.readlink(f"/proc/self/fd/{self._data_fd}")
        except OSError:
            return None
