"""Super nodes: which of them acts, whose heartbeats are expected, and who is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.routing.supers import CALM, DIFFERS, FIRST, MISSED, PATIENCE_MAX, PATIENCE_NODES_MAX, Supers, acting

HEARTBEAT_S = 2.0
LOST_S = MISSED * HEARTBEAT_S
FIRST_S = FIRST * LOST_S


def heard(supers: Supers, name: str, now: float, *, same: bool = True) -> bool:
    return supers.heard(name, [name, "hub"], shortest=True, same=same, now=now)


# ------------------------------------------------------------------------------------------------ who acts


@pytest.mark.parametrize(
    ("there", "expected"),
    [("abc", "c"), ("ab", "a"), ("b", "b"), ("", None)],
)
def test_the_lowest_number_then_the_lowest_name_of_those_there_acts(there: str, expected: str | None) -> None:
    assert acting({"b": 7, "a": 7, "c": 3}, there.__contains__) == expected


# ------------------------------------------------------------------------------------------------ whom it expects


def test_who_is_expected_first_has_its_whole_time_from_then() -> None:
    supers = Supers(HEARTBEAT_S)
    assert supers.next_deadline() is None and supers.overdue(1e9) == []
    supers.expect({"a": 1}, 10.0)
    assert supers.next_deadline() == 10.0 + FIRST_S
    assert supers.overdue(10.0 + FIRST_S - 0.001) == []
    assert supers.overdue(10.0 + FIRST_S) == ["a"]
    heard(supers, "a", 20.0)
    assert supers.overdue(20.0 + LOST_S - 0.001) == [] and supers.overdue(20.0 + LOST_S) == ["a"]


def test_to_be_expected_again_gives_no_time_but_a_new_word_does() -> None:
    supers = Supers(HEARTBEAT_S)
    supers.expect({"a": 1, "b": 1}, 10.0)
    heard(supers, "a", 10.0)
    heard(supers, "b", 10.0)
    supers.expect({"a": 1, "b": 2}, 13.0)
    assert supers.overdue(10.0 + LOST_S) == ["a"]
    assert supers.overdue(13.0 + LOST_S) == ["a", "b"]
    supers.expect({"a": 1, "b": 1}, 15.0)  # whatever the other version is, it was said now
    assert supers.seen["b"].since == 15.0


def test_who_is_expected_no_more_is_forgotten_and_begins_anew() -> None:
    supers = Supers(HEARTBEAT_S)
    supers.expect({"a": 1, "b": 1}, 10.0)
    heard(supers, "a", 11.0, same=False)
    supers.expect({"b": 1}, 12.0)
    assert list(supers.seen) == ["b"] and not heard(supers, "a", 13.0)
    supers.expect({"a": 1, "b": 1}, 14.0)
    again = supers.seen["a"]
    assert (again.since, again.heard_at, again.trace, again.differs) == (14.0, None, (), 0)


# ------------------------------------------------------------------------------------------------ heartbeats


def test_a_heartbeat_is_a_sign_of_life_and_tells_its_way() -> None:
    supers = Supers(HEARTBEAT_S)
    supers.expect({"a": 1, "b": 1}, 10.0)
    assert not supers.heard("a", iter(["a", "hub"]), shortest=True, same=True, now=15.0)
    seen = supers.seen["a"]
    assert (seen.heard_at, seen.since, seen.trace, seen.shortest) == (15.0, 15.0, ("a", "hub"), True)
    assert supers.overdue(10.0 + FIRST_S) == ["a", "b"] and supers.next_deadline() == 15.0 + LOST_S
    assert supers.overdue(15.0 + LOST_S) == ["a"]
    supers.heard("a", ["a"], shortest=False, same=True, now=16.0)
    assert supers.seen["a"].trace == ("a",) and not supers.seen["a"].shortest


def test_a_heartbeat_of_a_stranger_says_nothing() -> None:
    supers = Supers(HEARTBEAT_S)
    assert not any(heard(supers, "x", float(second), same=False) for second in range(2 * DIFFERS))
    assert supers.seen == {}


def test_another_table_is_told_after_so_many_in_a_row_and_then_after_as_many_again() -> None:
    supers = Supers(HEARTBEAT_S)
    supers.expect({"a": 1}, 0.0)
    told = [heard(supers, "a", float(second), same=False) for second in range(2 * DIFFERS)]
    assert told == 2 * [*[False] * (DIFFERS - 1), True]


def test_one_equal_table_between_begins_the_count_anew() -> None:
    supers = Supers(HEARTBEAT_S)
    supers.expect({"a": 1, "b": 1}, 0.0)
    row = [*[False] * (DIFFERS - 1), True]
    assert not any(heard(supers, "a", 1.0, same=same) for same in 3 * row)
    assert not any(heard(supers, "b", 1.0, same=False) for _ in range(DIFFERS - 1)), "each node has its own count"
    assert heard(supers, "b", 1.0, same=False)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 3 * HEARTBEAT_S), st.sampled_from("abc"), st.sampled_from(["heard", "new word", "expected"])
    ),
    max_size=60,
)


@given(STEPS)
def test_who_is_overdue_is_who_gave_no_sign_of_life_for_so_long(steps: list[tuple[float, str, str]]) -> None:
    supers = Supers(HEARTBEAT_S)
    versions = dict.fromkeys("abc", 1)
    waits_s = dict.fromkeys("abc", FIRST_S)
    signs = dict.fromkeys("abc", 0.0)
    supers.expect(versions, 0.0)
    now = 0.0
    for passed_s, name, what in steps:
        now += passed_s
        if what == "heard":
            heard(supers, name, now)
            waits_s[name] = LOST_S
        elif what == "new word":
            versions[name] += 1
        supers.expect(versions, now)
        if what != "expected":
            signs[name] = now
        assert supers.overdue(now) == [name for name, at in signs.items() if now >= at + waits_s[name]]
        assert supers.next_deadline() == min(at + waits_s[name] for name, at in signs.items())


# ------------------------------------------------------------------------------------------------ patience


def silent_for_s(supers: Supers, name: str, now: float) -> float:
    """How long it may be silent from now on, after a heartbeat."""
    heard(supers, name, now)
    at = supers.next_deadline()
    assert at is not None and supers.overdue(at) == [name] and supers.overdue(at - 0.001) == []
    return at - now


def test_who_was_called_lost_and_came_back_may_be_silent_for_longer_each_time() -> None:
    supers = Supers(HEARTBEAT_S)
    waits_s = []
    for version in range(8):
        supers.expect({"a": version}, 0.0)
        waits_s.append(silent_for_s(supers, "a", 1.0))
        assert supers.called_lost("a") == waits_s[-1], "what the log says"
        supers.expect({}, 2.0)
    assert waits_s == [LOST_S * min(2**times, PATIENCE_MAX) for times in range(8)]


def test_patience_ends_with_heartbeats_that_come() -> None:
    supers = Supers(HEARTBEAT_S)
    for _ in range(2):
        supers.called_lost("a")
    supers.expect({"a": 1}, 0.0)
    assert silent_for_s(supers, "a", 1.0) == 4 * LOST_S
    for second in range(2, CALM):
        heard(supers, "a", float(second))
    assert silent_for_s(supers, "a", float(CALM)) == 2 * LOST_S
    for second in range(CALM + 1, 2 * CALM):
        heard(supers, "a", float(second))
    assert silent_for_s(supers, "a", 2.0 * CALM) == LOST_S and not supers.patience


def test_so_many_are_remembered_and_no_more() -> None:
    supers = Supers(HEARTBEAT_S)
    for number in range(PATIENCE_NODES_MAX):
        supers.called_lost(f"n{number}")
    assert len(supers.patience) == PATIENCE_NODES_MAX
    supers.called_lost("n0")
    supers.called_lost("one more")
    assert len(supers.patience) == PATIENCE_NODES_MAX and "n0" in supers.patience and "n1" not in supers.patience
