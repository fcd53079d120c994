"""Selectors that travel with a row, at their bounds and one past them."""

import pytest

from holdfast.federation.messages import PREDICATE_BYTES_MAX
from holdfast.federation.predicates import TERMS_MAX, travelling


def terms(count: int) -> str:
    """So many names and constants."""
    return " AND ".join(["a = 1"] * (count // 2) + ["b"] * (count % 2))


def test_a_selector_travels_in_its_canonical_form() -> None:
    assert travelling("a  =  1") == travelling("(a = 1)") == "a = 1"


@pytest.mark.parametrize(
    ("text", "travels"),
    [
        (terms(TERMS_MAX), True),
        (terms(TERMS_MAX + 1), False),
        ("a = '" + "x" * (PREDICATE_BYTES_MAX - 6) + "'", True),
        ("a = '" + "x" * (PREDICATE_BYTES_MAX - 5) + "'", False),
        ("a = ", False),
    ],
)
def test_bounds(text: str, travels: bool) -> None:
    assert (travelling(text) is not None) is travels
