"""The measurements of a node: its status, with a bounded number of queues of all virtual hosts.

Rules of this file: reads, never changes; the driver puts it into the form that is asked for (node/admin/metrics.py).
"""

from typing import Any, Final

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.management.status.queues import QueueStatus
from holdfast.management.status.status import NodeStatus
from holdfast.peers.users import Users
from holdfast.state.catalog import Catalog

QUEUES_MAX: Final = 1_000
"""Queues that are reported singly: a few milliseconds of a turn. Those of the default host come first, by name."""


class Measured:
    """Gathers it."""

    def __init__(self, report: NodeStatus, queues: QueueStatus, catalog: Catalog, users: Users) -> None:
        self._report = report
        self._queues = queues
        self._catalog = catalog
        self._users = users

    def fields(self) -> dict[str, Any]:
        """The answer to STATUS in the default host, with `queues` of all hosts, and totals."""
        rows: list[dict[str, Any]] = []
        for host in self._catalog.hosts:
            after, more = "", True
            while more and len(rows) < QUEUES_MAX:
                page, more = self._queues.page(host, after)
                rows += [{**row, "vhost": host} for row in page]
                after = page[-1]["name"] if page else after
        del rows[QUEUES_MAX:]
        queues = self._catalog.queues.values()
        return {
            **self._report.status(DEFAULT_HOST),
            "users_total": self._users.totals(),
            "queues": rows,
            "queues_total": len(queues),
            "queues_left_out": len(queues) - len(rows),
            "messages_total": sum(queue.messages - queue.tombstones for queue in queues),
        }
