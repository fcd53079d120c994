"""Entries: what is packed comes back, and what is none is refused."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.entries import annotate, entry, packed
from holdfast.errors import StorageError

uuids = st.uuids()
u64 = st.integers(0, 2**64 - 1)


@given(
    st.sampled_from([0, 1, 4, 8, 9]), u64, u64, st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=80),
    st.binary(max_size=40), st.none() | st.tuples(uuids, u64), st.lists(uuids, max_size=entry.TRACE_MAX), st.text(),
    st.sampled_from([0, 0, 1, 5, 2**63 - 1]),
)  # fmt: skip
def test_round_trip(
    flags: int, enqueued: int, expires: int, priority: int, message_format: int, bare: bytes, notes: bytes,
    identity: tuple[UUID, int] | None, trace: list[UUID], to: str, at: int,
) -> None:  # fmt: skip
    expires = min(expires, 2**63) if at else expires
    identified = entry.Identity(*identity) if identity else None
    passed = b"".join(store.bytes for store in trace) if identified else b""
    value = entry.pack(
        flags=flags, enqueued_ms=enqueued, bare=bare, priority=priority, expires_ms=expires,
        message_format=message_format, annotation_count=2 if notes else 0, annotations=notes, identity=identified,
        trace=passed, to=to, expires_at_ms=at,
    )  # fmt: skip
    item = entry.unpack(value)
    assert item.flags == flags | (entry.CUSTODY if identified else 0)
    assert (item.enqueued_ms, item.expires_ms, item.priority) == (enqueued, expires, priority)
    assert (item.identity, item.trace, item.to, item.message_format) == (identified, passed, to, message_format)
    assert (bytes(item.bare), bytes(item.annotations), item.annotation_count) == (bare, notes, 2 if notes else 0)
    assert packed.size_of(value) == item.size == len(bare) + len(notes)
    assert item.expires_at_ms == at and (value[12:20] == entry.NEVER) is (not at and not expires)
    assert entry.repack(item) == value and packed.bare_at(value) == len(value) - len(bare)
    assert packed.annotations_of(value) == (2 if notes else 0, notes)
    other = entry.unpack(packed.with_annotations(value, 4, b"other"))
    assert other == item._replace(annotation_count=4, annotations=memoryview(b"other"))
    if at:
        assert packed.expires_at_ms_of(value) == at
        assert packed.end_of(value, 1_000, 900) == min(expires or entry.FAR, 100 + at)


@given(st.booleans(), u64, st.integers(0, 2**32 - 1), st.binary(max_size=80))
def test_the_short_form_is_the_long_one(durable: bool, enqueued: int, message_format: int, bare: bytes) -> None:
    long = entry.pack(flags=int(durable), enqueued_ms=enqueued, message_format=message_format, bare=bare)
    assert entry.pack_plain(durable, enqueued, message_format, bare) == long
    assert packed.size_of(long) == len(bare)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" * 40])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match="invalid layout"):
        entry.unpack(data)


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from([0, 0, 0, 5]), st.binary(max_size=9)), max_size=12
    )
)
def test_runs_of_any_priorities_are_taken_as_each_by_itself(told: list[tuple[int, bool, int, bytes]]) -> None:
    """What a run's entries count, and how they are told, up to the first that is not as plain."""
    values = [
        entry.pack(
            flags=entry.DURABLE if durable else 0, enqueued_ms=7, bare=b"\x00\x53\x75\xa0" + bytes((len(body),)) + body,
            priority=priority, expires_ms=expires_ms,
        )
        for priority, durable, expires_ms, body in told
    ]  # fmt: skip
    lasting = next((place for place, item in enumerate(told) if item[2]), len(told))
    assert packed.lasting_sizes(values) == [packed.size_of(value) for value in values[:lasting]]
    plain = next((place for place, item in enumerate(told[:lasting]) if item[0] > 9), lasting)
    heads, bares = annotate.plain_for_consumer(range(1, lasting + 1), values[:lasting])
    assert [head + bytes(bare) for head, bare in zip(heads, bares, strict=True)] == [
        b"".join(annotate.for_consumer(value, place, None, 0)) for place, value in enumerate(values[:plain], 1)
    ]


@pytest.mark.parametrize(
    ("priorities", "times", "varies"),
    [((4, 4, 4, 4), (7, 7, 8, 9), False), ((4, 9, 0, 4), (7, 7, 7, 7), True), ((4,), (7,), False), ((), (), False)],
)
def test_entries_of_several_turns_are_still_groups(
    priorities: tuple[int, ...], times: tuple[int, ...], varies: bool
) -> None:
    values = [
        entry.pack(flags=entry.DURABLE, enqueued_ms=time, bare=b"\x00\x53\x75\xa0\x01x", priority=priority)
        for priority, time in zip(priorities, times, strict=True)
    ]
    assert packed.vary(values) is varies


@pytest.mark.parametrize("late", [False, True])
def test_what_waited_with_its_group_is_shown_without_it_and_late_only_where_it_is(late: bool) -> None:
    identity = entry.Identity(UUID(int=1), 7)
    waiting = entry.pack(flags=entry.DURABLE, enqueued_ms=1, bare=b"x", identity=identity, group=entry.Group(7, 2))
    found = entry.unpack(entry.shown(waiting, late=late))
    assert found.group is None and found.identity == identity
    assert bool(found.flags & entry.LATE) is late and found.flags & entry.DURABLE
