"""Entries that leave their queue only with a turn's result (state/tied.py)."""

from types import SimpleNamespace
from typing import Any

from holdfast.state import tied


def catalog(**rows: dict[int, None]) -> Any:
    return SimpleNamespace(rows=SimpleNamespace(tied=rows))


def test_a_cursor_is_forgotten_with_the_last_entry_that_waits_for_a_turn() -> None:
    found = catalog(reader={1: None, 2: None, 5: None}, other={1: None})
    tied.untie(found, "reader", [1, 9])  # type: ignore[arg-type]
    assert found.rows.tied == {"reader": {2: None, 5: None}, "other": {1: None}}
    tied.untie(found, "reader", [5, 2])  # type: ignore[arg-type]
    assert found.rows.tied == {"other": {1: None}}
    tied.untie(found, "reader", [2])  # type: ignore[arg-type]
    assert found.rows.tied == {"other": {1: None}}
