"""The day from which the short forms of long campaigns draw, for helpers that no fixture reaches.

Rules of this file: set once, by `tests/conftest.py`, before any test is collected. What a test draws follows from the
day alone, so `--day` brings it back; `--long` draws all there is.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from hypothesis import seed, settings

T = TypeVar("T")

number = 0
"""As the fixture `day` has it."""

long = False
"""Whether tests take their long form: every seed and not the day's, LONG times as many examples, and invariants after
every turn of every node and not after drawn ones."""

LONG: Final = 20


def some(given: Sequence[T], count: int) -> list[T]:
    """`count` of them, the next ones each day: each has its turn within len(given) / count days, rounded up."""
    if long:
        return list(given)
    first = number * count
    return [given[(first + at) % len(given)] for at in range(count)]


def has_turn(place: int, of: int) -> bool:
    """Whether it is the turn of the one at this place, of so many that take turns."""
    return long or (number + place) % of == 0


def drawn(count: int) -> int:
    """How many examples of a property are tried, whose short form has `count`."""
    return count * LONG if long else count


def examples(count: int) -> Callable[[Any], Any]:
    """A property is tried with so many examples, each day with others."""

    def decorate(test: Any) -> Any:
        return seed(number)(settings(max_examples=drawn(count), deadline=None)(test))

    return decorate
