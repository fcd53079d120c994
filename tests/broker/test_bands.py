"""Room by priority, as arithmetic: which part of a queue's bounds a priority may fill, and from when on all of it."""

import pytest

from holdfast.broker.bands import PRIORITY_MOST, QUIET_S, Bands, check_bands, limit
from holdfast.errors import ConfigError

START = 1_000.0


def bands() -> Bands:
    return Bands(0.9, 0.95, QUIET_S, START)


@pytest.mark.parametrize("priority", range(PRIORITY_MOST + 1))
def test_the_part_of_each_priority(priority: int) -> None:
    expected = 0.9 if priority <= 3 else 0.95 if priority == 4 else 1.0
    assert bands().part(priority, START) == expected


def test_after_a_start_higher_priorities_count_as_having_come_just_then() -> None:
    found = bands()
    assert found.part(0, START + QUIET_S - 0.001) == 0.9
    assert found.part(0, START + QUIET_S) == found.part(4, START + QUIET_S) == 1.0


def test_a_priority_of_its_own_or_below_keeps_no_room() -> None:
    found = bands()
    found.came(0, START + 500)
    assert found.opens_at(0) == found.opens_at(4) == START + QUIET_S
    found.came(4, START + 500)
    assert (found.opens_at(3), found.opens_at(4)) == (START + 500 + QUIET_S, START + QUIET_S)
    found.came(5, START + 550)
    assert (found.opens_at(3), found.opens_at(4)) == (START + 550 + QUIET_S, START + 550 + QUIET_S)


def test_a_clock_that_is_set_back_opens_nothing_early() -> None:
    found = bands()
    found.came(9, START + 100)
    found.came(9, START - 900)
    assert found.opens_at(0) == START + 100 + QUIET_S


def test_a_band_is_never_empty() -> None:
    assert (limit(200, 0.9), limit(200, 0.95), limit(1, 0.1), limit(None, 0.5), limit(7, 1.0)) == (180, 190, 1, None, 7)


@pytest.mark.parametrize(
    ("low", "normal", "quiet_s", "key"),
    [
        (0.0, 1.0, 1.0, "room_low"), (0.9, 1.01, 1.0, "room_normal"), (0.95, 0.9, 1.0, "room_low"),
        (0.9, 0.95, 0.0, "room_quiet_s"), (0.9, 0.95, 1e9, "room_quiet_s"), (float("nan"), 1.0, 1.0, "room_low"),
    ],
)  # fmt: skip
def test_what_is_no_band_is_refused(low: float, normal: float, quiet_s: float, key: str) -> None:
    with pytest.raises(ConfigError, match=f"queue 'work'.*{key}"):
        check_bands("queue 'work'", low, normal, quiet_s)


def test_the_value_that_is_wrong_is_named_alone() -> None:
    with pytest.raises(ConfigError, match=r"^invalid value 0 for queue .work. room_low; expected a number above 0"):
        check_bands("queue 'work'", 0.0, 1.0, 600.0)
    with pytest.raises(ConfigError, match=r"^invalid values 1 and 0.5 for queue .work. room_low and room_normal"):
        check_bands("queue 'work'", 1.0, 0.5, 600.0)
