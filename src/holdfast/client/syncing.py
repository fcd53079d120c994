"""When a spool is synced to its disk: at once, or some time after it grew.

Rules of this file: one sync at a time, in a thread; those who ask meanwhile share the next.
"""

import asyncio
from typing import Protocol

from holdfast.client.spool import SpoolFile
from holdfast.errors import StorageError


class Holder(Protocol):
    """Whose spool it is."""

    def is_over(self) -> bool:
        """It failed or was closed."""

    def fail(self, error: Exception) -> None:
        """The disk refused."""


class Syncing:
    """The syncs of one sender's spool. `interval_s`: 0 makes every message wait for its own."""

    def __init__(self, holder: Holder, spool: SpoolFile, interval_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.interval_s = interval_s
        self.failure: StorageError | None = None
        """Why the spool could not be closed properly; what the node has not stored stays in it."""
        self._holder = holder
        self._spool = spool
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._background: asyncio.Task[None] | None = None

    def later(self) -> None:
        """The spool has grown."""
        if self.interval_s and self._timer is None:
            self._timer = self._loop.call_later(self.interval_s, self._start)

    def stop(self) -> None:
        """The holder is over: the spool is closed, by the sync that is under way if there is one."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._spool.syncing:
            self._close()

    async def done(self) -> None:
        """The spool is on the disk; callers at the same time share one call. Raises StorageError."""
        spool = self._spool
        while spool.syncing and self._task is not None:
            await asyncio.shield(self._task)
        if not spool.dirty or self._holder.is_over():
            return
        spool.syncing = True
        self._task = self._loop.create_task(asyncio.to_thread(spool.sync))
        try:
            await asyncio.shield(self._task)
        except StorageError as error:
            self._holder.fail(error)
            self._close()  # by nobody else where the holder was over already
            raise
        if self._holder.is_over():
            self._close()

    def _close(self) -> None:
        try:
            self._spool.close()
        except StorageError as error:
            self.failure = self.failure or error

    def _start(self) -> None:
        self._timer = None
        self._background = self._loop.create_task(self._quietly())

    async def _quietly(self) -> None:
        try:
            await self.done()
        except StorageError:
            pass  # the holder has failed with it: whoever uses it is told
