"""What clients bring and a full queue refuses, counted by client and priority; and who waits until a band opens
(docs/pacing.md, "All at once").

Rules of this file: counts are for people, in memory alone, and bounded; nothing is decided by them.
"""

from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.bands import PRIORITY_MOST
from holdfast.broker.queue import Queue
from holdfast.engine.clock import Clock
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog

ROWS_MAX: Final = 2_000
"""Rows of refusals; further clients of a queue count as one, OTHERS."""

ROWS_TOLD_MAX: Final = 200
"""Rows that `status` tells of, those with most messages."""

OTHERS: Final = "(others)"

CLIENT_CHARACTERS_MAX: Final = 100
"""Of a client's name: its peer chose it."""


class Key(NamedTuple):
    """Of a row: a queue's host and name, the client, and the priority of what was refused."""

    host: str
    queue: str
    client: str
    priority: int


class Admission:
    """`refused`: messages and bytes by row. `waiting`: queues of which a band is full, and its priority, until the
    whole queue is open to it; and the queue whose producers wait for that, which is another one for copies."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self.refused: dict[Key, tuple[int, int]] = {}
        self.waiting: dict[tuple[Queue, int, Queue], None] = {}

    # ------------------------------------------------------------------------------------------------ refusals

    def refuse(self, queue: Queue, peer: Peer, priority: int, size: int) -> None:
        """A message that the peer brought found no room in the queue, and is rejected."""
        priority = min(priority, PRIORITY_MOST)
        queue.refused_total += 1
        queue.refused_bytes += size
        if queue.bands is not None:
            queue.bands.came(priority, self._clock.now)
        key = Key(queue.host, queue.name, client_of(peer), priority)
        if key not in self.refused and len(self.refused) >= ROWS_MAX:
            key = key._replace(client=OTHERS)
            if key not in self.refused and len(self.refused) >= 2 * ROWS_MAX:
                return
        messages, size_before = self.refused.get(key, (0, 0))
        self.refused[key] = messages + 1, size_before + size

    def told(self, host: str) -> list[dict[str, Any]]:
        """What `status` tells of that host's refusals, most messages first."""
        rows = sorted((-count, key, size) for key, (count, size) in self.refused.items() if key.host == host)
        return [
            {
                "queue": key.queue, "client": key.client, "priority": key.priority,
                "messages": Ulong(-count), "bytes": Ulong(size),
            }
            for count, key, size in rows[:ROWS_TOLD_MAX]
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------------ bands that open

    def wait(self, queue: Queue, priority: int, whose: Queue | None = None) -> None:
        """Somebody has messages of that priority for the queue and is given less credit than it has room, or waits.
        `whose`: the queue to which they send, where the other one only gets copies."""
        if queue.bands is not None and queue.bands.part(priority, self._clock.now) < 1:
            self.waiting[queue, priority, whose or queue] = None

    def next_deadline(self) -> float | None:
        moments = [
            queue.bands.opens_at(priority) for queue, priority, _ in self.waiting if queue.bands is not None
        ]  # fmt: skip
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        for waiting in list(self.waiting):
            queue, priority, whose = waiting
            if queue.bands is None or not self._catalog.has(queue):
                del self.waiting[waiting]
            elif now >= queue.bands.opens_at(priority):
                del self.waiting[waiting]
                whose.touch()  # its producers are given what there is


def client_of(peer: Peer) -> str:
    """The user as whom it came, or else the container that it says it is."""
    user = peer.amqp.authenticated_user
    opened = peer.amqp.remote_open
    name = user or ("" if opened is None else str(opened.container_id))
    return "".join(each if each.isprintable() else "?" for each in name[:CLIENT_CHARACTERS_MAX])


def full_text(queue: Queue, size: int, priority: int) -> str:
    """Why a message of that size and priority finds no room in the queue."""
    text = f"{queue.messages} messages, {queue.bytes_held} bytes"
    if queue.fits(size):
        return f"queue {queue.name!r} has no more room for priority {priority}: {text}"
    return f"queue {queue.name!r} is full: {text}"


class Offered:
    """The priority by which a link is given credit: the highest of its last messages, SPAN to 2 * SPAN of them. Until
    one has come it is the highest: who brings high priorities alone could not show it without credit."""

    SPAN: Final = 64

    __slots__ = ("_before", "_count", "_now")

    def __init__(self) -> None:
        self._before = self._now = -1
        self._count = 0

    def came(self, priority: int, count: int = 1) -> None:
        """`count` messages came, the highest of that priority."""
        self._now = max(self._now, priority)
        self._count += count
        if self._count >= self.SPAN:
            self._before, self._now, self._count = self._now, -1, 0

    @property
    def priority(self) -> int:
        found = max(self._before, self._now)
        return found if found >= 0 else PRIORITY_MOST
