"""Permissions of the clients of a run: everything, except for queues whose names begin with GUARDED while the fault
`forbid` is active at their node, and for fenced ones, of which rules decide.

A node with rules of its own decides by itself; its clients log in.

Rules of this file: the rights of a node are counted, so that a client knows whether they changed while it waited.
"""

from collections import Counter
from typing import Final

from holdfast_lab.base.fences import FENCED, LAB, Fences

GUARDED: Final = "guarded"
FORBIDDEN: Final = "forbidden now"
"""What who may not is told."""


class Rights:
    """By node, how often its rights changed: with an odd number its clients may not."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self.fences: dict[str, Fences] = {}
        """By node, the rules for its fenced queues."""

    def forbid(self, node: str, forbids: bool) -> None:
        if self.forbids(node) is not forbids:
            self.changes[node] += 1

    def forbids(self, node: str) -> bool:
        return bool(self.changes[node] % 2)

    def login_at(self, node: str) -> str | None:
        """As whom clients log in there that are nobody in particular; None: they need not."""
        return LAB if node in self.fences and self.fences[node].is_own else None

    def why_not(self, node: str, address: str, who: str | None = None, action: str = "", host: str = "") -> str | None:
        """As `Authoriser.authorise`, of a client at that node."""
        if address.startswith(FENCED) and node in self.fences:
            return self.fences[node].why_not(who, action, address, host)
        return FORBIDDEN if self.forbids(node) and address.startswith(GUARDED) else None
