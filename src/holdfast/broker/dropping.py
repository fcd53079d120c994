"""Makes room in a full queue by deleting its oldest messages (`when_full = "drop-oldest"`). In a queue that sorts,
those of the lowest priority are deleted first.

Rules of this file: messages that a consumer holds, or that are not on disk yet, stay; a call reads a bounded number of
entries.
"""

from typing import Final

from holdfast.broker.cursors.priorities import Priorities
from holdfast.broker.entries import packed
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX
from holdfast.broker.head import first_free
from holdfast.broker.purge import at_rest
from holdfast.broker.queue import Queue

DROPS_MAX: Final = 256
"""Messages that are looked at to make room for one."""


def make_room(queue: Queue, size: int) -> bool:
    """Drops the oldest messages that no consumer holds, until one of `size` bytes fits; False if it does not fit
    yet."""
    if len(queue.work.batch.retires) >= RETIRES_MAX:
        return False
    if queue.config.priorities:
        return _make_room_by_priority(queue, size)
    found, _ = at_rest(queue, first_free(queue.shared), queue.visible, count_max=DROPS_MAX, bytes_max=READ_BYTES)
    for sequence, value in found:
        if queue.fits(size):
            break
        if any(sequence in cursor.acquired for cursor in queue.named.values()):
            continue
        queue.drop([sequence], packed.size_of(value))
        queue.dropped_total += 1
    return queue.fits(size)


def _make_room_by_priority(queue: Queue, size: int) -> bool:
    shares = queue.shared.sharing
    assert isinstance(shares, Priorities), "the queue sorts"
    held: list[int] = []
    for _ in range(DROPS_MAX):
        if queue.fits(size):
            break
        found = shares.lowest()
        if found is None:
            if shares.looks_on:  # links that wait for room are asked again
                queue.touch()
            break
        sequence, value = found
        if any(sequence in cursor.acquired for cursor in queue.named.values()):
            held.append(sequence)
            continue
        queue.drop_wherever(sequence, packed.size_of(value))
        queue.dropped_total += 1
    for sequence in held:
        shares.give_back(sequence)
    return queue.fits(size)
