"""The writer's thread: one commit at a time, while the loop gathers the next batch.

Rules of this file: after an error of the disk the thread writes nothing more; answers reach the loop by
`call_soon_threadsafe`, in order. Why a thread, and how it shares the interpreter with the loop:
docs/adr/0005-node-runtime.md.
"""

import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.engine.events import Commit
from holdfast.errors import StorageFull
from holdfast.node.process.points import Points
from holdfast.storage.port import Store


class CommitWriter:
    """Runs `Store.commit` in its thread and answers `done(number, error)` on the loop.

    `error` is None, a StorageFull (nothing of the batch was written), or the error that ended the thread.
    """

    def __init__(
        self,
        store: Store,
        loop: AbstractEventLoop,
        done: Callable[[int, Exception | None], None],
        points: Points | None,
    ) -> None:
        self._store = store
        self._loop = loop
        self._done = done
        self._points = points
        self._jobs: SimpleQueue[Commit | None] = SimpleQueue()
        self._in_flight = False
        self._handed_at = 0.0
        self.took_s = 0.0
        """From the last commit that was handed over to its answer."""
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def commit(self, job: Commit) -> None:
        """Hands over the next batch; asserts that the one before it was answered."""
        assert not self._in_flight, f"commit {job.number} while another is in flight"
        self._in_flight = True
        self._handed_at = time.monotonic()
        if self._points is not None and job.batch.appends:
            self._points.passed("before-append")
        self._jobs.put(job)

    @property
    def waited_s(self) -> float | None:
        """How long the running commit has taken so far; None if there is none."""
        return time.monotonic() - self._handed_at if self._in_flight else None

    def stop(self, time_out_s: float) -> bool:
        """Ends the thread after the running commit; False if that took longer than `time_out_s`."""
        if self._thread.ident is None:
            return True
        self._jobs.put(None)
        self._thread.join(time_out_s)
        return not self._thread.is_alive()

    def _answer(self, number: int, error: Exception | None) -> None:
        self._in_flight = False
        self.took_s = time.monotonic() - self._handed_at
        self._done(number, error)

    def _run(self) -> None:
        error: Exception | None = None
        while error is None or isinstance(error, StorageFull):
            job = self._jobs.get()
            if job is None:
                return
            error = self._commit(job)
            try:
                self._loop.call_soon_threadsafe(self._answer, job.number, error)
            except RuntimeError:
                return  # The loop is closed: the node is ending, and the answer is not needed.

    def _commit(self, job: Commit) -> Exception | None:
        points = self._points
        if points is not None:
            if job.batch.appends:
                points.passed("append")
            if job.batch.retires:
                points.passed("retiring")
        try:
            self._store.commit(job.batch)
        except Exception as error:  # The loop must get every error: it waits for the answer.
            return error
        if points is not None and job.batch.retires:
            points.passed("retired")
        return None
