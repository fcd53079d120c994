"""What one selector has looked at (docs/adr/0063)."""

from types import SimpleNamespace
from typing import Any

from holdfast.broker.cursors.selection import Selection


def selection(position: int) -> Selection:
    everything: Any = SimpleNamespace(text="TRUE", weight=1, matches=lambda value: True)
    found = Selection(everything, 0, shows=True)
    found.position = position
    return found


def test_what_was_passed_over_stays_so_where_more_is_looked_at_again() -> None:
    """It lies below what is looked at again: who comes later is still to have it."""
    found = selection(20)
    for sequence in (5, 15):
        found.add(sequence)
        found.pop()
        found.pass_over(sequence)
    found.rewind(10)
    assert found.passed_over == 5 and found.position == 10
    found.rewind(5)
    assert found.passed_over is None and found.position == 5


def test_hits_behind_what_is_looked_at_again_are_found_again() -> None:
    found = selection(20)
    for sequence in (15, 5, 10):
        found.add(sequence)
    found.rewind(10)
    assert found.hits == [5] and found.waiting == {5}
    found.rewind(10)  # there already
    assert found.hits == [5] and found.position == 10
