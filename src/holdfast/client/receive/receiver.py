"""What programs call of a receiver: iteration, batches, the end.

Rules of this file: one task waits at a time. What arrives, and what is kept of it over a break, is receiving.py's.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from holdfast.client.errors import ConnectionEnded
from holdfast.client.link import CLOSE_LIMIT_S, ClientLink, LinkHandler
from holdfast.client.listing import Listed, hidden
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.receiving import ReceivingLink
from holdfast.errors import LocalProtocolError


class Receiver(ReceivingLink, Listed):
    """Receives messages from one address; made by `Connection.receiver`.

    Iterate over it with `async for`, which yields a Delivery each, or take all that has arrived with `batch`, which is
    faster.
    """

    HIDDEN = hidden(
        LinkHandler, ClientLink, "ask_for", "outage", "holds", "settle", "hold", shown=("failure", "is_over", "ready")
    )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while not self._buffer:
                if not await self._wait(None):
                    raise StopAsyncIteration
            delivery = self._buffer.popleft()
            if self._hand_out(delivery):
                self._check_credit()
                return delivery

    async def batch(self, *, count_max: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """Returns all messages that have arrived, in order, at most `count_max`; waits for the first one.

        The list is empty if none came within `timeout_s` seconds, or at the end: `ended` tells which.
        """
        while True:
            while not self._buffer:
                if not await self._wait(timeout_s):
                    return []
            if count_max is None or count_max >= len(self._buffer):
                taken, self._buffer = list(self._buffer), deque()
            else:
                taken = [self._buffer.popleft() for _ in range(count_max)]
            taken = [delivery for delivery in taken if self._hand_out(delivery)]
            self._check_credit()
            if taken:
                return taken

    @property
    def ended(self) -> bool:
        """Whether the node has closed the link after its last message, and all messages were handed out."""
        return self._ended and not self._buffer

    async def close(self) -> None:
        """Releases messages that were not handed out, sends all outcomes, and detaches; a subscription is kept.

        Outcomes given since a break are sent once the node has resumed their deliveries; this waits at most 5 s for
        that. If it is cancelled, the receiver has ended all the same.
        """
        try:
            if self._resume is not None and self._resume.said and not self.is_over():
                try:
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        await self._resumed_all.wait()
                except TimeoutError:
                    pass
            self._closing = True
            await self._stop()
        except asyncio.CancelledError:
            self.fail(ConnectionEnded(f"{self._what}: closed"))
            raise
        self._release_buffer()
        self._buffer.clear()
        await self._detach()
        self._wake()

    async def _stop(self) -> None:
        """Takes the credit back, and waits at most CLOSE_LIMIT_S for messages that are under way: one that the node
        sent and nobody released would count as a failed delivery."""
        if self._drained is None:  # otherwise another close has asked
            link = self._link
            if link is None or not link.attached or link.detached or self._copy or not link.credit:
                return
            self._drained = self._loop.create_future()
            link.grant(0, drain=True)
            self._connection.schedule()
        await asyncio.wait([self._drained], timeout=CLOSE_LIMIT_S)

    # ---------------------------------------------------------------------------------------- internals

    def _hand_out(self, delivery: Delivery) -> bool:
        """False for a message that the program has accepted over an earlier link since it was put in the buffer."""
        if not delivery.settled and delivery.sequence:
            if self._had_link and self._handed_out.is_accepted(delivery.sequence, delivery.enqueued_ms):
                self._suppress(delivery.delivery_id)
                if self._left is not None:
                    self._left += 1
                return False
            self._handed_out.hold(delivery)
        self.received += 1
        if delivery.whole:
            self.outage.gained = True
        return True

    def _check_credit(self) -> None:
        link = self._link
        if link is not None and (link.credit + len(self._buffer)) * 2 <= self._credit:
            self.touch()

    async def _wait(self, timeout_s: float | None) -> bool:
        """Waits for a delivery or the end; False at the end, and after `timeout_s`."""
        if self._ended or self._left == 0:
            return False
        self.check()
        if self._waiter is not None:
            raise LocalProtocolError(f"{self._what}: two tasks wait for messages; let only one wait")
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            return bool(self._buffer)
        finally:
            self._waiter = None
        if not self._buffer:
            self.check()
        return bool(self._buffer) or not self._ended
