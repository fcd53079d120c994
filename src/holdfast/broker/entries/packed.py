"""Single fields of a packed entry, read or changed without unpacking it (broker/entries/entry.py has the layout).

Rules of this file: these are the hot paths' forms of `entry.unpack`, and give the same results.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.entries.entry import (
    AT_BYTES,
    BLOB,
    CUSTODY,
    EARLIER,
    EARLIER_BYTES,
    EXPIRES_AT,
    FIXED_BYTES,
    GROUP,
    GROUP_FIELDS,
    IDENTITY,
    NEVER,
    NUMBER_AT,
    PRIORITY_DEFAULT,
    REFERENCE_BYTES,
    TOMBSTONE,
    TRACE_AT,
    Group,
    Identity,
    blob_of,
    uuid_of,
)

TOPIC: Final = TOPIC_PREFIX.encode()
fixed_of: Final = itemgetter(slice(FIXED_BYTES))
"""The part of a value that has a fixed length."""


def enqueued_ms_of(value: bytes) -> int:
    """`unpack(value).enqueued_ms` without unpacking it."""
    return int.from_bytes(value[4:12], "big")


def size_of(value: bytes) -> int:
    """`unpack(value).size` without unpacking it."""
    size = len(value) - FIXED_BYTES
    flags = value[1]
    if flags & (CUSTODY | BLOB | EXPIRES_AT | EARLIER):  # GROUP is with CUSTODY alone
        if flags & CUSTODY:
            size -= IDENTITY.size + 16 * value[3]
        size -= _beside(flags)
        if flags & BLOB:
            size += blob_of(value).length - REFERENCE_BYTES
    if value[24:30] != b"\0\0\0\0\0\0":
        size -= (value[28] << 8) + value[29]
        if value[24:28] != b"\0\0\0\0":
            size -= 2
    return size


def bare_at(value: bytes) -> int:
    """Where the bare message of an entry begins."""
    if value[24:30] == b"\0\0\0\0\0\0" and not value[1] & CUSTODY:
        return FIXED_BYTES
    at = FIXED_BYTES + int.from_bytes(value[24:28], "big") + (value[28] << 8) + value[29]
    return at + IDENTITY.size + 16 * value[3] if value[1] & CUSTODY else at


def note_bytes(value: bytes) -> int:
    """The stored size of an entry's annotations, in bytes."""
    return int.from_bytes(value[24:28], "big")


def _beside(flags: int) -> int:
    """How many bytes precede the count of the annotations."""
    beside = (AT_BYTES if flags & EXPIRES_AT else 0) + (GROUP_FIELDS.size if flags & GROUP else 0)
    return beside + EARLIER_BYTES if flags & EARLIER else beside


def _annotations_at(value: bytes) -> int:
    at = FIXED_BYTES + (value[28] << 8) + value[29]
    return at + IDENTITY.size + 16 * value[3] if value[1] & CUSTODY else at


def annotations_of(value: bytes) -> tuple[int, bytes]:
    """`annotation_count` and `annotations` of an entry without unpacking the rest."""
    size = note_bytes(value)
    if not size:
        return 0, b""
    at = _annotations_at(value)
    end = at + size
    at += _beside(value[1])
    return int.from_bytes(value[at : at + 2], "big"), value[at + 2 : end]


def with_annotations(value: bytes, count: int, annotations: bytes) -> bytes:
    """The entry with these annotations in place of its own, all else as it is; `count` above 0."""
    at = _annotations_at(value)
    view = memoryview(value)
    rest = view[at + note_bytes(value) :]
    kept = _beside(value[1])
    at += kept
    size = (kept + len(annotations) + 2).to_bytes(4, "big")
    return b"".join((view[:24], size, view[28:at], count.to_bytes(2, "big"), annotations, rest))


def group_of(value: bytes) -> Group | None:
    """The group of an entry, None where it has none."""
    if not value[1] & GROUP:
        return None
    at = _annotations_at(value) + (AT_BYTES if value[1] & EXPIRES_AT else 0)
    return Group._make(GROUP_FIELDS.unpack_from(value, at))


def identity_of(value: bytes) -> Identity:
    """The identity of an entry that has one."""
    origin, number = IDENTITY.unpack_from(value, FIXED_BYTES)
    return Identity(uuid_of(origin), number)


def number_of(value: bytes) -> int:
    """`identity_of(value).number` without unpacking the rest."""
    return int.from_bytes(value[NUMBER_AT:TRACE_AT], "big")


def origin_of(value: bytes) -> bytes:
    """The 16 bytes of the store that gave an entry its identity."""
    return value[FIXED_BYTES : FIXED_BYTES + 16]


def expires_at_ms_of(value: bytes) -> int:
    """The wall time at which an entry with EXPIRES_AT expires."""
    at = _annotations_at(value)
    return int.from_bytes(value[at : at + AT_BYTES], "big")


def end_of(value: bytes, steady_ms: int, wall_ms: int) -> int:
    """When an entry expires, by the steady clock; an absolute expiry time is converted by the present wall clock."""
    end = int.from_bytes(value[12:20], "big")
    return min(end, steady_ms + expires_at_ms_of(value) - wall_ms) if value[1] & EXPIRES_AT else end


def is_plain(value: bytes) -> bool:
    """Whether an entry in custody has no annotations, time to live or priority of its own, and is no tombstone."""
    return (
        value[1] & (CUSTODY | TOMBSTONE) == CUSTODY
        and value[2] == PRIORITY_DEFAULT
        and value[12:20] == NEVER
        and value[24:28] == b"\0\0\0\0"
    )


def plain_parts(value: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Identity, trace and `to` of a plain entry as they are stored, and where its bare message begins."""
    passed = FIXED_BYTES + IDENTITY.size
    named = passed + 16 * value[3]
    end = named + (value[28] << 8) + value[29]
    return value[FIXED_BYTES:passed], value[passed:named], value[named:end], end


def is_for_topic(value: bytes) -> bool:
    """Whether an entry in custody is for a topic of its destination."""
    named = TRACE_AT + 16 * value[3]
    return value.startswith(TOPIC, named) and len(TOPIC) < (value[28] << 8) + value[29]


def vary(values: Sequence[bytes]) -> bool:
    """Whether adjacent entries often begin with different bytes, as with drawn priorities; three of them are compared.
    Entries that differ only in the time of their arrival form long groups."""
    return bool(values) and not values[0][:3] == values[len(values) // 2][:3] == values[-1][:3]


def lasting_sizes(values: Sequence[bytes]) -> list[int]:
    """The `size_of` of each of `values`, up to the first with a time to live. Entries that were stored together begin
    with the same bytes, so the fixed part is only evaluated once for them.
    """
    if vary(values):
        return _lasting_sizes_apart(values)
    sizes: list[int] = []
    for fixed, group in groupby(values, fixed_of):
        if fixed[12:20] != NEVER:
            break
        if fixed[1] & BLOB:
            sizes += map(size_of, group)
            continue
        lengths = list(map(len, group))
        beside = lengths[0] - size_of(values[len(sizes)])
        sizes += [length - beside for length in lengths]
    return sizes


def _lasting_sizes_apart(values: Sequence[bytes]) -> list[int]:
    """As `lasting_sizes`, for entries that rarely begin with the same bytes, such as those with priorities."""
    sizes: list[int] = []
    known: dict[bytes, int] = {}
    """By fixed part: the bytes of an entry that do not count."""
    for value in values:
        fixed = value[:FIXED_BYTES]
        beside = known.get(fixed)
        if beside is None:
            if fixed[12:20] != NEVER:
                break
            if fixed[1] & BLOB:
                sizes.append(size_of(value))
                continue
            beside = known[fixed] = len(value) - size_of(value)
        sizes.append(len(value) - beside)
    return sizes
