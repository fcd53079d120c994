"""Ends durable subscriptions of topics: at their bounds, or after a time without a link (docs/topics.md,
docs/adr/0096).

Rules of this file: a subscription that ends is deleted as by a request, with the turn's batch; its links are detached
with the reason, which is also logged. Time without a link counts from the node's start at the earliest.
"""

from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.bounds import END
from holdfast.broker.topic import Topic
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.state.catalog import Catalog

LOOK_S: Final = 1.0
"""Seconds between two checks for subscriptions without a link."""


class SubscriptionEnds:
    """Ends such subscriptions."""

    def __init__(self, clock: Clock, catalog: Catalog, work: Work[Queue], resume: Resumption, log: Log) -> None:
        self._clock = clock
        self._catalog = catalog
        self._work = work
        self._resume = resume
        self._log = log
        self._look_at = clock.now + LOOK_S
        self._since: dict[Cursor, tuple[int, float]] = {}
        """Since when each subscription that may end has had no link, and how many links it had had by then."""

    def step(self) -> None:
        """Ends those that exceeded their bounds in this turn."""
        for cursor in list(self._work.overfull):
            topic = self._catalog.queues.get(cursor.queue.key)
            bounds = topic.limited.get(cursor) if isinstance(topic, Topic) else None
            if bounds is not None and bounds.when_full != END:
                continue  # custody/overflow.py
            what = self._work.overfull.pop(cursor)
            if bounds is not None:
                self._end(cursor, f"it had more than {bounds.most(what)}")

    def _end(self, cursor: Cursor, why: str) -> None:
        topic = self._catalog.queues.get(cursor.queue.key)
        if not isinstance(topic, Topic) or topic.named.get(cursor.name) is not cursor:
            return
        topic.ended_total += 1
        text = f"{named(cursor)} has ended: {why}"
        self._log.write("WARNING", text)
        end(topic, cursor, self._resume, text, conditions.RESOURCE_DELETED)

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Ends those that have had no link for too long."""
        if now < self._look_at or not self._work.awaiting:
            return
        self._look_at = now + LOOK_S
        since: dict[Cursor, tuple[int, float]] = {}
        for queue in list(self._work.awaiting):
            found = list(_awaiting(queue)) if self._catalog.has(queue) else []
            if not found:
                del self._work.awaiting[queue]
            for cursor, idle_s in found:
                if cursor.consumers:
                    continue
                attaches, began = self._since.get(cursor, (cursor.attaches, now))
                if attaches != cursor.attaches:
                    began = now
                if now - began >= idle_s:
                    self._end(cursor, f"it had no link for {idle_s} s")
                else:
                    since[cursor] = (cursor.attaches, began)
        self._since = since

    def next_deadline(self) -> float | None:
        return self._look_at if self._work.awaiting else None


def named(cursor: Cursor) -> str:
    """The durable subscription of a link, as the log calls it."""
    return f"subscription {cursor.name!r} of {cursor.queue.name!r}"


def _awaiting(queue: Queue) -> list[tuple[Cursor, int]]:
    """The subscriptions of a topic that end without a link, and after how many seconds."""
    if not isinstance(queue, Topic):
        return []
    wanted = queue.bindings.items()
    return [(queue.named[name], wants.bounds.idle_s) for name, wants in wanted if wants.bounds.idle_s]


def end(topic: Topic, cursor: Cursor, resume: Resumption, text: str, condition: str) -> None:
    """Deletes a subscription and detaches its links."""
    detach_all(cursor, text, condition)
    resume.release(topic, cursor)
    topic.remove_cursor(cursor.name)


def detach_all(cursor: Cursor, text: str, condition: str) -> None:
    """Detaches the links of a subscription."""
    for link in list(cursor.consumers):
        if isinstance(link, ConsumerLink):
            link.detach_with(text, condition)
