"""The credit of a hop whose last epoch had more messages than may wait here for room (CUSTODY, "The hop", 5). Rules of
this file: counts only. A message that finds no place to wait, because `parked_bytes_max` or `streams_max` is reached,
ends its epoch, and the sender begins the next one a second later; so a queue with a small bound would accept no more
than its bound in each second. To avoid that, a hop gets no more credit than the number that could wait when this
happened, and more again once the queue has kept up for a while.
"""

from typing import Final

STEADY: Final = 64
"""Numbers accepted in a row without waiting for room, after which the credit doubles."""

HOPS_MAX: Final = 10_000
"""Hops with reduced credit that are remembered; beyond that the oldest gets full credit again."""


class HopCredit:
    """Messages that one hop may have under way to us; it outlives the hop's links."""

    __slots__ = ("_steady", "size")

    def __init__(self, waiting: int) -> None:
        """`waiting` messages found a place to wait, and one more did not."""
        self.size = max(1, waiting)
        self._steady = 0

    def took(self) -> None:
        """A number was accepted."""
        self._steady += 1
        if self._steady >= STEADY:
            self._steady = 0
            self.size *= 2

    def waited(self) -> None:
        """A number had to wait for room."""
        self._steady = 0


class HopCredits:
    """The reduced credits of a node's hops, by the key of each (custody/hop/links.py); all others have the full credit
    of `credit_max` messages."""

    def __init__(self, credit_max: int) -> None:
        self._credit_max = credit_max
        self._reduced: dict[bytes, HopCredit] = {}

    def overflowed(self, hop: bytes, waiting: int) -> None:
        """That hop had one message more than the `waiting` ones that found a place to wait. Both bounds are the node's:
        clients and other hops may use them too."""
        self._reduced.pop(hop, None)
        if len(self._reduced) >= HOPS_MAX:
            del self._reduced[next(iter(self._reduced))]
        self._reduced[hop] = HopCredit(waiting)

    def is_reduced(self, hop: bytes) -> bool:
        """Whether that hop has less than the full credit; else `took` and `waited` change nothing."""
        return hop in self._reduced

    def took(self, hop: bytes) -> None:
        """A number of that hop was accepted."""
        credit = self._reduced.get(hop)
        if credit is not None:
            credit.took()
            if credit.size >= self._credit_max:
                del self._reduced[hop]

    def waited(self, hop: bytes) -> None:
        """A number of that hop had to wait for room."""
        credit = self._reduced.get(hop)
        if credit is not None:
            credit.waited()

    def credit(self, hop: bytes, room: int) -> int:
        """The hop's credit if there is room for so many of its messages."""
        credit = self._reduced.get(hop)
        return room if credit is None else min(credit.size, room)
