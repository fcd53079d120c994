"""How numbers are written for people."""

import pytest

from holdfast.errors import ConfigError
from holdfast.settings.limits import Limits
from holdfast.units import written


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (0.1, "0.1"), (1 / 3, "0.333333"), (60.0, "60"), (1_048_576, "1048576"), (-2.0**40, "-1099511627776"),
        (2**53 + 1, "9007199254740993"), (1e18, "1e+18"), (1e300, "1e+300"),
    ],
)  # fmt: skip
def test_whole_numbers_are_written_whole(number: float, text: str) -> None:
    assert written(number) == text


def test_a_limit_is_told_in_a_form_that_can_be_written_into_the_file() -> None:
    with pytest.raises(ConfigError, match=r"memory_bytes_max; expected 1048576 to 1125899906842624$"):
        Limits(memory_bytes_max=1).validate()
