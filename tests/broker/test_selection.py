"""What one selector has looked at (docs/adr/0063)."""

from types import SimpleNamespace
from typing import Any

from holdfast.broker.cursors.selection import HIT_BYTES, Selection
from holdfast.broker.cursors.waiting_for_others import FOR_OTHERS_BYTES


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
        found.pass_over(sequence)
    found.rewind(10)
    assert found.passed_over == 5 and found.position == 10
    found.rewind(5)
    assert found.passed_over is None and found.position == 5


def test_hits_behind_what_is_looked_at_again_are_found_again() -> None:
    found = selection(20)
    for sequence in (15, 5, 10):
        found.add(sequence)
    found.leave_to_others(15, [], 9)
    found.rewind(10)
    assert [*found.hits] == [5] and not found.for_others
    found.rewind(10)  # there already
    assert [*found.hits] == [5] and found.position == 10


def test_of_hits_and_what_waits_for_others_the_lowest_goes_first() -> None:
    found = selection(20)
    one, other = Any, object()
    for sequence in (15, 5, 10):
        found.add(sequence)
    found.leave_to_others(5, [other], 9)
    assert found.first_for([one]) == 10 and found.first_for([one, other]) == 5
    assert found.not_yet_asked([one, other], 5) == [other] and found.not_yet_asked([one, other], 10) == [one, other]
    found.add(5)
    assert 5 not in found.hits and 5 in found
    found.forget(5)
    assert found.first_for([one, other]) == 10 and 5 not in found


def test_what_waits_for_others_counts_as_memory_too() -> None:
    found = selection(20)
    for sequence in (5, 10, 15):
        found.add(sequence)
    found.leave_to_others(5, [], 9)
    assert found.size == 2 * HIT_BYTES + FOR_OTHERS_BYTES
