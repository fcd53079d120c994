"""The first of many connections' deadlines, without asking each of them every turn.

Rules of this file: nothing is late. What `first` answers is what asking every connection would; only who is asked
differs. It rests on one fact about a connection's deadline: traffic moves it away, and whatever brings it nearer (the
peer's open, our close) raises `Connection.deadline_sooner`, upon which `watch` is to be called before the next
question.
"""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from holdfast.peers.peer import NEVER, Peer

STALE_SPARE: Final = 64
"""Entries of connections that are gone, or came nearer, beyond one for each that lives; then all is built anew."""


class Deadlines:
    """Over `connections`, the node's own table by number: who leaves it need not be told here."""

    def __init__(self, connections: dict[int, Peer]) -> None:
        self._connections = connections
        self._heap: list[tuple[float, int]] = []
        """(when, number). A living peer's entry says its `wake_at`, which is never later than its deadline."""

    def watch(self, peer: Peer) -> None:
        """The peer is new, or its deadline may have come nearer."""
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
        """Not later than `first`, and that where its time has come: for who asks every turn, and again when it has."""
        heap = self._heap
        if heap and heap[0][0] > now:
            return heap[0][0]
        return self.first()

    def first(self) -> float | None:
        """When the first connection has something to do; None: none ever."""
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
            # It moved away since: paid for by the traffic that moved it.
            if at is None:
                heappop(heap)
                peer.wake_at = NEVER
            else:
                heapreplace(heap, (at, item[1]))
                peer.wake_at = at
        return None

    def take_due(self, now: float) -> list[Peer]:
        """Those whose deadline has come, by number; each is to be given to `watch` again when it has acted."""
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
