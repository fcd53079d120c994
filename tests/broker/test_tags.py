"""The last tags of a link, against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.stored.tags import TagRing
from holdfast.errors import StorageError

RUNS = st.lists(st.tuples(st.integers(0, 400) | st.integers(2**32 - 50, 2**32 - 41), st.integers(1, 40)), max_size=12)


def spelt_out(ring: TagRing) -> list[int]:
    return [number for first, last in ring for number in range(first, last + 1)]


@given(RUNS, st.integers(1, 50))
def test_it_is_the_end_of_the_list(runs: list[tuple[int, int]], count_max: int) -> None:
    added: list[int] = []
    ring = TagRing(count_max)
    for first, count in runs:
        ring.add(first, first + count - 1)
        added += range(first, first + count)
    kept = added[-count_max:]
    assert spelt_out(ring) == kept
    assert ring.count == len(kept)
    assert ring.members() == {number.to_bytes(4) for number in kept}
    assert spelt_out(TagRing.unpack(ring.pack(), count_max)) == kept
    ring.copy().add(7, 9)
    assert spelt_out(ring) == kept


def test_tags_that_count_on_are_one_run_and_the_oldest_goes_at_the_bound() -> None:
    ring = TagRing(4_096)
    ring.add(0, 4_095)
    assert list(ring) == [(0, 4_095)]
    ring.add(4_096, 4_096)
    assert list(ring) == [(1, 4_096)]
    assert len(ring.pack()) == 8


@pytest.mark.parametrize("data", [b"\x04", bytes(12), b"\x00\x00\x00\x02\x00\x00\x00\x01"])
def test_what_is_no_record_is_told(data: bytes) -> None:
    with pytest.raises(StorageError):
        TagRing.unpack(data, 10)
