"""`$management`: finds the operation of a request, checks the permission, and estimates the cost (AMQP Management,
request and response; docs/management.md lists the operations).

Rules of this file: each group of operations (queues.py, subscriptions.py, links.py, nodes.py, connections.py,
entities.py) adds its own to one table. An unknown operation is 501, one that its sender may not use is 403.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.access.actions import ADMINISTER, BROWSE, NODE, RECEIVE
from holdfast.amqp.wire.types import Ulong
from holdfast.links.disk import Disk
from holdfast.management.operations.answers import (
    ENTRY,
    LINK,
    MANAGEMENT,
    QUEUE,
    Answer,
    Later,
    Operations,
    Refused,
    Table,
    number_of,
)
from holdfast.management.operations.rights import Rights
from holdfast.management.status.queues import QUEUES_A_PAGE, QueueStatus
from holdfast.peers.authorise import Authoriser
from holdfast.state.catalog import WAITING, Catalog

WAITING_LOOKED_AT: Final = 1_000
"""Acquired or requeued messages that cost as much as listing a queue, if its head is requested; and so many that wait
for earlier ones, where gaps are skipped."""

ENTRIES_COST: Final = 100
"""The cost of a message that is listed, read or moved, in listed queues."""

NO_LINK: Final = "no permission to do that with a link; ask the administrator of this node"
"""The same for a link that is there, whatever its user may not, and for one that is not."""

CREATES: Final = frozenset(("CREATE", "OPEN"))
"""What is to last, and would not in a store whose file is gone."""


class Management:
    """All operations; `operations`: by kind and name."""

    def __init__(
        self,
        catalog: Catalog,
        disk: Disk,
        authoriser: Authoriser,
        rights: Rights,
        queues: QueueStatus,
        *groups: Operations,
        links: Callable[[], int],
    ) -> None:
        """`links`: how many connections and links there are, about."""
        self._catalog = catalog
        self._disk = disk
        self._authoriser = authoriser
        self._rights = rights
        self._queues = queues
        self._links = links
        self.operations: Table = {}
        for group in groups:
            group.register(self.operations)

    def carry_out(
        self, who: str | None, host: str, kind: str, operation: str, name: str, arguments: dict[str, Any]
    ) -> Answer | Later:
        """Carries out a request of that user, None without a login, in that virtual host; a refusal is an answer."""
        try:
            function = self.operations.get((kind, operation))
            if function is None:
                known = ", ".join(f"{operation} of {kind}" for kind, operation in self.operations)
                raise Refused(501, f"invalid operation {operation!r} of {kind!r}; expected one of {known}")
            if (kind, operation) == (QUEUE, "QUERY") and who is not None and not self._may(who, ADMINISTER, NODE, host):
                return self._readable(who, host, arguments)
            for action, address in self._rights.of(host, kind, operation, name, arguments):
                forbidden = self._authoriser.authorise(who, action, address, host=host)
                if forbidden is not None:
                    raise Refused(403, NO_LINK if kind == LINK and operation != "CREATE" else forbidden)
            if operation in CREATES and self._disk.gone is not None:
                raise Refused(503, f"the store's file is gone: {self._disk.gone}")
            return function(host, name, arguments)
        except Refused as refused:
            return refused.answer

    def _may(self, who: str, action: str, address: str, host: str) -> bool:
        return self._authoriser.authorise(who, action, address, host=host) is None

    def _readable(self, who: str, host: str, arguments: dict[str, Any]) -> Answer:
        """The queues that a user without `administer` may read: who may receive could read all by a copying
        subscription."""

        def may(name: str) -> bool:
            return self._may(who, BROWSE, name, host) or self._may(who, RECEIVE, name, host)

        offset = number_of(arguments, "offset", 0)
        queues, following = self._queues.page_of(host, offset, may)
        more = {} if following is None else {"offset": Ulong(following)}
        return Answer(200, "OK", {"queues": queues, "more": following is not None, **more})

    def cost_of(self, host: str, kind: str, operation: str, name: str, arguments: dict[str, Any]) -> int:
        """The cost of a request at most, in rows of queues."""
        catalog = self._catalog
        if kind == ENTRY:
            return ENTRIES_COST
        if kind == MANAGEMENT and operation != "QUERY":
            return 1 + len(self.operations) // 10
        if operation in ("STATUS", "QUERY"):
            links = self._links() if kind == MANAGEMENT else 0
            return QUEUES_A_PAGE + (len(catalog.queues) + len(catalog.ledger.by_host[host]) + links) // 10
        if operation == "SKIP":
            held = catalog.find(host, WAITING)
            return 1 + len(catalog.ledger.by_host[host]) + (0 if held is None else held.messages // WAITING_LOOKED_AT)
        if operation == "DELETE":
            return 1 + len(catalog.producers) // 100
        if operation not in ("READ", "OPEN"):
            return 1
        queue = catalog.find(host, name if kind == QUEUE else str(arguments.get("queue")))
        cursor = None if queue is None else queue.shared
        waiting = 0 if cursor is None else len(cursor.acquired) + len(cursor.requeued) + len(cursor.exclusions.aside)
        counted = len(catalog.queues) // 100 if operation == "OPEN" else 0  # all their subscriptions
        return 1 + waiting // WAITING_LOOKED_AT + counted
