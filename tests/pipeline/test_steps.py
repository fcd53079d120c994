"""Steps of a job without Spark: whatever is wrong with a function or its arguments is one line that names the step."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame

from holdfast.errors import ConfigError
from pyspark_holdfast.steps import Step, check_places, check_steps, through

MODULE = """
from pyspark.errors import AnalysisException

def fails(rows, kind):
    if kind == "spark":
        raise AnalysisException("[UNRESOLVED_COLUMN] no column x\\n'Filter x\\n")
    if kind == "gone":
        raise OSError("Spark is gone")
    raise KeyError(kind)

def nothing(rows):
    rows.count

def passes(rows):
    return rows
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of the user's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_steps.py").write_text(MODULE)
    (tmp_path / "torn_steps.py").write_text("def f(:\n")
    (tmp_path / "angry_steps.py").write_text("1 / 0\n")
    yield "own_steps"
    for name in ("own_steps", "torn_steps", "angry_steps"):
        sys.modules.pop(name, None)


class Rows(DataFrame):
    """Stands for rows."""

    def __new__(cls, *_: Any) -> "Rows":
        return object.__new__(cls)

    def count(self) -> int:
        return 0


ROWS = Rows(None, None)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("spark", "step 2, own_steps:fails: [UNRESOLVED_COLUMN] no column x"),
        ("tag", "step 2, own_steps:fails: KeyError: 'tag'"),
    ],
)
def test_what_a_step_raises_names_it(own: str, kind: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        through(ROWS, [Step(f"{own}:passes"), Step(f"{own}:fails", {"kind": kind})])
    assert str(caught.value) == said


def test_a_session_that_is_gone_is_no_mistake_of_a_step(own: str) -> None:
    with pytest.raises(OSError, match="Spark is gone"):
        through(ROWS, [Step(f"{own}:fails", {"kind": "gone"})])


def test_a_step_that_returns_no_rows_is_told(own: str) -> None:
    with pytest.raises(ConfigError, match=r"^step 1, own_steps:nothing: it returned NoneType; expected"):
        through(ROWS, [Step(f"{own}:nothing")])
    assert through(ROWS, [Step(f"{own}:passes")]) is ROWS


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("torn_steps:f", r"step 1: no function 'torn_steps:f' \(SyntaxError: "),
        ("angry_steps:f", r"step 1: no function 'angry_steps:f' \(ZeroDivisionError: division by zero\)"),
        ("builtins:dict", "step 1, builtins:dict: no signature found"),
    ],
)
def test_a_function_that_cannot_be_had_is_told_before_spark_starts(own: str, function: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_steps([Step(function)])
    assert "\n" not in str(caught.value)


KEY = ["tag", "place"]
REPEATS = Step("without_repeats", {"key": KEY, "within_s": 5})
COUNTED = Step("counted", {"key": KEY, "window_s": 5})
WHERE = Step("where", {"condition": "x"})
COLUMNS = Step("columns", {"names": ["tag AS body"]})


def order(*by: str) -> Step:
    return Step("in_order", {"by": by})


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([WHERE, COUNTED], "step 2, counted: .* Spark gives them another order each time; expected in_order behind it"),
        ([order("tag"), COUNTED, COLUMNS], "step 2, counted: .*; expected in_order behind it"),
        ([COUNTED, order("tag"), COUNTED], "step 3, counted: .*; expected in_order behind it"),
        ([REPEATS], "step 1, without_repeats: .*; expected in_order behind it"),
        ([REPEATS, order("tag", "enqueued")], "expected in_order next, by tag, place first, and behind it no step"),
        ([REPEATS, COLUMNS, order("tag", "place")], "step 1, without_repeats: .* expected in_order next"),
        ([REPEATS, order("place", "tag"), WHERE], "step 1, without_repeats: .* behind it no step that leaves out"),
    ],
)
def test_rows_whose_places_may_change_are_not_sent(steps: list[Step], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_places(steps, by_column=False)


def test_rows_whose_places_stay_are_sent() -> None:
    repeats = [WHERE, REPEATS, order("place", "tag", "at"), COLUMNS]
    for steps in ([WHERE, COLUMNS], [COUNTED, WHERE, order("tag"), WHERE], repeats):
        check_places(steps, by_column=False)
    with pytest.raises(
        ConfigError, match=r"step 2, without_repeats: .*; expected 'address' in its key, or sink.address"
    ):
        check_places(repeats, by_column=True)
    check_places([Step("without_repeats", {"key": ["address"]}), order("address")], by_column=True)
