"""What counts as a whole number, in a file and from a peer."""

from typing import Any

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.schema import is_whole_within


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4, False), (5, True), (9, True), (10, False), (Ulong(5), True), (2**70, False), (-5, False),
        (True, False), (False, False), (5.0, False), ("5", False), (None, False), ([5], False),
    ],
)  # fmt: skip
def test_a_whole_number_lies_from_the_low_end_up_to_the_end(value: Any, expected: bool) -> None:
    assert is_whole_within(value, 5, 10) is expected


def test_true_and_false_are_no_numbers_where_one_and_nothing_are() -> None:
    assert is_whole_within(0, 0, 2) and is_whole_within(1, 0, 2)
    assert not is_whole_within(False, 0, 2) and not is_whole_within(True, 0, 2)
