"""Queues in `status`, and for requests that list or read them.

Rules of this file: reads, never changes; names of fields are a contract (docs/management.md).
"""

from collections.abc import Callable
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.engine.clock import Clock
from holdfast.state.catalog import Catalog

QUEUES_A_PAGE: Final = 200
"""Queues in one answer; the next page is asked for by the last one's name."""


QUEUE_ATTRIBUTES: Final = (
    "uuid", "messages", "tombstones", "bytes", "oldest_s", "next_sequence", "in_total", "out_total", "consumers",
    "unsettled", "subscriptions", "bytes_max", "messages_max", "when_full", "room", "dropped_total",
    "subscriptions_ended", "refused_total", "order", "order_wait_s", "durable", "deliveries_max", "priorities",
)  # fmt: skip
"""The fields of each queue besides its name."""


class QueueStatus:
    """A map for each queue."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock

    def fields(self, host: str) -> dict[str, Any]:
        """The first page of that host's queues, and whether there are more."""
        queues, more = self.page(host, "")
        return {"queues": queues, "queues_more": more}

    def page(self, host: str, after: str) -> tuple[list[dict[str, Any]], bool]:
        """That host's queues by name, from the first behind `after` on; and whether there are more."""
        mine = (queue for queue in self._catalog.of_host(host) if queue.name > after)
        found = nsmallest(QUEUES_A_PAGE + 1, mine, key=attrgetter("name"))
        return [self.of(queue) for queue in found[:QUEUES_A_PAGE]], len(found) > QUEUES_A_PAGE

    def page_of(self, host: str, offset: int, may: Callable[[str], bool]) -> tuple[list[dict[str, Any]], int | None]:
        """Those that `may` allows of a page of that host's queues by name, from the one at `offset` on; and the offset
        of the next page, None if this is the last. A place is said by its number, since a name may not be for all."""
        found = nsmallest(offset + QUEUES_A_PAGE + 1, self._catalog.of_host(host), key=attrgetter("name"))[offset:]
        rows = [self.of(queue) for queue in found[:QUEUES_A_PAGE] if may(queue.name)]
        return rows, offset + QUEUES_A_PAGE if len(found) > QUEUES_A_PAGE else None

    def of(self, queue: Queue) -> dict[str, Any]:
        """One queue as `status` and `queue list` show it."""
        oldest = queue.oldest_wall_ms()
        return {
            "name": queue.name,
            "uuid": str(queue.uuid),
            "messages": Ulong(queue.messages - queue.tombstones),
            "tombstones": Ulong(queue.tombstones),
            "bytes": Ulong(queue.bytes_held),
            "oldest_s": None if oldest is None else max(0, self._clock.wall_ms - oldest) / 1000,
            "next_sequence": Ulong(queue.next_sequence),
            "in_total": Ulong(queue.in_total),
            "out_total": Ulong(queue.out_total),
            "consumers": len(queue.shared.consumers),
            "unsettled": len(queue.shared.acquired),
            "subscriptions": sorted(name for name in queue.named if not name.startswith(LINK_PREFIX)),
            "bytes_max": queue.config.bytes_max,
            "messages_max": queue.config.messages_max,
            "when_full": queue.config.when_full,
            "room": {
                "low": queue.config.room_low,
                "normal": queue.config.room_normal,
                "quiet_s": queue.config.room_quiet_s,
            },
            "dropped_total": Ulong(queue.dropped_total),
            "subscriptions_ended": Ulong(queue.ended_total if isinstance(queue, Topic) else 0),
            "refused_total": Ulong(queue.refused_total),
            "order": queue.config.order,
            "order_wait_s": queue.config.order_wait_s,
            "durable": queue.config.durable,
            "deliveries_max": queue.config.deliveries_max,
            "priorities": queue.config.priorities,
        }
