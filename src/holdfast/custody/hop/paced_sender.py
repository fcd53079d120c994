"""The hop's sender to a root whose rates this node follows (docs/pacing.md).

Rules of this file: the rate applies only to this node's own messages; forwarded messages are sent as usual. Own
messages that may not leave yet wait in this sender, in order, so that forwarded ones pass them.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from holdfast.broker.cursors.cursor import PUMP_BYTES
from holdfast.broker.entries import packed
from holdfast.broker.queue import Queue
from holdfast.custody.hop.links import HopLinks
from holdfast.custody.hop.sender import CustodySender, HopParts
from holdfast.custody.hop.state import HopState
from holdfast.pacing.pacer import Pacer
from holdfast.peers.peer import Peer

WAITING_MAX: Final = 1_000
"""Own messages that wait in one sender. Behind more of them forwarded messages wait, too."""

TURN_MAX: Final = 256
"""Waiting messages that one turn sends."""

TRY_S: Final = 0.05
"""Seconds until the next try if the rate allows a message and the link does not; new credit and answers cause a try at
once."""


class PacedSender(CustodySender):
    """`waiting`: sequences of own messages that it holds until the rate allows them, the next one first."""

    def __init__(
        self, parts: HopParts, hop: HopState, places: HopLinks, destination: str, queue: Queue, pacer: Pacer
    ) -> None:
        self.pacer = pacer
        self.waiting: dict[int, None] = {}
        self.due = parts.clock.now
        """When the first of `waiting` is tried."""
        super().__init__(parts, hop, places, destination, queue)

    # ------------------------------------------------------------------------------------------------ sending

    def wants(self) -> int:
        self.pacer.moved = True
        most = super().wants()
        if self.waiting and most > 0:
            self._try_soon()
            return max(0, min(most, WAITING_MAX - len(self.waiting)))
        return min(most, WAITING_MAX)

    def _own(self) -> bytes:
        return self._parts.identities.store_uuid.bytes

    def _send(self, sequence: int, value: bytes) -> None:
        if packed.origin_of(value) != self._own():
            super()._send(sequence, value)
        elif self.waiting or not self.pacer.ready(self.clock.now):
            self.waiting[sequence] = None
            self.due = self.pacer.ready_at(self.clock.now)
            self.schedule()
        else:
            self._send_own(sequence, value)

    def _send_own(self, sequence: int, value: bytes, *, waited: bool = False) -> None:
        """Sends an own message that the rate allows; `waited`: whether it had to wait. For an expired one a tombstone
        is sent, which does not count."""
        size = 0 if self.queue.expired(value) else packed.size_of(value)
        number = self.number
        super()._send(sequence, value)
        if self.number != number:  # else it is too large for the neighbour
            self.pacer.sent(self.clock.now, size, waited=waited)

    def _send_run(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        if packed.origin_of(values[0]) != self._own():
            return super()._send_run(sequences, values)
        if self.waiting or self.pacer.bounds(self.clock.now):
            return 0
        sent = super()._send_run(sequences, values)
        if sent:
            self.pacer.sent(self.clock.now, sum([packed.size_of(value) for value in values[:sent]]), sent)
        return sent

    def _passes(self, origin: UUID) -> bool:
        return origin.bytes != self._own() or (not self.waiting and self.pacer.ready(self.clock.now))

    def _send_waiting(self, now: float) -> None:
        """Sends waiting messages as far as the rate and the link allow, at most TURN_MAX and PUMP_BYTES in a turn."""
        left, bytes_left = TURN_MAX, PUMP_BYTES
        while self.waiting and left > 0 and bytes_left > 0 and self.pacer.ready(now):
            if super().wants() <= 0:
                self.due = now + TRY_S
                return
            sequence = next(iter(self.waiting))
            del self.waiting[sequence]
            value = self.in_hands(sequence)
            if value is not None:  # else it ended meanwhile
                left -= 1
                bytes_left -= len(value)
                self._send_own(sequence, value, waited=True)
        self.due = max(now, self.pacer.ready_at(now))
        self.queue.touch()  # there is room for more in its hands

    # ------------------------------------------------------------------------------------------------ time

    def _try_soon(self) -> None:
        """The rate changed, or the link accepts more: waiting messages are tried as soon as the rate allows it."""
        if self.waiting:
            self.due = self.pacer.ready_at(self.clock.now)
            self.schedule()

    def paced(self) -> None:
        """The rate has changed."""
        self._try_soon()

    @property
    def timed(self) -> bool:
        return bool(self.waiting) or super().timed

    def next_deadline(self) -> float | None:
        at = super().next_deadline()
        if not self.waiting or not self.open or self.retry_at is not None:
            return at
        return self.due if at is None else min(at, self.due)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.waiting and self.open and now >= self.due:
            self._send_waiting(now)

    # ------------------------------------------------------------------------------------------------ events

    def attached(self) -> None:
        self.pacer.begin(self.clock.now)
        super().attached()

    def credited(self) -> None:
        self._try_soon()
        super().credited()

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        super().outcomes(contexts, state, settled, first, last)
        self._try_soon()

    def _large_ended(self) -> None:
        super()._large_ended()
        self._try_soon()

    def go(self, peer: Peer | None) -> None:
        super().go(peer)
        self._try_soon()

    def stop(self) -> None:
        self.waiting = {}  # it gives back all that it has
        super().stop()

    def lost(self) -> None:
        waiting, self.waiting = list(self.waiting), {}
        self.requeue(waiting)
        super().lost()

    def recover(self) -> None:
        self.waiting = {}
        super().recover()
