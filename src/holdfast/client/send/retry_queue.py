"""Messages of a spool that the node did not take: after a delay they are sent again, before anything later.

Rules of this file: while it holds messages, its sender sends nothing else, and they are sent again only once everything
that was under way has its outcome. So a message is overtaken only by messages that were under way with it, and the gaps
that a node sees in a producer's numbers, which it bounds, are never larger than what may be in doubt.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.client.send.pending import PendingMessage

RETRY_DELAY_S: Final = 0.5
"""Between the node's answer and the next try."""


class RetryQueue:
    """Of one sender, on one link. `send_again` is called after RETRY_DELAY_S, until it returns True: it took the
    messages."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send_again: Callable[[], bool]) -> None:
        self.messages: list[PendingMessage] = []
        self._loop = loop
        self._send_again = send_again
        self._timer: asyncio.TimerHandle | None = None

    def add(self, messages: list[PendingMessage]) -> None:
        """Adds messages that the node released, modified or had no room for."""
        self.messages += messages
        if self.messages and self._timer is None:
            self._timer = self._loop.call_later(RETRY_DELAY_S, self._delay_over)

    def clear(self) -> None:
        """The link is gone: on the next one all messages are sent again."""
        self.messages.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _delay_over(self) -> None:
        self._timer = None
        if self._send_again():
            self.messages.clear()
        else:
            self._timer = self._loop.call_later(RETRY_DELAY_S, self._delay_over)
