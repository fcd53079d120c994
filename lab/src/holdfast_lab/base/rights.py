"""Permissions of the clients of a run: everything, except for queues whose names begin with GUARDED while the fault
`forbid` is active at their node.

Rules of this file: the rights of a node are counted, so that a client knows whether they changed while it waited.
"""

from collections import Counter
from typing import Final

GUARDED: Final = "guarded"
FORBIDDEN: Final = "forbidden now"
"""What who may not is told."""


class Rights:
    """By node, how often its rights changed: with an odd number its clients may not."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()

    def forbid(self, node: str, forbids: bool) -> None:
        if self.forbids(node) is not forbids:
            self.changes[node] += 1

    def forbids(self, node: str) -> bool:
        return bool(self.changes[node] % 2)

    def why_not(self, node: str, address: str) -> str | None:
        """As `Authoriser.authorise`, of a client at that node."""
        return FORBIDDEN if self.forbids(node) and address.startswith(GUARDED) else None
