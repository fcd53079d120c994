"""When a spool is synced to its disk: at once, or some time after it grew.

Rules of this file: one sync at a time, in a thread; callers that come meanwhile share the next one. What a sync's end
leads to (it failed, or the sender has ended meanwhile) does not depend on callers that wait, which may be cancelled.
"""

import asyncio
from typing import Protocol

from holdfast.client.spool.spool import SpoolFile
from holdfast.errors import StorageError


class SpoolHolder(Protocol):
    """What a Syncing needs of the sender whose spool it is."""

    def is_over(self) -> bool:
        """It failed or was closed."""

    def fail(self, error: Exception) -> None:
        """Ends it: a sync failed."""


class Syncing:
    """The syncs of one sender's spool. `interval_s`: 0 makes every message wait for its own."""

    def __init__(
        self, holder: SpoolHolder, spool: SpoolFile, interval_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.interval_s = interval_s
        self.failure: StorageError | None = None
        """Why the spool could not be closed properly; messages that the node has not stored stay in it."""
        self._holder = holder
        self._spool = spool
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._begun = self._finished = 0
        """Syncs."""
        self._waiting: list[asyncio.Future[None]] = []

    def later(self) -> None:
        """The spool has grown."""
        if self.interval_s and self._timer is None:
            self._timer = self._loop.call_later(self.interval_s, self._over)

    def stop(self) -> None:
        """The sender has ended: the spool is closed, at the end of the sync that is under way if there is one."""
        if self._timer is not None:
            self._timer.cancel()
        if self._under_way is None:
            self._close()

    async def done(self) -> None:
        """Returns once the spool as it is now is on the disk; callers at one time share a sync. Raises StorageError."""
        wanted = self._begun + self._spool.dirty  # one under way may have begun before what is written last
        while self._finished < wanted:
            if self._under_way is None:
                if self.failure is not None:  # the sender has ended, and its spool could not be closed
                    raise self.failure
                if not self._spool.dirty or self._holder.is_over():
                    return
                self._begin()
            ended = self._loop.create_future()
            self._waiting.append(ended)
            await ended

    async def ended(self) -> None:
        """Returns once no sync is under way: the spool of a sender that has ended is closed. An error is in `failure`,
        and has ended the sender."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    def _begin(self) -> None:
        spool = self._spool
        # Not a task: those are cancelled when a loop ends, which then waits for its threads.
        future = self._loop.run_in_executor(None, spool.sync)
        spool.syncing = True  # at once, wherever the thread is
        self._under_way = future
        self._begun += 1
        future.add_done_callback(self._synced)

    def _synced(self, future: asyncio.Future[None]) -> None:
        self._under_way = None
        self._finished += 1
        self._spool.syncing = False
        error = None if future.cancelled() else future.exception()
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            if ended.done():
                continue  # who waited was cancelled
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)
        if isinstance(error, StorageError):
            self._holder.fail(error)
        if self._holder.is_over():
            self._close()  # `stop` left that to this sync

    def _close(self) -> None:
        try:
            self._spool.close()
        except StorageError as error:
            self.failure = self.failure or error

    def _over(self) -> None:
        self._timer = None
        if self._under_way is not None:
            self._under_way.add_done_callback(lambda _: self._at_once())
        else:
            self._at_once()

    def _at_once(self) -> None:
        """An error ends the sender, and so reaches its user."""
        if self._under_way is None and self._spool.dirty and not self._holder.is_over():
            try:
                self._begin()
            except RuntimeError:
                pass  # the loop ends and starts no more threads
