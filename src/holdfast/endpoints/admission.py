"""Counts messages of clients that full queues refuse, by client and priority; and keeps the queues with a full band
whose producers wait (docs/pacing.md, "When all clients burst").

Rules of this file: counts are for `status`, in memory only, and bounded; no decision depends on them.
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
"""Rows in `status`, those with most messages."""

OTHERS: Final = "(others)"

CLIENT_CHARACTERS_MAX: Final = 100
"""Characters of a client's name, which the peer chooses."""


class Key(NamedTuple):
    """Identifies a row: a queue's host and name, the client, and the priority of the refused messages."""

    host: str
    queue: str
    client: str
    priority: int


class Admission:
    """`refused`: messages and bytes by row. `waiting`: queues with a full band and its priority, until the whole queue
    is open to that priority; and the queue whose producers wait, which differs for copies."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self.refused: dict[Key, tuple[int, int]] = {}
        self.waiting: dict[tuple[Queue, int, Queue], None] = {}

    # ------------------------------------------------------------------------------------------------ refusals

    def refuse(self, queue: Queue, peer: Peer, priority: int, size: int) -> None:
        """Counts a message of the peer that is rejected because it found no room in the queue."""
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

    def rows(self, host: str) -> list[dict[str, Any]]:
        """The rows of `status` for that host's refusals, most messages first."""
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
        """A producer has messages of that priority for the queue, and waits or gets less credit than the queue has
        room. `whose`: the queue to which it sends, if `queue` only gets copies."""
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
    """The user of its login, or else its container-id."""
    user = peer.amqp.authenticated_user
    opened = peer.amqp.remote_open
    name = user or ("" if opened is None else str(opened.container_id))
    return "".join(each if each.isprintable() else "?" for each in name[:CLIENT_CHARACTERS_MAX])


def full_text(queue: Queue, size: int, priority: int) -> str:
    """The text that a message of that size and priority finds no room in the queue."""
    text = f"{queue.messages} messages, {queue.bytes_held} bytes"
    if queue.fits(size):
        return f"queue {queue.name!r} has no more room for priority {priority}: {text}"
    return f"queue {queue.name!r} is full: {text}"


class Offered:
    """The priority by which a link gets credit: the highest of its last messages, SPAN to 2 * SPAN of them. Before the
    first message it is the highest priority, because without credit a link could not show that it has only urgent
    messages."""

    SPAN: Final = 64

    __slots__ = ("_before", "_count", "_now")

    def __init__(self) -> None:
        self._before = self._now = -1
        self._count = 0

    def came(self, priority: int, count: int = 1) -> None:
        """Counts `count` messages, the highest of that priority."""
        self._now = max(self._now, priority)
        self._count += count
        if self._count >= self.SPAN:
            self._before, self._now, self._count = self._now, -1, 0

    @property
    def priority(self) -> int:
        found = max(self._before, self._now)
        return found if found >= 0 else PRIORITY_MOST
