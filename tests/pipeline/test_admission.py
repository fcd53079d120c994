"""Shares of a bound: nobody waits for a queue with a backlog."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_holdfast.admission import Request, shares, turned, within_aim, within_bytes
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
    assert within_aim(windows, starts, None, 1) == {"a": 11, "b": 8}
    assert within_aim(windows, starts, 13, 1) == {"a": 11, "b": 8}
    assert within_aim(windows, starts, 7, 1) == {"a": 5, "b": 8}


def test_bytes_are_shared_by_average_sizes() -> None:
    windows = {"small": Window(101, 101, 10), "large": Window(101, 101, 1_000)}
    starts = {"small": 1, "large": 1}
    assert within_aim(windows, starts, 1_000, 20_000) == {"small": 101, "large": 20}
    assert within_aim(windows, starts, 50, 20_000) == {"small": 32, "large": 20}
    assert within_aim(windows, starts, 1_000, 10) == {"small": 2, "large": 2}, "one of each"


SIZES = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 40), max_size=12), min_size=1)


@given(SIZES, st.integers(1, 30), st.integers(1, 200), st.sets(st.sampled_from("abcd")))
def test_counted_bytes_are_a_limit(sizes: dict[str, list[int]], rows_max: int, bytes_max: int, away: set[str]) -> None:
    """Queues answer as nodes do: at most what is asked for, one message at least."""

    def ask(wanted: dict[str, Request]) -> dict[str, Window]:
        assert sum(request.rows_max for request in wanted.values()) <= rows_max
        found: dict[str, Window] = {}
        for key, (start, rows, most) in wanted.items():
            if key in away:
                continue
            end, size, tail = start, 0, len(sizes[key]) + 1
            while end < tail and (end == start or size + sizes[key][end - 1] <= most) and end - start < rows:
                size += sizes[key][end - 1]
                end += 1
            found[key] = Window(end, tail, 0, end - start, size, end < tail)
        return found

    ends = within_bytes(dict.fromkeys(sizes, 1), rows_max, bytes_max, ask)
    taken = [size for key, end in ends.items() for size in sizes[key][: end - 1]]
    assert len(taken) <= rows_max
    assert sum(taken) <= bytes_max or len(taken) == 1
    assert not away & ends.keys()
    assert taken or not any(found for key, found in sizes.items() if key not in away)
    if len(sizes) == 1 and not away:
        (found,) = sizes.values()
        more = found[len(taken) :]
        assert not more or len(taken) == rows_max or sum(taken) + more[0] > bytes_max
