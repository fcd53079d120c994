"""Bare commits at a pace: what one costs on this disk with no broker around it.

Rules of this file: one commit at a time, begun when due, or at once where the one before it took longer; the time is
the commit's own, from its call to its return.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore

QUEUE_ID = 1


def file_commits(directory: Path, size: int, rate: float, seconds: float) -> list[float]:
    """Seconds of each `write` of `size` bytes to a file's end and its fdatasync: the bare loop's commit."""
    path = directory / f"commits-{uuid4()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    body = os.urandom(size)

    def commit(number: int) -> None:
        os.write(descriptor, body)
        os.fdatasync(descriptor)

    try:
        return _paced(commit, rate, seconds)
    finally:
        os.close(descriptor)
        path.unlink()


def store_commits(directory: Path, size: int, rate: float, seconds: float) -> list[float]:
    """The same for a batch of one append to the node's own store, LMDB: two synchronous writes."""
    store = LmdbStore(directory / f"store-{uuid4()}")
    body = os.urandom(size)
    try:
        return _paced(lambda number: store.commit(Batch(appends=[(QUEUE_ID, number, body)])), rate, seconds)
    finally:
        store.close()


def _paced(commit: Callable[[int], None], rate: float, seconds: float) -> list[float]:
    took: list[float] = []
    start = time.monotonic()
    for number in range(1, max(1, int(rate * seconds)) + 1):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        began = time.monotonic()
        commit(number)
        took.append(time.monotonic() - began)
    return took
