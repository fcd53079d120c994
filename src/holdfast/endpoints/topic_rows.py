"""The bindings of one topic, as its subscriptions come, change and go (docs/adr/0082).

Rules of this file: a change costs what it changes, however many subscriptions there are; what it is worked out from is
always the subscriptions that exist.
"""

from collections.abc import Callable, Iterable, Set
from typing import cast

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import SubjectSelector
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.federation.rows import Row

RowOf = Callable[[SubjectSelector | None], Row]

Subscription = Cursor | Queue
"""The cursor of a durable subscription, the queue in memory of another."""


class TopicRows:
    """The binding of each subscription of `topic`, and how many subscriptions have it."""

    def __init__(self, topic: Topic, row_of: RowOf) -> None:
        self.topic = topic
        self._row_of = row_of
        self._of: dict[Subscription, Row] = {}
        self._counts: dict[Row, int] = {}
        self.change([*topic.named.values(), *topic.listeners])

    @property
    def rows(self) -> Set[Row]:
        """All bindings."""
        return self._counts.keys()

    def change(self, subscriptions: Iterable[Subscription]) -> tuple[list[Row], list[Row]]:
        """Looks again at these subscriptions, which may have ended. Returns the bindings that came, and those that
        went."""
        had: dict[Row, bool] = {}
        for subscription in subscriptions:
            before, after = self._of.get(subscription), self._now(subscription)
            for row in (before, after):
                if row is not None:
                    had.setdefault(row, row in self._counts)
            if before is not None:
                self._leave(subscription, before)
            if after is not None:
                self._of[subscription] = after
                self._counts[after] = self._counts.get(after, 0) + 1
        came = [row for row, was_there in had.items() if not was_there and row in self._counts]
        return came, [row for row, was_there in had.items() if was_there and row not in self._counts]

    def _now(self, subscription: Subscription) -> Row | None:
        """The binding of the subscription; None if it has ended."""
        if not isinstance(subscription, Cursor):
            listeners = self.topic.listeners
            return self._row_of(listeners[subscription]) if subscription in listeners else None
        if self.topic.named.get(subscription.name) is not subscription:
            return None
        return self._row_of(cast("SubjectSelector | None", subscription.selector))

    def _leave(self, subscription: Subscription, row: Row) -> None:
        del self._of[subscription]
        self._counts[row] -= 1
        if not self._counts[row]:
            del self._counts[row]
