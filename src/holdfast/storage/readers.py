"""Who else reads a store that a node holds: a backup, whose snapshot keeps freed pages from being used again.

Rules of this file: reads LMDB's table of readers and list of free pages, on the loop's thread or the writer's, and
only once somebody else was there; a reader that died leaves its place, which is cleared here, or the store would
grow for ever.
"""

import os
from time import monotonic
from typing import Final

import lmdb

from holdfast.storage.pages import Damage, read_root, reusable_pages

__all__ = ["Readers"]

UNBOUNDED_PAGES: Final = 1 << 62

LOOK_EVERY_S: Final = 0.25
"""How long a count of free pages holds, less what was taken since; with thousands of free records it costs a ms."""


class Readers:
    """Of the environment `env`, whose file is open as `data_fd`."""

    def __init__(self, env: lmdb.Environment, data_fd: int) -> None:
        self._env = env
        self._fd = data_fd
        self._own = str(os.getpid())
        self.foreign = False
        """Whether another process was reading when last looked."""
        self._left = self._taken = 0
        self._look_at = 0.0

    def reusable_pages(self) -> int:
        """Free pages that the next transaction may use, at the least; all that there are where nobody else reads."""
        now = monotonic()
        if now >= self._look_at or 2 * self._taken > self._left:
            self._look_at = now + LOOK_EVERY_S
            self._taken = 0
            self._left = self._count()
        return max(0, self._left - self._taken)

    def took(self, pages: int) -> None:
        """A transaction wrote so many pages at the most."""
        self._taken += pages

    def _count(self) -> int:
        since = self._oldest()
        if since is not None:
            self._env.reader_check()
            since = self._oldest()
        self.foreign = since is not None
        if since is None:
            return UNBOUNDED_PAGES
        with self._env.begin():  # what the list's pages hold stays while we read it
            root = read_root(self._fd)
            try:
                return 0 if root is None else reusable_pages(self._fd, root, since)
            except Damage:
                return 0

    def _oldest(self) -> int | None:
        """The oldest transaction that another process reads; None where none does."""
        found = [
            int(words[2])
            for line in self._env.readers().splitlines()
            if len(words := line.split()) == 3 and words[0].isdigit() and words[0] != self._own and words[2].isdigit()
        ]
        return min(found, default=None)
