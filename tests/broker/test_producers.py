"""Named producers: what a client is told of its numbers."""

import pytest

from holdfast.broker.stored.producers import MISSING_MAX, Producer
from holdfast.broker.stored.ranges import RangeSet


@pytest.mark.parametrize("gaps", [MISSING_MAX, MISSING_MAX + 1, MISSING_MAX + 24])
def test_no_number_that_is_missing_is_taken_for_stored(gaps: int) -> None:
    stored = RangeSet((2 * number, 2 * number) for number in range(1, gaps + 1))
    producer = Producer("p", "q", stored=stored)
    told = producer.missing()
    assert len(told) == MISSING_MAX
    missing = RangeSet((first, last) for first, last in told)
    assert all(number in missing for number in range(1, 2 * gaps, 2))
    assert [number for number in range(2, 2 * gaps + 1, 2) if number in missing] == list(
        range(2 * MISSING_MAX, 2 * gaps + 1, 2) if gaps > MISSING_MAX else ()
    )
