"""Writes in a thread, so that the loop never waits for a disk.

Rules of this file: the caller never waits; the waiting bytes are bounded, and a block beyond that is refused. One
thread hands over at a time.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

POLL_S: Final = 0.005


class WriteBehind:
    """Calls `write` with all that waits, in a thread `name` of its own, which never keeps a process from ending.

    `bytes_max`: what may wait. `gather_s`: how long the thread waits for more before it writes, because each wake-up
    takes the interpreter from the loop. `write` raises nothing.
    """

    def __init__(self, name: str, write: Callable[[bytes], None], *, bytes_max: int, gather_s: float = 0.0) -> None:
        self._write = write
        self._bytes_max = bytes_max
        self._gather_s = gather_s
        self._blocks: SimpleQueue[bytes | None] = SimpleQueue()
        self._taken = self._written = 0
        """Bytes, each counted by one thread alone."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, block: bytes) -> bool:
        """Hands over a block; False: too much waits already, and the block is dropped."""
        if self._taken - self._written + len(block) > self._bytes_max:
            return False
        self._taken += len(block)
        self._blocks.put(block)
        return True

    def flush(self, limit_s: float) -> bool:
        """Waits until everything is written; False if that takes longer."""
        until = time.monotonic() + limit_s
        while self._written < self._taken and self._thread.is_alive():
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
        return True

    def close(self, limit_s: float) -> bool:
        """Writes the rest and ends the thread; False if that takes longer. Idempotent."""
        self._closing.set()
        self._blocks.put(None)
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        ends = False
        while not ends:
            blocks = [self._blocks.get()]
            if self._gather_s:
                self._closing.wait(self._gather_s)
            try:
                while True:
                    blocks.append(self._blocks.get_nowait())
            except Empty:
                pass
            ends = None in blocks
            block = b"".join([block for block in blocks if block is not None])
            if block:
                self._write(block)
                self._written += len(block)
