"""How often Python looks for cycles."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.collecting import THRESHOLDS, collect_rarely, collecting_rarely


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_left_between_two_calls_is_still_collected() -> None:
    """A worker of Spark's calls it for each of its tasks, for weeks."""
    collect_rarely()
    left = weakref.ref(Circle())
    collect_rarely()
    assert gc.get_threshold() == THRESHOLDS and left() is not None
    gc.collect()
    assert left() is None


@pytest.fixture
def own() -> Iterator[tuple[int, int, int]]:
    """The thresholds of a program that has set some."""
    before, own = gc.get_threshold(), (701, 11, 12)
    gc.set_threshold(*own)
    yield own
    gc.set_threshold(*before)


def test_the_thresholds_of_others_are_put_back_however_a_task_ends(own: tuple[int, int, int]) -> None:
    with suppress(ZeroDivisionError), collecting_rarely():
        assert gc.get_threshold() == THRESHOLDS
        raise ZeroDivisionError
    assert gc.get_threshold() == own


def test_of_several_tasks_at_a_time_the_last_one_puts_them_back(own: tuple[int, int, int]) -> None:
    """In whatever order they end."""
    one, other = collecting_rarely(), collecting_rarely()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold() == THRESHOLDS
    other.__exit__(None, None, None)
    assert gc.get_threshold() == own
