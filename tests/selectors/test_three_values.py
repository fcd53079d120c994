"""Selectors against SQLite's three-valued logic: the same expression over the same values has the same result.

What is drawn stays where both agree. They differ in this, so it is not drawn:

- Types. SQLite orders values of unlike types and converts between texts and numbers; here they compare FALSE. So each
  comparison has values of one type, or a null.
- Booleans. SQLite's are the numbers 0 and 1. They are drawn as conditions of their own, never as operands.
- Strings. SQLite orders them; here they are equal or not. Its LIKE ignores the case of ASCII letters unless it is told
  otherwise (`PRAGMA case_sensitive_like`), and lets an escape character stand before any other.
- Arithmetic. SQLite turns an overflow of 64 bits into a double, where here it is UNKNOWN. So numbers are small. Both
  divide towards zero, and `/ 0` is null there and UNKNOWN here.
- BETWEEN and IN. SQLite takes any operand of any type; here IN takes a name and strings.
- Numbers. SQLite compares an exact and an approximate number exactly, here the exact one becomes a double first. Small
  ones are the same. SQLite has no NaN and no 32-bit numbers.
- IS NULL takes any operand in SQLite, a name here.
"""

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.selectors.predicate import compile_selector
from holdfast.selectors.sections import Sections

NUMBERS = ("n1", "n2", "n3")
TEXTS = ("t1", "t2", "t3")
BOOLEANS = ("b1", "b2", "b3")

small = st.integers(-20, 20)
number_values = st.none() | small | st.sampled_from([0.5, -1.5, 2.0, 7.25])
characters = st.text("aB%_'!x", max_size=6)
rows = st.fixed_dictionaries(
    dict.fromkeys(NUMBERS, number_values)
    | {name: st.none() | characters for name in TEXTS}
    | {name: st.none() | st.booleans() for name in BOOLEANS}
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def joined(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: template.format(*found))


number_names = st.sampled_from(NUMBERS)
text_names = st.sampled_from(TEXTS)
literals = small.filter(lambda number: number >= 0).map(str) | st.sampled_from(["0.5", "1.5", "7.25", "2e0"])
numbers = st.recursive(
    number_names | literals,
    lambda inner: st.one_of(
        joined("{} {} {}", inner, st.sampled_from("+-*/"), inner),
        joined("({})", inner),
        joined("- {}", inner),
    ),
    max_leaves=5,
)
strings = characters.map(quoted)
negations = st.sampled_from(["", "NOT "])
comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """A pattern, perhaps with an escape character before what may be escaped."""
    parts = draw(st.lists(st.sampled_from(["a", "B", "%", "_", "'", "x", "!%", "!_", "!!"]), max_size=6))
    if any(part.startswith("!") for part in parts):
        return f"{quoted(''.join(parts))} ESCAPE '!'"
    return quoted("".join(parts))


tests = st.one_of(
    joined("{} {} {}", numbers, comparisons, numbers),
    joined("{} {}BETWEEN {} AND {}", numbers, negations, numbers, numbers),
    joined("{} {} {}", text_names | strings, st.sampled_from(["=", "<>"]), text_names | strings),
    joined("{} {}IN ({})", text_names, negations, st.lists(strings, min_size=1, max_size=3).map(", ".join)),
    joined("{} {}LIKE {}", text_names, negations, patterns()),
    joined("{} IS {}NULL", st.sampled_from((*NUMBERS, *TEXTS, *BOOLEANS)), negations),
    st.sampled_from((*BOOLEANS, "TRUE", "FALSE")),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        joined("{} AND {}", inner, inner),
        joined("{} OR {}", inner, inner),
        joined("NOT {}", inner),
        joined("({})", inner),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = TRUE")
    return connection


def in_sqlite(connection: sqlite3.Connection, row: dict[str, Any], text: str) -> bool | None:
    columns = ", ".join(f":{name} AS {name}" for name in row)
    (found,) = connection.execute(f"SELECT {text} FROM (SELECT {columns})", row).fetchone()
    return None if found is None else bool(found)


def message_of(row: dict[str, Any]) -> Sections:
    return Sections(Message(application_properties=row, value=None).encode())


@given(row=rows, text=conditions)
def test_a_selector_and_sqlite_agree(database: sqlite3.Connection, row: dict[str, Any], text: str) -> None:
    predicate = compile_selector(text)
    wanted = in_sqlite(database, row, text)
    message = message_of(row)
    assert predicate.value(message) is wanted
    assert compile_selector(predicate.text).value(message) is wanted
    assert in_sqlite(database, row, predicate.text) is wanted


@given(text=conditions)
def test_blanks_cases_and_parentheses_do_not_change_the_canonical_text(text: str) -> None:
    predicate = compile_selector(text)
    assert compile_selector(f"\t( ({text})\n) ").text == predicate.text
    assert compile_selector(predicate.text).text == predicate.text
    words = [
        word.swapcase() if word.isupper() and word not in ("B", "%") else word for word in predicate.text.split(" ")
    ]
    if "'" not in predicate.text:
        assert compile_selector("  ".join(words)).text == predicate.text


@given(text=st.text("aB", max_size=12), pattern=st.text("aB%_", max_size=8))
def test_patterns_and_sqlite_agree(database: sqlite3.Connection, text: str, pattern: str) -> None:
    row = {"t1": text}
    wanted = in_sqlite(database, row, f"t1 LIKE {quoted(pattern)}")
    assert compile_selector(f"t1 LIKE {quoted(pattern)}").value(message_of(row)) is wanted
