"""What a corruption of a node is: it breaks one invariant, in exactly the state that it looks at (ADR 0020).

Rules of this file: a corruption changes what a node holds and nothing else. Its invariant is named as
tests/core/test_invariants.py names it. Where an earlier invariant looks at the same state, that stays whole.
"""

from collections.abc import Callable
from typing import Any

from support.standing import Standing

Corruption = Callable[[Any], object]
CORRUPTIONS: list[tuple[str, Callable[[], Standing], Corruption]] = []
"""The invariant, the node, and what is done to it."""


def breaks(name: str, node: Callable[[], Standing]) -> Callable[[Corruption], Corruption]:
    def add(corruption: Corruption) -> Corruption:
        CORRUPTIONS.append((name, node, corruption))
        return corruption

    return add


def one_more(name: str, node: Callable[[], Standing], owner: Callable[[Any], object], count: str, by: int = 1) -> None:
    """A count that is one too high, or wrong by as much as `by` says."""

    def corruption(found: Any) -> None:
        holder = owner(found)
        setattr(holder, count, getattr(holder, count) + by)

    CORRUPTIONS.append((name, node, corruption))
