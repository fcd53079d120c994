"""The first of many connections' deadlines, without asking each of them every turn.

Rules of this file: nothing is late. What `first` answers is what asking every connection would; only who is asked
differs. It rests on one fact about a connection's deadline: traffic moves it away, and whatever brings it nearer (the
peer's open, our close) raises `Connection.deadline_sooner`, upon which `watch` is to be called before the next
question.
"""

from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import TYPE_CHECKING, Final

from holdfast.broker.cursor import RETIRES_MAX
from holdfast.core.drains import has_something
from holdfast.core.peer import NEVER, Peer
from holdfast.core.sending import due
from holdfast.core.session_times import Timed

if TYPE_CHECKING:
    from holdfast.broker.queue import Queue
    from holdfast.core.node import NodeCore

ALWAYS: Final = (None,)
"""In place of what a part waits for, where it is to be asked each time."""

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


def _goes_on(core: "NodeCore") -> bool:
    """Whether a queue goes on in the next turn with what waits for no commit."""
    return len(core.work.batch.retires) < RETIRES_MAX and any(_needs_no_disk(core, queue) for queue in core.work.busy)


def _needs_no_disk(core: "NodeCore", queue: "Queue") -> bool:
    """Whether what it goes on with in the next turn waits for no commit: all that a queue in memory does, and of
    another what is on disk, and below the mark that says so of a cursor, for who takes it now or goes on with what it
    held."""
    if queue.stopped or not core.catalog.has(queue):
        return False
    if not queue.config.durable or queue in core.resume.going_on:
        return True
    if any(reader.has_more for reader in core.links.readers.get(queue, ())):
        return True
    return any(
        has_something(cursor, marks=False) and any(taker.will_want() > 0 for taker in cursor.takers)
        for cursor in queue.cursors
    )


def wanted(core: "NodeCore") -> float:
    """When the node has something to do, at the latest: what `NodeCore.next_deadline` says, each turn."""
    now = core.clock.now
    if core.links.requests or (core.connections.sending and due(core)):
        return now
    resting = core.containment.resting
    first = core.meter.due_at if core.meter not in resting else inf
    if core.work.halted and any(account.room for account in core.work.halted):
        return now
    if core.turns.in_flight is None and not core.disk.rests:
        if core.work.busy or core.users.waking or core.blobs.dropping:
            return now
        if core.destination.busy and core.destination not in resting:
            return now
        if core.chores.pending and core.chores not in resting and core.chores.busy:
            return now
        if core.retire_at is not None and core.retire_at < first:
            first = core.retire_at
    elif (core.work.busy and _goes_on(core)) or (core.chores.settlements.goes_on and core.chores not in resting):
        return now
    at = core.deadlines.soonest(now)
    if at is not None and at < first:
        first = at
    part: Timed | None = None
    try:
        at = core.session_times.soonest(now, resting)
        if at < first:
            first = at
        for waits, part in core.timed:
            if not waits or (resting and part in resting):
                continue
            at = part.next_deadline()
            if at is not None and at < first:
                first = at
    except Exception:
        core.asked = part or core.session_times.asked
        raise
    return first
