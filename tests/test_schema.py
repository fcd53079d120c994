"""What counts as a whole number, in a file and from a peer; which key is meant by one that is none."""

import math
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.schema import (
    COUNT,
    FLAG,
    FOUND_MAX,
    NUMBER,
    SECONDS,
    TEXT,
    TEXTS,
    Kind,
    check_document,
    check_keys,
    found,
    is_whole_within,
    one_of,
    whole_within,
)


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


def test_a_key_that_is_nearly_right_is_not_sent_to_another_table() -> None:
    tables = {"access": {"users": TEXTS, "name": TEXT}, "neighbour": {"user": TEXT, "name": TEXT, "far": TEXT}}
    for key, said in (
        ("user", "; did you mean users, or the table [neighbour]?"),
        ("far", "; it is a key of [neighbour]"),
    ):
        with pytest.raises(ConfigError) as caught:
            check_document({"access": {key: "x"}}, tables=tables, lists={}, named_by={})
        assert str(caught.value).endswith(said)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"name": "a", "of it": [True, 1, {}]}, "{ name = 'a', 'of it' = [true, 1, {}] }"),
        ({"": date(2026, 1, 2)}, "{ '' = 2026-01-02 }"),
        ([time(1, 2), datetime(2026, 1, 2, 3)], "[01:02:00, 2026-01-02T03:00:00]"),
        ([math.inf, -math.inf, 0.5], "[inf, -inf, 0.5]"),
        (None, "None"),
        ({"name": "x" * 80}, "{ name = '" + "x" * 47 + "..."),
        ([10**60, 1], "[..., 1]"),
        (-(10**60), "of more than 60 digits"),
    ],
)
def test_a_value_is_told_as_it_is_written_in_toml(value: Any, text: str) -> None:
    assert found(value) == text


@pytest.mark.parametrize("depth", [FOUND_MAX, 5_000])
@pytest.mark.parametrize(("inside", "text"), [(lambda value: [value], "["), (lambda value: {"a": value}, "{ a = ")])
def test_a_value_that_is_nested_deep_is_told_as_far_as_there_is_room(
    inside: Callable[[Any], Any], text: str, depth: int
) -> None:
    value: Any = 1
    for _ in range(depth):
        value = inside(value)
    assert found(value) == (text * depth)[: FOUND_MAX - 3] + "..."


@pytest.mark.parametrize(("kind", "value"), [(TEXT, "a\0b"), (TEXTS, ["a", "a\0b"])])
def test_a_text_has_no_nul(kind: Kind, value: Any) -> None:
    """No file can be called so, and no command be given it."""
    assert not kind.fits(value) and kind.wanted(value) == f"{kind.expected}; it has a NUL"


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (COUNT, "3", "a whole number above 0, without quotes"),
        (whole_within(1, 9), "3", "a whole number, 1 to 9, without quotes"),
        (SECONDS, "1.5", "a number of seconds above 0, without quotes"),
        (FLAG, "true", "true or false, without quotes"),
        (COUNT, "many", "a whole number above 0"),
        (COUNT, "0", "a whole number above 0"),
        (one_of("a", "b"), "3", "one of a, b"),
        (TEXTS, "3", "a list of texts in quotes"),
    ],
)
def test_quotes_are_told_where_they_are_the_mistake(kind: Kind, value: str, said: str) -> None:
    assert kind.wanted(value) == said


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (
            COUNT,
            2**63,
            "9223372036854775808 for queue 'x' m; expected a whole number above 0, at most 9223372036854775807",
        ),
        (COUNT, 0, "0 for queue 'x' m; expected a whole number above 0"),
        (COUNT, -(2**63), "-9223372036854775808 for queue 'x' m; expected a whole number above 0"),
        (NUMBER, 2**64, "18446744073709551616 for queue 'x' m; expected a number, at most 9223372036854775807"),
        (
            SECONDS,
            10**60,
            "of more than 60 digits for queue 'x' m; expected a number of seconds above 0, at most 9223372036854775807",
        ),
        (
            TEXTS,
            [10**5000],
            "[...] for queue 'x' m; expected a list of texts in quotes",
        ),
        (FLAG, 2**63, "9223372036854775808 for queue 'x' m; expected true or false"),
        (TEXT, 2**63, "9223372036854775808 for queue 'x' m; expected text in quotes, not empty"),
        (TEXTS, 2**63, "9223372036854775808 for queue 'x' m; expected a list of texts in quotes"),
        (one_of("a", "b"), 2**63, "9223372036854775808 for queue 'x' m; expected one of a, b"),
        (whole_within(1, 9), 2**63, "9223372036854775808 for queue 'x' m; expected a whole number, 1 to 9"),
    ],
)
def test_a_number_that_is_too_large_is_told_what_is_the_largest(kind: Kind, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_keys("queue 'x'", {"m": value}, {"m": kind})
    assert str(caught.value) == f"invalid value {said}"
