"""The credit of a hop whose last epoch brought more than may wait here for room (CUSTODY, "The hop", 5).

Rules of this file: counts alone. A number that finds no place to wait ends its epoch, and the sender begins the next
one a second later; a queue of a few messages would take no more than those in each second. So a hop is given no more
credit than what could wait when that happened, and more again once the queue has kept up for a while.
"""

from typing import Final

STEADY: Final = 64
"""Numbers in a row that found room at once, after which the window is twice as large."""

HOPS_MAX: Final = 10_000
"""Hops with a narrow window that are remembered; of more the first one begins with full credit again."""


class HopWindow:
    """Messages that one hop may have under way to us; it outlives the hop's links."""

    __slots__ = ("_steady", "size")

    def __init__(self, waiting: int) -> None:
        """`waiting` messages found a place to wait, and one more did not."""
        self.size = max(1, waiting)
        self._steady = 0

    def took(self) -> None:
        """A number found room at once."""
        self._steady += 1
        if self._steady >= STEADY:
            self._steady = 0
            self.size *= 2

    def waited(self) -> None:
        """A number had to wait."""
        self._steady = 0


class HopWindows:
    """The narrow windows of a node's hops, by the key of each (hop_links.py); all others have full credit."""

    def __init__(self) -> None:
        self._narrow: dict[bytes, HopWindow] = {}

    def overflowed(self, hop: bytes, waiting: int) -> None:
        """More came by that hop than could wait."""
        self._narrow.pop(hop, None)
        if len(self._narrow) >= HOPS_MAX:
            del self._narrow[next(iter(self._narrow))]
        self._narrow[hop] = HopWindow(waiting)

    def took(self, hop: bytes) -> None:
        if self._narrow and (window := self._narrow.get(hop)) is not None:
            window.took()

    def waited(self, hop: bytes) -> None:
        if self._narrow and (window := self._narrow.get(hop)) is not None:
            window.waited()

    def credit(self, hop: bytes, full: int) -> int:
        """What the hop may have of `full` credit."""
        window = self._narrow.get(hop) if self._narrow else None
        if window is None or not full:
            return full
        if window.size >= full:
            del self._narrow[hop]
        return min(window.size, full)
