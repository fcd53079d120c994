"""The origins in `status` (docs/management.md, `origins`).

Rules of this file: reads, never changes; names of fields are a contract (docs/management.md).
"""

from heapq import nlargest
from itertools import chain, islice
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.custody.arrival.group_bounds import REASONS, GroupBounds
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.peering.route_status import RoutesNow
from holdfast.state.ledger import Ledger

ORIGINS_LISTED: Final = 100
"""Origins in one `status`."""


class OriginStatus:
    """Rows of origins. `transactions`: those of this node's clients, whose messages other nodes show together."""

    def __init__(self, ledger: Ledger, routing: RoutesNow, bounds: GroupBounds, transactions: Transactions) -> None:
        self._ledger = ledger
        self._routing = routing
        self._bounds = bounds
        self._transactions = transactions

    def fields(self, host: str) -> dict[str, Any]:
        """The rows of a virtual host, and the number of further origins."""
        rows = self._rows(host)
        return {"origins": rows, "origins_more": Ulong(len(self._ledger.by_host[host]) - len(rows))}

    def groups(self) -> dict[str, Ulong]:
        """The fields of groups, of all virtual hosts."""
        counts = {reason: self._bounds.apart[reason] for reason in REASONS}
        counts["waiting"] = sum(len(origin.groups.by_first) for origin in self._ledger.all_origins())
        counts["sent_apart"] = self._transactions.groups_apart
        return {name: Ulong(count) for name, count in counts.items()}

    def _rows(self, host: str) -> list[dict[str, Any]]:
        """A row for each of at most ORIGINS_LISTED origins: those with the most gaps first, then the most recent."""
        everyone = self._ledger.by_host[host].values()
        with_gaps = [origin for origin in everyone if origin.finished or origin.waiting]
        worst = nlargest(ORIGINS_LISTED, with_gaps, key=lambda origin: len(origin.finished) + len(origin.waiting))
        latest = islice(reversed(everyone), 2 * ORIGINS_LISTED)
        listed = {origin.origin: origin for origin in chain(worst, latest)}
        routing = self._routing()
        return [
            {
                "origin": str(origin.origin),
                "name": None if routing is None else routing.name_of_store(origin.origin),
                "mark": Ulong(origin.mark),
                "gaps": [[Ulong(first), Ulong(last)] for first, last in origin.gaps(100)],
                "waiting": len(origin.waiting),
                "duplicates": origin.duplicates,
                "late": origin.late,
            }
            for origin in islice(listed.values(), ORIGINS_LISTED)
        ]
