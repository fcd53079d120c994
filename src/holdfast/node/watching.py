"""Looks at files again and again, in a thread: where their disk hangs, the loop goes on.

Rules of this file: one look at a time; what was found is handed over on the loop.
"""

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

FoundT = TypeVar("FoundT")


class Watch(Generic[FoundT]):
    """Calls `look` in a thread `name` of its own, every `every_s` seconds from `start` to `close`; what it returns, but
    for None, is handed to `found` on the loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        every_s: float,
        look: Callable[[], FoundT | None],
        found: Callable[[FoundT], None],
    ) -> None:
        self._loop = loop
        self._name = name
        self._every_s = every_s
        self._look = look
        self._found = found
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to look, after `every_s`."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def close(self) -> None:
        """Nothing is handed over from now on. Idempotent."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                found = self._look()
            except Exception:
                _log.exception("%s", self._name)
                continue
            if found is None:
                continue
            try:
                self._loop.call_soon_threadsafe(self._hand_over, found)
            except RuntimeError:  # the node has ended meanwhile
                return

    def _hand_over(self, found: FoundT) -> None:
        if not self._over.is_set():
            self._found(found)
