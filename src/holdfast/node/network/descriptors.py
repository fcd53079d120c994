"""How many file descriptors the process has left, counted now and then.

Rules of this file: it counts and decides nothing. The loop does not report that `accept` found no descriptor (libuv
then accepts and closes waiting connections, so that it does not spin). So descriptors are counted: every LOOK_S, and
every NEAR_S while few are left. Source: proc(5), /proc/self/fd; getrlimit(2), RLIMIT_NOFILE; accept(2), EMFILE and
ENFILE.
"""

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.events import DescriptorsMeasured

LOOK_S: Final = 10.0
NEAR_S: Final = 1.0
NEAR: Final = 64
"""With so few left the next count is soon."""
_OWN: Final = "/proc/self/fd"


def count() -> DescriptorsMeasured | None:
    """How many are left now; None if the system does not report it. A thousand take a third of a millisecond."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        used = len(os.listdir(_OWN)) - 1  # the one that reads the folder
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return None
        return DescriptorsMeasured(left=0, most=most, of_system=error.errno == errno.ENFILE)
    return DescriptorsMeasured(left=max(0, most - used), most=most)


class Descriptors:
    """Counts on the loop's thread from `start` to `close`, and passes the counts to `tell`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[DescriptorsMeasured], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._near = False
        self._timer: asyncio.TimerHandle | None = None
        self._counted_at = loop.time()

    def start(self) -> None:
        self._loop.set_exception_handler(self._loop_failed)
        self._wait(LOOK_S)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def taken(self, number: int | None) -> None:
        """A new connection has this descriptor, which was the lowest free one."""
        if self._near or number is None or self._timer is None:
            return
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] - number <= NEAR:
            self._soon()

    def _soon(self) -> None:
        self._near = True
        self._wait(max(0.0, self._counted_at + NEAR_S - self._loop.time()))

    def _wait(self, seconds: float) -> None:
        self.close()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._counted_at = self._loop.time()
        found = count()
        self._near = found is not None and (found.left <= NEAR or found.of_system)
        self._wait(NEAR_S if self._near else LOOK_S)
        if found is not None:
            self._tell(found)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio's own loop, if it is used instead of uvloop's, reports every second that it could not accept."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE) and "socket" in context:
            if not self._near:
                self._soon()
            return
        loop.default_exception_handler(context)
