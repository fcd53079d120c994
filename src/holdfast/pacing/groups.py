"""A root that serves several groups, virtual hosts, each with its share of the rate.

Rules of this file: groups are independent: the unused rate of one is not lent to another, so that no group's rate
reveals what others do. Source: docs/adr/0074-pacing.md.
"""

from collections.abc import Mapping
from math import fsum
from typing import Final

from holdfast.pacing.messages import Pace, Report
from holdfast.pacing.policy import Policy
from holdfast.pacing.table import Pacing, Table

GROUPS_MAX: Final = 1_000

Rooms = Mapping[str, tuple[int, int]]
"""Capacity and bytes used of the root's queue for each group: the smaller of the queue's own free space and of its part
of the store's."""


class Groups:
    """The tables of one root, by group. Together they have ROWS_MAX rows at most."""

    def __init__(
        self, name: str, rate: float, policy: Policy, shares: Mapping[str, float], *,
        period_s: float, process: int, now: float, origins: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """`rate`: bytes a second of all groups together. `shares`: by group, at least one. `origins`: shares of clients
        within each group, 1 where none is given."""
        if not 0 < len(shares) <= GROUPS_MAX:
            raise ValueError(f"invalid number of groups {len(shares)}; expected 1 to {GROUPS_MAX}")
        if not all(share > 0 for share in shares.values()):
            raise ValueError("invalid share of a group; expected more than 0")
        total = fsum(shares.values())
        self.tables = {
            group: Table(
                name, group, Pacing(rate * share / total, policy, period_s, dict(origins or {})),
                process=process, now=now, rows_of_all=self._rows,
            )
            for group, share in shares.items()
        }  # fmt: skip

    def _rows(self) -> int:
        return sum(len(table.rows) for table in self.tables.values())

    def receive(self, now: float, report: Report) -> bool:
        """False where the report's group is not served here, or its table refuses it."""
        table = self.tables.get(report.group)
        return table is not None and table.receive(now, report)

    def next_deadline(self) -> float:
        return min(table.next_deadline() for table in self.tables.values())

    def tick(self, now: float, rooms: Rooms) -> None:
        """Computes where it is time."""
        for group, table in self.tables.items():
            if table.next_deadline() <= now:
                table.tick(now, *rooms[group])

    def take(self, now: float, most: int) -> list[Pace]:
        """Up to `most` paces of all groups; within a group in the order in which they are to go out."""
        paces: list[Pace] = []
        for table in self.tables.values():
            if len(paces) >= most:
                break
            paces += table.take(now, most - len(paces))
        return paces
