"""Makes room in a full queue by deleting its oldest messages (`when_full = "drop-oldest"`). In a queue that sorts,
those of the lowest priority are deleted first.

Rules of this file: messages that a consumer holds, or that are not on disk yet, stay; a call reads a bounded number of
entries. Where consumers hold many of the first messages, the search goes on behind those that it has passed, and looks
at the beginning again now and then.
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
READS_MAX: Final = 32
"""Messages that are read at once to make room for one, and how often a call reads."""

HELD_MAX: Final = 20_000
"""Messages in the hands of consumers that one call passes without reading them."""

AGAIN_MS: Final = 1_000
"""How often the search begins at the first message again."""


def make_room(queue: Queue, size: int) -> bool:
    """Drops the oldest messages that no consumer holds, until one of `size` bytes fits; False if it does not fit
    yet."""
    if len(queue.work.batch.retires) >= RETIRES_MAX:
        return False
    if queue.config.priorities:
        return _make_room_by_priority(queue, size)
    first = queue.reclaim_from if queue.named else first_free(queue.shared)
    passed, looked_ms = queue.kept_below
    now_ms = queue.clock.steady_ms
    is_due = now_ms >= looked_ms + AGAIN_MS
    given_back = [cursor.requeued[0] for cursor in queue.cursors if cursor.requeued]
    start = first if is_due else max(first, min([passed, *given_back]))
    place = _drop_from(queue, start, size)
    if place < passed and not queue.fits(size):
        place = _drop_from(queue, passed, size)
    if start > first and not queue.fits(size):  # a reader may have finished what another does not hold
        again = _drop_from(queue, first, size)
        place = again if queue.fits(size) else place
    queue.kept_below = place, now_ms if is_due else looked_ms
    if passed < place < queue.visible and not queue.fits(size):  # whoever waits for room asks again
        queue.touch()
    return queue.fits(size)


def _drop_from(queue: Queue, place: int, size: int) -> int:
    """Drops messages from that place on until one of `size` bytes fits. Returns where it ended: all before are held or
    gone."""
    held = [cursor.acquired for cursor in queue.cursors if cursor.acquired]
    for _ in range(READS_MAX):
        if place >= queue.visible or queue.fits(size):
            break
        places = range(place, min(queue.visible, place + HELD_MAX))
        free = next((number for number in places if not any(number in each for each in held)), places.stop)
        found, place = at_rest(queue, free, queue.visible, count_max=DROPS_MAX, bytes_max=READ_BYTES)
        for sequence, value in found:
            if queue.fits(size):
                return sequence
            if not any(sequence in each for each in held):
                queue.drop([sequence], packed.size_of(value))
                queue.dropped_total += 1
    return place


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


def put_latest(queue: Queue, value: bytes, size: int, messages_max: int, bytes_max: int) -> int:
    """Appends the message to a queue in memory with these bounds, in place of its oldest ones that no consumer holds;
    returns how many were dropped, or 1 if that is the message itself."""
    acquired, ephemeral, dropped = queue.shared.acquired, queue.ephemeral, 0
    while queue.messages and (queue.messages >= messages_max or queue.bytes_held + size > bytes_max):
        places = range(first_free(queue.shared), queue.next_sequence)
        oldest = next((place for place in places if place in ephemeral and place not in acquired), None)
        dropped += 1
        if oldest is None:
            return dropped
        queue.drop([oldest], packed.size_of(ephemeral[oldest]))
    if not queue.fits(size):
        return dropped + 1
    queue.append(value, size)
    return dropped
