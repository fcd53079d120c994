"""One test for a table of cases that take a fraction of a millisecond each, where a test for each would take several.

Rules of this file: every case is checked, whatever those before it were; the failure names each that is wrong.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def each(cases: Iterable[T], check: Callable[[T], object], *, name: Callable[[T], str] = str) -> None:
    """AssertionError with what `check` raised for each of the cases; there must be one case at least."""
    wrong, count = [], 0
    for count, case in enumerate(cases, 1):  # noqa: B007, counted after the loop
        try:
            check(case)
        except Exception as error:
            wrong.append(f"{name(case)}: {error or type(error).__name__}")
    assert count, "no case was checked"
    assert not wrong, "\n".join([f"{len(wrong)} of {count} are wrong", *wrong])
