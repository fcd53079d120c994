"""Named moments of a batch's life in a node's process, for whoever is told when one has passed.

Rules of this file: types and names only. A node that runs as a user starts it tells nobody, and spends one comparison.
"""

from typing import Final, Protocol

POINTS: Final = ("before-append", "append", "committing", "committed", "settled", "retiring", "retired")
"""In the order of one message's life: batch gathered; handed to the store; inside the transaction, before its
sync; after the sync, before the core hears of it; settlements given to the socket; a batch with retirements
handed to the store; that batch on disk."""


class Points(Protocol):
    """Who is told of each passing."""

    def passed(self, name: str) -> None:
        """One more passing of `name`, one of POINTS. Each name is passed by one thread only."""
