"""The table of expressions: results, errors and their places, and canonical texts. JMS 2.0 §3.8.1."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.selectors.errors import SelectorError
from holdfast.selectors.predicate import compile_selector
from holdfast.selectors.sections import Sections
from support.each import each

RESULTS = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
LINE = re.compile(r"(TRUE|FALSE|UNKNOWN|invalid (\d+)) +(.*)")


def rows() -> list[tuple[str, str, int, str]]:
    """(message, result, column or 0, expression) of each line of the table."""
    found = []
    message = ""
    for line in Path(__file__).with_name("table.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("message "):
            message = line.removeprefix("message ")
        elif line and not line.startswith("#"):
            row = LINE.fullmatch(line)
            assert row is not None, line
            found.append((message, row[1].split()[0], int(row[2] or 0), row[3]))
    return found


ROWS = rows()
VALID = [(message, result, text) for message, result, column, text in ROWS if not column]
INVALID = [(text, column) for _, _, column, text in ROWS if column]


def test_the_table_is_as_large_as_it_should_be() -> None:
    assert len(ROWS) >= 400
    assert len({(message, text) for message, _, _, text in ROWS}) == len(ROWS), "an expression stands twice"


def test_an_expression_has_the_result_of_the_table(messages: Mapping[str, Sections]) -> None:
    def check(case: tuple[str, str, str]) -> None:
        message, result, text = case
        predicate = compile_selector(text)
        assert predicate.value(messages[message]) is RESULTS[result]
        assert predicate.matches(messages[message]) is (result == "TRUE")

    each(VALID, check)


def test_what_is_no_selector_is_refused_with_its_place() -> None:
    def check(case: tuple[str, int]) -> None:
        text, column = case
        with pytest.raises(SelectorError) as caught:
            compile_selector(text)
        assert caught.value.column == column, caught.value
        assert str(caught.value).endswith(f", at column {column}")
        assert str(caught.value).isprintable()

    each(INVALID, check)


def test_a_canonical_text_means_the_same_and_is_its_own(messages: Mapping[str, Sections]) -> None:
    def check(case: tuple[str, str, str]) -> None:
        message, result, text = case
        predicate = compile_selector(text)
        again = compile_selector(predicate.text)
        assert again.text == predicate.text
        assert again.sections == predicate.sections
        assert again.value(messages[message]) is RESULTS[result]

    each(VALID, check)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("((a))", "a"),
        ("a   AND\tb\nand (c and d)", "a AND b AND c AND d"),
        ("(a or b) and (not (c))", "(a OR b) AND NOT c"),
        ("not (a and b) or (c is NULL)", "NOT (a AND b) OR c IS NULL"),
        ("not (not a)", "NOT NOT a"),
        ("((a + b) + c) - (d - (e)) = (1)", "a + b + c - (d - e) = 1"),
        ("a + (b + c) = (a * b) / (c * d)", "a + (b + c) = a * b / (c * d)"),
        ("-(a + 1) = - - a", "-(a + 1) = - -a"),
        ("a = -(5) and b = - 5 and c = - -5", "a = -5 AND b = -5 AND c = 5"),
        ("a=0x10 or a=010 or a=10L", "a = 16 OR a = 8 OR a = 10"),
        ("a=7. or a=.5 or a=7E3 or a=1.5f", "a = 7.0 OR a = 0.5 OR a = 7000.0 OR a = 1.5f"),
        ("a in('x','''')", "a IN ('x', '''')"),
        ("a not like'%' escape'!'", "a NOT LIKE '%' ESCAPE '!'"),
        ("(a) not between (1) and (b+1)", "a NOT BETWEEN 1 AND b + 1"),
        ('"a" = "b c" and "null"', 'a = "b c" AND "null"'),
        ('"amqp.annotation.x-y" = "a-b"', 'amqp.annotation.x-y = "a-b"'),
        ('"a""b" = true', '"a""b" = TRUE'),
    ],
)
def test_a_canonical_text_has_single_blanks_and_the_fewest_parentheses(text: str, canonical: str) -> None:
    assert compile_selector(text).text == canonical
    assert compile_selector(canonical).text == canonical
