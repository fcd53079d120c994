"""Named moments of a batch in a node's process, for tests that kill the process there.

Rules of this file: types and names only. A normal node does not report them, which costs one comparison.
"""

from typing import Final, Protocol

POINTS: Final = ("before-append", "append", "committing", "committed", "settled", "retiring", "retired")
"""In the order of one message's life: batch gathered; handed to the store; inside the transaction, before its sync;
after the sync, before the core is notified; settlements given to the socket; a batch with retirements handed to the
store; that batch on disk."""


class Points(Protocol):
    """The listener of these moments."""

    def passed(self, name: str) -> None:
        """The process has passed `name`, one of POINTS. Each name is only used in one thread."""
