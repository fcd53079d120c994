"""Delayed delivery: not before a wall time, or not before some time has passed (JMS 2.0 §7.9, in the annotations of
Qpid JMS and ActiveMQ Artemis; docs/adr/0067).

Rules of this file: pure. A wall time overrides a delay, as in other brokers; a value that is not a whole number counts
as absent. A held entry with a delay also has its time by the steady clock. A delivered entry only has the wall time, so
that it is not delayed again later.
"""

from typing import Final, NamedTuple

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, DELIVERY_TIME, DUE
from holdfast.amqp.wire.types import Timestamp, Ulong
from holdfast.broker.entries import annotate, entry, packed
from holdfast.schema import is_whole_within

_NAMES: Final = b"x-opt-delivery-"
MS_MAX: Final = 2**62
"""Times and delays are below it."""


class Due(NamedTuple):
    """When a message is to be delivered, in milliseconds of the wall clock, or of the node's steady one."""

    ms: int
    is_wall: bool


def due_of(value: bytes, steady_ms: int, wall_ms: int) -> Due | None:
    """When the message of an entry is to be delivered; None where that is now."""
    if value[24:28] == b"\0\0\0\0":
        return None
    return due_in(*packed.annotations_of(value), steady_ms, wall_ms)


def due_held(value: bytes, steady_ms: int) -> Due:
    """As `due_of`, for a held entry: also if its time has come meanwhile."""
    return due_of(value, steady_ms, 0) or Due(steady_ms, False)


def may_be_asked(items: bytes) -> bool:
    """Whether encoded annotations contain the name of a delay annotation."""
    return _NAMES in items


def fault(count: int, items: bytes) -> str | None:
    """What is wrong with the delay annotations, in words."""
    notes = annotate.decoded(count, items)
    for name in (DELIVERY_TIME, DELIVERY_DELAY):
        found = notes.get(name)
        if found is not None and not is_whole_within(found, -MS_MAX, MS_MAX):
            return f"invalid value {str(found)[:40]!r} for {name}; expected a whole number of milliseconds"
    return None


def due_in(count: int, items: bytes, steady_ms: int, wall_ms: int) -> Due | None:
    """As `due_of`, of annotations."""
    if _NAMES not in items:
        return None
    notes = annotate.decoded(count, items)
    at, delay, due = notes.get(DELIVERY_TIME), notes.get(DELIVERY_DELAY), notes.get(DUE)
    if is_whole_within(due, 1, MS_MAX):
        return Due(int(due), False)
    if is_whole_within(at, 1, MS_MAX):
        return Due(int(at), True) if at > wall_ms else None
    return Due(min(steady_ms + int(delay), MS_MAX - 1), False) if is_whole_within(delay, 1, MS_MAX) else None


def told_ms(value: bytes) -> int | None:
    """The wall time at which a held message is due, as far as known; None if it has none."""
    at = annotate.decoded(*packed.annotations_of(value)).get(DELIVERY_TIME)
    return int(at) if is_whole_within(at, 1, MS_MAX) else None


def held(value: bytes, due: Due, queue: str, steady_ms: int, wall_ms: int) -> bytes:
    """The entry as it waits for a queue of that name, without its number in custody."""
    item = entry.unpack(value)
    notes = annotate.notes_of(item)
    if not due.is_wall:
        notes.pop(DELIVERY_DELAY, None)
        notes |= {DELIVERY_TIME: Timestamp(min(wall_ms + due.ms - steady_ms, MS_MAX - 1)), DUE: Ulong(due.ms)}
    return _with(item, notes, to=queue)


def delivered(value: bytes, wall_ms: int) -> bytes:
    """The entry as its queue gets it."""
    item = entry.unpack(value)
    notes = annotate.notes_of(item)
    notes.pop(DUE, None)
    return _with(item._replace(enqueued_ms=wall_ms), notes, to="")


def _with(item: entry.Entry, notes: dict[object, object], *, to: str) -> bytes:
    return entry.repack(
        item._replace(
            flags=item.flags & (entry.DURABLE | entry.BLOB),
            identity=None,
            trace=b"",
            to=to,
            annotation_count=2 * len(notes),
            annotations=memoryview(b"".join(encode(key) + encode(part) for key, part in notes.items())),
        )
    )
