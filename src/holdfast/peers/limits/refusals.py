"""Connections beyond a bound: each is closed with an error that names the bound.

Rules of this file: a refused connection no longer counts, neither for the node nor for its user or address. It may stay
open for at most REFUSAL_S to read the answer, and at most REFUSALS_MAX may at once: for one more the oldest is dropped.
Source: AMQP 1.0 §2.4.3, a close that the peer answers before the transport ends.
"""

from collections.abc import Callable
from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.engine.clock import Clock
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer

REFUSALS_MAX: Final = 64
REFUSAL_S: Final = 3.0


class Refusals:
    """Closes connections beyond a bound with the reason, and drops them in time. A `Timed` part while there are any."""

    def __init__(self, connections: Connections, clock: Clock, uncount: Callable[[Peer], None]) -> None:
        """`uncount`: stops counting the connection (guard.py)."""
        self._connections = connections
        self._clock = clock
        self._uncount = uncount
        self.due: dict[Peer, float] = {}
        """Closed connections that still exist, the oldest first, and when each is dropped."""

    def refuse(self, peer: Peer, reason: str) -> None:
        """Closes an open connection with `reason`, one sentence that names the bound."""
        peer.amqp.close(self.error(peer, reason))
        peer.touch()
        self.closing(peer)

    def error(self, peer: Peer, reason: str) -> Error:
        """The error for the peer, which is also logged."""
        peer.log("WARNING", f"refused: {reason}")
        return Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), reason)

    def closing(self, peer: Peer) -> None:
        """We have closed the connection."""
        if len(self.due) >= REFUSALS_MAX:
            self._connections.drop(
                next(iter(self.due)), f"{REFUSALS_MAX} refused connections have not closed, the most kept"
            )
        self._uncount(peer)
        self.due[peer] = self._clock.now + REFUSAL_S

    def left(self, peer: Peer) -> None:
        """The connection is gone."""
        self.due.pop(peer, None)

    def next_deadline(self) -> float | None:
        """When the first of them must have ended."""
        return next(iter(self.due.values()), None)

    def tick(self, now: float) -> None:
        for peer, at in list(self.due.items()):
            if at > now:
                break
            self._connections.drop(peer, f"it was refused, and has not closed in {REFUSAL_S:g} s")
