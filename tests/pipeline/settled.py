"""A fleet whose threads are not at the mercy of the machine: a call ends at once, or is stuck on purpose."""

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyspark_holdfast.fleet import Fleet

LIMIT_S = 30.0

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SettledFleet(Fleet[K]):
    """Begins the next call once the last has ended or is one of those that the test holds back, of which `stuck` tells
    the number: a patience of a few milliseconds then makes away what is stuck, and nothing that is only slow."""

    def __init__(self, *arguments: Any, stuck: Callable[[], int], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stuck = stuck

    def _begun(self, call: Callable[[], T]) -> "Future[T]":
        before = self._stuck()
        future = super()._begun(call)
        until = time.monotonic() + LIMIT_S
        while not future.done() and self._stuck() <= before:
            assert time.monotonic() < until, "the call neither ends nor is stuck"
            time.sleep(0.001)
        return future
