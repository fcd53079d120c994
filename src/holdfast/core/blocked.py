"""An origin whose number a destination had no place for, as its sender remembers it (hops.py, CUSTODY, "The hop").

Rules of this file: data.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Blocked:
    """An origin whose number the destination had no place for; its messages are put aside, by sequence: number."""

    due: float
    lowest: int
    """The lowest number that was tried."""
    aside: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    probe: int | None = None
    """The last sequence that is tried now."""
    window: int = 1
    """How many are tried next, the lowest numbers: one, then twice as many each time that all were taken; of large ones
    as many as one turn sends."""
