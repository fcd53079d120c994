"""An origin whose number a destination had no place for, as its sender remembers it (sender.py, CUSTODY, "The hop").

Rules of this file: data.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

ASIDE_MAX: Final = 20_000
"""Messages that one sender puts aside unsent: more than may wait at a destination for one missing number."""


@dataclass(slots=True)
class Blocked:
    """An origin whose number the destination had no place for; its messages are put aside, by sequence: number."""

    due: float
    lowest: int
    """The lowest number that was tried."""
    since: float
    """When the first of them was refused."""
    aside: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    no_place: bool = False
    """Its retry was due while the maximum number was in doubt: it is next as soon as one is answered."""
    probe: int | None = None
    """The last sequence of the current try."""
    window: int = 1
    """How many are tried next, the lowest numbers first: one, then twice as many each time that all were accepted; of
    large ones as many as one turn sends."""


def aside_of(blocked: dict[UUID, Blocked]) -> int:
    """How many messages of these are put aside."""
    return sum(len(item.aside) for item in blocked.values())
