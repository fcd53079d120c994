"""How often Python looks for cycles among its objects, where messages come by the thousand.

Rules of this file: messages and rows hold no cycles and are freed by their counts; looking for cycles among those that
live takes up to a third of the time of reading them (docs/adr/0005-node-runtime.md).
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collect_rarely", "collecting_rarely"]

THRESHOLDS: Final = (50_000, 20, 50)
"""Of the three generations. Only connections and failures leave cycles."""

_lock: Final = threading.Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds that were there before each `collecting_rarely` that has not ended."""


def collect_rarely() -> None:
    """From now on. What this process has made before the first call is not looked at again; what it makes between two
    calls is, as it may be garbage."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """As `collect_rarely`, within the block; in a process that others use too. Of several at a time the last one to end
    puts back the thresholds that the first one found."""
    with _lock:
        _before.append(gc.get_threshold())
        collect_rarely()
    try:
        yield
    finally:
        with _lock:
            if len(_before) == 1:
                gc.set_threshold(*_before[0])
            _before.pop()
