"""What a request to `$management` costs at most, in rows of queues that are looked at: connections take turns by it.

Rules of this file: found before the request is carried out, from counts alone. One method for each kind of cost, (host,
name, arguments) -> cost; an operation's record names the method.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.management.status.queues import QUEUES_A_PAGE
from holdfast.state.catalog import WAITING, Catalog

WAITING_LOOKED_AT: Final = 1_000
"""Acquired or requeued messages that cost as much as listing a queue, if its head is requested; and so many that wait
for earlier ones, where gaps are skipped."""

ENTRIES_COST: Final = 100
"""The cost of a message that is listed, read or moved, in listed queues."""

Arguments = Mapping[str, Any]


class Costs:
    """`operations`: how many there are."""

    def __init__(self, catalog: Catalog, links: Callable[[], int]) -> None:
        """`links`: how many connections and links there are, about."""
        self._catalog = catalog
        self._links = links
        self.operations = 0

    def least(self, host: str, name: str, arguments: Arguments) -> int:
        return 1

    def of_operations(self, host: str, name: str, arguments: Arguments) -> int:
        """Looks at all operations."""
        return 1 + self.operations // 10

    def of_messages(self, host: str, name: str, arguments: Arguments) -> int:
        """Reads messages."""
        return ENTRIES_COST

    def of_list(self, host: str, name: str, arguments: Arguments) -> int:
        """Sorts what the host has, and answers with a page of it."""
        catalog = self._catalog
        return QUEUES_A_PAGE + (len(catalog.queues) + len(catalog.ledger.by_host[host])) // 10

    def of_entities(self, host: str, name: str, arguments: Arguments) -> int:
        """The same with connections and links."""
        catalog = self._catalog
        return QUEUES_A_PAGE + (len(catalog.queues) + len(catalog.ledger.by_host[host]) + self._links()) // 10

    def of_gaps(self, host: str, name: str, arguments: Arguments) -> int:
        """Looks at what waits for earlier messages."""
        held = self._catalog.find(host, WAITING)
        waiting = 0 if held is None else held.messages // WAITING_LOOKED_AT
        return 1 + len(self._catalog.ledger.by_host[host]) + waiting

    def of_producers(self, host: str, name: str, arguments: Arguments) -> int:
        """Looks at all producers' links."""
        return 1 + len(self._catalog.producers) // 100

    def of_head(self, host: str, name: str, arguments: Arguments) -> int:
        """Finds the lowest sequence in that queue."""
        return self._head(host, name)

    def of_subscription(self, host: str, name: str, arguments: Arguments) -> int:
        """The same in the queue of a subscription."""
        return self._head(host, str(arguments.get("queue")))

    def of_opening(self, host: str, name: str, arguments: Arguments) -> int:
        """The same, and counts the subscriptions of all queues."""
        return self._head(host, str(arguments.get("queue"))) + len(self._catalog.queues) // 100

    def _head(self, host: str, queue_name: str) -> int:
        queue = self._catalog.find(host, queue_name)
        cursor = None if queue is None else queue.shared
        waiting = 0 if cursor is None else len(cursor.acquired) + len(cursor.requeued) + len(cursor.exclusions.aside)
        return 1 + waiting // WAITING_LOOKED_AT
