"""Named producers: which numbers of each are stored (CUSTODY, "Producers").

Rules of this file: pure; a number is added with the batch that stores its message, and removed if that batch is
refused. It is exact at this node only. Names are kept until `producers_max` is reached; then the one that was idle the
longest is forgotten.
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.stored.ranges import RangeSet

NAME_BYTES_MAX: Final = 150
MISSING_MAX: Final = 1_000
"""Missing ranges below the last number that the answer to an attach lists."""


@dataclass(slots=True, eq=False)
class Producer:
    """One producer name at one address. `holder` is the link that uses it now."""

    name: str
    address: str
    epoch: int = 0
    used_ms: int = 0
    stored: RangeSet = field(default_factory=RangeSet)
    holder: object | None = None
    counted_bytes: int = 0
    """Bytes that its ranges count in the node's memory."""

    @property
    def key(self) -> bytes:
        return f"{self.name}\0{self.address}".encode()

    def missing(self, most: int = MISSING_MAX) -> list[list[int]]:
        """Ranges up to the last number that are not stored, at most so many. If there are more, the last range ends
        at the last number: a message that is sent again is recognised, but one that counts as stored by mistake would
        be lost.
        """
        gaps = self.stored.gaps(1, self.stored.last)
        if len(gaps) > most:
            gaps[most - 1 :] = [(gaps[most - 1][0], self.stored.last)]
        return [[first, last] for first, last in gaps]

    def admits(self, number: int, ranges_max: int) -> bool:
        """Whether `number` can be added without exceeding the bound."""
        return len(self.stored) < ranges_max or number - 1 in self.stored or number + 1 in self.stored
