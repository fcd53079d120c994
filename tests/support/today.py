"""The day from which the short forms of long campaigns draw, for helpers that no fixture reaches.

Rules of this file: set once, by `tests/conftest.py`, before any test is collected. What a test draws follows from the
day alone, so `--day` brings it back.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import seed, settings

T = TypeVar("T")

number = 0
"""As the fixture `day` has it."""


def some(given: Sequence[T], count: int) -> list[T]:
    """`count` of them, the next ones each day: each has its turn within len(given) / count days, rounded up."""
    first = number * count
    return [given[(first + at) % len(given)] for at in range(count)]


def examples(count: int) -> Callable[[Any], Any]:
    """A property is tried with so many examples, each day with others."""

    def decorate(test: Any) -> Any:
        return seed(number)(settings(max_examples=count, deadline=None)(test))

    return decorate
