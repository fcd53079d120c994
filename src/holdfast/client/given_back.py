"""What the node gave back of a spool's messages: it waits for a while, and goes again before anything later.

Rules of this file: while anything is here its sender sends nothing else, and nothing goes again before all that was
under way is decided. So no message is overtaken by one that was not under way with it, and the gaps that a node sees in
a producer's numbers, which it bounds, are no more than fit what is in doubt.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.client.doubt import Doubt

AGAIN_S: Final = 0.5
"""How long after the node gave back a message of a spool it is offered again."""


class GivenBack:
    """Of one sender, on one link. `offer` is asked after AGAIN_S, until it is True: it took the entries."""

    def __init__(self, loop: asyncio.AbstractEventLoop, offer: Callable[[], bool]) -> None:
        self.entries: list[Doubt] = []
        self._loop = loop
        self._offer = offer
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entries: list[Doubt]) -> None:
        self.entries += entries
        if self.entries and self._timer is None:
            self._timer = self._loop.call_later(AGAIN_S, self._over)

    def clear(self) -> None:
        """The link is gone: on the next one all goes again."""
        self.entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        if self._offer():
            self.entries.clear()
        else:
            self._timer = self._loop.call_later(AGAIN_S, self._over)
