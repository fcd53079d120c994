"""Entries: what is packed comes back, and what is none is refused."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.entries import entry
from holdfast.errors import StorageError

uuids = st.uuids()
u64 = st.integers(0, 2**64 - 1)


@given(
    st.sampled_from([0, 1, 4, 8, 9]), u64, u64, st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=80),
    st.binary(max_size=40), st.none() | st.tuples(uuids, u64), st.lists(uuids, max_size=entry.TRACE_MAX), st.text(),
)  # fmt: skip
def test_round_trip(
    flags: int, enqueued: int, expires: int, priority: int, message_format: int, bare: bytes, notes: bytes,
    identity: tuple[UUID, int] | None, trace: list[UUID], to: str,
) -> None:  # fmt: skip
    identified = entry.Identity(*identity) if identity else None
    passed = b"".join(store.bytes for store in trace) if identified else b""
    value = entry.pack(
        flags=flags, enqueued_ms=enqueued, bare=bare, priority=priority, expires_ms=expires,
        message_format=message_format, annotation_count=2 if notes else 0, annotations=notes, identity=identified,
        trace=passed, to=to,
    )  # fmt: skip
    item = entry.unpack(value)
    assert item.flags == flags | (entry.CUSTODY if identified else 0)
    assert (item.enqueued_ms, item.expires_ms, item.priority) == (enqueued, expires, priority)
    assert (item.identity, item.trace, item.to, item.message_format) == (identified, passed, to, message_format)
    assert (bytes(item.bare), bytes(item.annotations), item.annotation_count) == (bare, notes, 2 if notes else 0)
    assert entry.size_of(value) == item.size == len(bare) + len(notes)


@given(st.booleans(), u64, st.integers(0, 2**32 - 1), st.binary(max_size=80))
def test_the_short_form_is_the_long_one(durable: bool, enqueued: int, message_format: int, bare: bytes) -> None:
    long = entry.pack(flags=int(durable), enqueued_ms=enqueued, message_format=message_format, bare=bare)
    assert entry.pack_plain(durable, enqueued, message_format, bare) == long
    assert entry.size_of(long) == len(bare)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" * 40])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match="invalid layout"):
        entry.unpack(data)
