"""Standard output of `holdfast receive`: which of the printed messages are out of our hands, and are accepted.

Rules of this file: a message is accepted once its whole line is with the operating system, and of a pipe, once the
reader has taken it out: what lies in the pipe when its reader goes is lost, so it stays in the queue. Lines are settled
in order.
"""

import array
import asyncio
import fcntl
import os
import select
import stat
import termios
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from holdfast.client.receive.delivery import Delivery
from holdfast.client.verbs.running import HEAR_OUT_S, in_thread
from holdfast.errors import HoldfastError

PAUSE_S: Final = (0.0005, 0.02)
"""Between two looks at a pipe, longer each time up to the second while its reader takes nothing: nothing tells when it
does."""

PRINTED_MAX: Final = 500
"""Messages that may be printed and not taken: with more nothing further is printed."""


class Output:
    """Descriptor 1. `written`: bytes that the operating system took."""

    def __init__(self) -> None:
        self.written = 0
        self.is_pipe = stat.S_ISFIFO(os.fstat(1).st_mode)
        self._poll = select.poll()
        self._poll.register(1, 0)  # errors alone, which are always told

    def write(self, data: bytes) -> None:
        """All of `data`; may wait. HoldfastError where it takes no more, BrokenPipeError where its reader is gone."""
        view = memoryview(data)
        try:
            while view:
                size = os.write(1, view)
                self.written += size
                view = view[size:]
        except BrokenPipeError:
            raise
        except OSError as error:
            text = f"standard output: {error.strerror}: what was not printed stays in the queue"
            raise HoldfastError(text) from None

    @property
    def taken(self) -> int:
        """Of what was written, the bytes that are out of our hands; never too many, while a thread writes."""
        written = self.written
        if not self.is_pipe:
            return written
        unread = array.array("i", [0])
        try:
            fcntl.ioctl(1, termios.FIONREAD, unread)
        except OSError:  # a system that does not tell
            return written
        return max(0, written - unread[0])

    @property
    def reader_is_gone(self) -> bool:
        """Whether the pipe has no reader left."""
        return self.is_pipe and any(told & select.POLLERR for _, told in self._poll.poll(0))


class Printing:
    """Prints messages and settles them. `accepted`: how many were."""

    def __init__(self, output: Output) -> None:
        self.accepted = 0
        self._output = output
        self._printed: deque[tuple[int, Delivery]] = deque()
        """Each with the number of the byte behind its line, the oldest first."""
        self._end = 0
        self._moved = asyncio.Event()

    async def write(self, batch: Sequence[Delivery], lines: Sequence[bytes]) -> None:
        """Prints a line for each of `batch`, once there is room; cancelled, it still waits a while for a write."""
        try:
            while len(self._printed) >= PRINTED_MAX:
                self._moved.clear()
                await self._moved.wait()
        except asyncio.CancelledError:
            for delivery in batch:
                delivery.release()
            raise
        for delivery, line in zip(batch, lines, strict=True):
            self._end += len(line)
            self._printed.append((self._end, delivery))
        write = asyncio.ensure_future(in_thread(self._output.write, b"".join(lines)))
        write.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may wait for it then
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            await asyncio.wait([write], timeout=HEAR_OUT_S)
            raise
        finally:
            self.settle()

    def settle(self) -> bool:
        """Accepts what is out of our hands; whether that was anything."""
        printed, taken, before = self._printed, self._output.taken, self.accepted
        while printed and printed[0][0] <= taken:
            printed.popleft()[1].accept()
            self.accepted += 1
        if self.accepted == before:
            return False
        self._moved.set()
        return True

    async def watch(self) -> None:
        """Settles what the reader of a pipe takes, until it is gone: then BrokenPipeError."""
        shortest, longest = PAUSE_S
        pause_s = shortest
        while self._output.is_pipe:
            pause_s = shortest if self.settle() else min(longest, 2 * pause_s)
            if self._output.reader_is_gone:
                raise BrokenPipeError
            await asyncio.sleep(pause_s)
        await asyncio.Event().wait()

    async def end(self) -> None:
        """Waits a while for the reader of a pipe. What it can still read is accepted then; what it cannot, and what
        was not printed, goes back as if it had not been offered."""
        until = time.monotonic() + HEAR_OUT_S
        while self._printed and self._output.is_pipe and not self._output.reader_is_gone and time.monotonic() < until:
            self.settle()
            await asyncio.sleep(PAUSE_S[0])
        self.settle()
        readable = 0 if self._output.reader_is_gone else self._output.written
        while self._printed:
            end, delivery = self._printed.popleft()
            if end <= readable:
                delivery.accept()
                self.accepted += 1
            else:
                delivery.release()
