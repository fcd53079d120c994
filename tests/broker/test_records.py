"""The small tables' records come back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.stored import custody_records, records
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.tags import TagRing
from holdfast.errors import StorageError

u64 = st.integers(0, 2**64 - 1)
ranges = st.lists(st.tuples(st.integers(0, 99), st.integers(100, 999)), max_size=5).map(RangeSet)


@given(st.booleans(), u64, u64, u64, ranges)
def test_cursor(taking: bool, floor: int, mark: int, epoch: int, finished: RangeSet) -> None:
    record = records.CursorRecord(taking, floor, mark, epoch, finished)
    assert records.unpack_cursor(records.pack_cursor(record)) == record


clocks = st.lists(st.tuples(u64, st.floats(0, 1e9)), max_size=5).map(GapClocks)


@given(u64, u64, st.floats(0, 1e9), ranges, ranges, clocks)
def test_origin(mark: int, passed: int, waited: float, finished: RangeSet, ended: RangeSet, of: GapClocks) -> None:
    record = custody_records.OriginRecord(mark, passed, waited, finished, ended, of)
    data = custody_records.pack_origin(record)
    assert custody_records.unpack_origin(data) == record
    before = custody_records.unpack_origin(data[: len(data) - 16 * len(of)])  # as it was before gaps had clocks
    assert before == record._replace(clocks=GapClocks())


@given(u64, u64, ranges)
def test_producer(epoch: int, used: int, stored: RangeSet) -> None:
    assert records.unpack_producer(records.pack_producer(epoch, used, stored)) == (epoch, used, stored)


@given(st.binary(min_size=16, max_size=16), u64)
def test_hop(epoch: bytes, last: int) -> None:
    assert custody_records.unpack_hop(custody_records.pack_hop(epoch, last)) == (epoch, last)


@given(st.floats(0, 1e6), st.text(max_size=20), st.integers(0, 2**31), st.integers(0, 99))
def test_link(hold_s: float, target: str, first: int, more: int) -> None:
    packed = custody_records.pack_link(hold_s, target, TagRing(100, [(first, first + more)]))
    seconds, address, tags = custody_records.unpack_link(packed, 100)
    assert (seconds, address, list(tags)) == (hold_s, target, [(first, first + more)])


@given(st.integers(0, 2**32 - 1), st.text(max_size=20))
def test_cursor_key(queue_id: int, name: str) -> None:
    assert records.split_cursor_key(records.cursor_key(queue_id, name)) == (queue_id, name)


def test_a_record_that_is_none() -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        records.unpack_map(b"\xd1\x00")
