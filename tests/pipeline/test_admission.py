"""Shares of a bound: nobody waits for a queue with a backlog."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_holdfast.admission import shares, turned, within_rows
from pyspark_holdfast.bus import Window

WANTED = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50))


@given(WANTED, st.integers(0, 200))
def test_a_bound_is_used_up_and_shared_evenly(wanted: dict[str, int], bound: int) -> None:
    given = shares(wanted, bound)
    assert sum(given.values()) == min(bound, sum(wanted.values()))
    assert all(0 <= given[key] <= wanted[key] for key in wanted)
    cut = [given[key] for key in wanted if given[key] < wanted[key]]
    if cut:
        assert max(cut) - min(cut) <= 1
        assert all(given[key] <= min(cut) + 1 for key in wanted)


def test_what_is_little_is_taken_whole() -> None:
    assert shares({"a": 1_000, "b": 3, "c": 1_000}, 103) == {"a": 50, "b": 3, "c": 50}


def test_each_is_the_first_once() -> None:
    assert [turned("abc", turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert turned([], 5) == []


def test_the_ends_of_a_batch() -> None:
    windows = {"a": Window(11, 11), "b": Window(8, 50)}
    starts = {"a": 1, "b": 5}
    assert within_rows(windows, starts, None) == {"a": 11, "b": 8}
    assert within_rows(windows, starts, 13) == {"a": 11, "b": 8}
    assert within_rows(windows, starts, 7) == {"a": 5, "b": 8}
