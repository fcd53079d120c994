"""Named producers: what each has stored, by its own numbers (CUSTODY, "Producers").

Rules of this file: pure; a number is *taken* with the batch that stores it and given back if that batch is refused.
Exact at this node only; names are kept until `producers_max` is reached, then the one longest idle goes.
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.stored.ranges import RangeSet

NAME_BYTES_MAX: Final = 150
MISSING_MAX: Final = 1_000
"""Ranges told at attach of what is missing below the last number."""


@dataclass(slots=True, eq=False)
class Producer:
    """One producer name at one address. `holder` is the link that speaks for it now."""

    name: str
    address: str
    epoch: int = 0
    used_ms: int = 0
    stored: RangeSet = field(default_factory=RangeSet)
    holder: object | None = None
    counted_bytes: int = 0
    """What its ranges are counted with in the node's memory."""

    @property
    def key(self) -> bytes:
        return f"{self.name}\0{self.address}".encode()

    def missing(self) -> list[list[int]]:
        """Ranges up to the last number that are not stored, at most MISSING_MAX.

        Of more the last one told goes up to the last number: what is sent again is known again, what is taken for
        stored would be lost.
        """
        gaps = self.stored.gaps(1, self.stored.last)
        if len(gaps) > MISSING_MAX:
            gaps[MISSING_MAX - 1 :] = [(gaps[MISSING_MAX - 1][0], self.stored.last)]
        return [[first, last] for first, last in gaps]

    def admits(self, number: int, ranges_max: int) -> bool:
        """Whether `number` can be kept without growing past the bound."""
        return len(self.stored) < ranges_max or number - 1 in self.stored or number + 1 in self.stored
