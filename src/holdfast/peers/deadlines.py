"""The earliest deadline of many connections, without checking each of them in every turn.

Rules of this file: never late. `first` gives the same result as checking every connection. This relies on one property
of a connection's deadline: traffic postpones it, and whatever makes it earlier (the peer's open, our close) sets
`Connection.deadline_sooner`, after which `watch` must be called before the next use.
"""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from holdfast.peers.peer import NEVER, Peer

STALE_SPARE: Final = 64
"""Stale entries, beyond one for each open connection, at which the heap is rebuilt."""


class Deadlines:
    """The deadlines of `connections`, the node's table by number; connections that leave it need not be removed
    here."""

    def __init__(self, connections: dict[int, Peer]) -> None:
        self._connections = connections
        self._heap: list[tuple[float, int]] = []
        """(when, number). The entry of an open connection is its `wake_at`, which is never later than its deadline."""

    def watch(self, peer: Peer) -> None:
        """The peer is new, or its deadline may be earlier now."""
        peer.amqp.deadline_sooner = False
        at = peer.amqp.next_deadline()
        if at is None or at >= peer.wake_at:
            return
        if len(self._heap) > 2 * len(self._connections) + STALE_SPARE:
            self._heap = [item for item in self._heap if self._is_fresh(item)]
            heapify(self._heap)
        peer.wake_at = at
        heappush(self._heap, (at, peer.number))

    def soonest(self, now: float) -> float | None:
        """Not later than `first`, and equal to it if that has come: a cheap form for each turn."""
        heap = self._heap
        if heap and heap[0][0] > now:
            return heap[0][0]
        return self.first()

    def first(self) -> float | None:
        """When the first connection has something to do; None if none has a deadline."""
        heap = self._heap
        while heap:
            item = heap[0]
            peer = self._connections.get(item[1])
            if peer is None or peer.wake_at != item[0]:
                heappop(heap)
                continue
            at = peer.amqp.next_deadline()
            if at == item[0]:
                return at
            # It has moved away since, because of traffic.
            if at is None:
                heappop(heap)
                peer.wake_at = NEVER
            else:
                heapreplace(heap, (at, item[1]))
                peer.wake_at = at
        return None

    def take_due(self, now: float) -> list[Peer]:
        """The connections whose deadline has come, by number; each must be given to `watch` again afterwards."""
        found: list[Peer] = []
        while (at := self.first()) is not None and at <= now:
            _, number = heappop(self._heap)
            peer = self._connections[number]
            peer.wake_at = NEVER
            found.append(peer)
        found.sort(key=_number)
        return found

    def _is_fresh(self, item: tuple[float, int]) -> bool:
        peer = self._connections.get(item[1])
        return peer is not None and peer.wake_at == item[0]


def _number(peer: Peer) -> int:
    return peer.number
