"""How much of what waits one turn moves to its queues (ADR 0013).

Rules of this file: data.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """What is left of one turn's share: messages to move, their bytes, numbers to look at."""

    count: int
    bytes: int
    looks: int

    @property
    def is_used(self) -> bool:
        return self.count <= 0 or self.bytes <= 0 or self.looks <= 0
