"""Watches that a root holds a neighbour to its rate that ignores it (docs/adr/0077-room-by-priority.md).

Rules of this file: it counts the messages that the root takes itself, and never uses the root's own counts. Where it
cannot know, it decides in the node's favour. A root that reads slowly takes messages that were under way for long: a
neighbour counts as over its rate only while it also sends too much. A message that is sent again is not taken twice.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.broker.entries.host_names import destination_of
from holdfast_lab.base.client_history import Violation
from holdfast_lab.runs.paced_watch import PacedWatch
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

PERIOD_S: Final = 1.0
"""A period lasts so long at least."""

IGNORED_PERIODS: Final = 6
"""For so many in a row nobody next to a root is over its rate: a root looks on for three of its own, each of which may
last half as long again."""

LEASES: Final = 5
"""Periods in which an older rate may still be obeyed."""

OVER: Final = 1.25
"""Times its rate: more than this is too much."""


class _Taken:
    """What the root took of one neighbour's own messages for one host. `rates`: the highest that it had in each of the
    last periods, the one that runs last. `sent`: all bytes that the neighbour had sent to it when the period began."""

    def __init__(self, row: object, now: float, sent: int) -> None:
        """`row`: the root's own of that neighbour, made anew where it had left."""
        self.row = row
        self.began_at = now
        self.sent = sent
        self.bytes = 0
        self.largest = 0
        self.over = 0
        self.rates: deque[float] = deque([0.0], maxlen=LEASES)

    def end_period(self, now: float, rate: float, sent: int) -> None:
        over_s, most = now - self.began_at, max(self.rates)
        least = min(self.bytes, sent - self.sent)
        too_many = most > 0 and least > most * over_s * OVER + self.largest
        self.over = self.over + 1 if too_many else 0
        self.bytes, self.began_at, self.sent = 0, now, sent
        self.rates.append(rate)


class CutWatch:
    """Of one root."""

    def __init__(self, clients: PacedWatch) -> None:
        """`clients`: looks at what they send."""
        self._clients = clients
        self._core: NodeCore | None = None
        self._taken: dict[tuple[str, str], _Taken] = {}
        self.most_over = 0
        """Periods in a row in which a neighbour sent more than its rate."""

    def turned(self, node: SimNode) -> None:
        core = node.core
        if core is None or core.rates.root is None:
            return
        if core is not self._core:
            self._core, self._taken = core, {}
            self._listen(core)
        now = core.clock.now
        for host, table in core.rates.root.groups.tables.items():
            for name, row in table.rows.items():
                if core.forwarding.via(name) != name:
                    continue
                sent = self._clients.sent_bytes[name, destination_of(host, node.name)]
                taken = self._taken.get((host, name))
                if taken is None or taken.row is not row:  # so the root begins to look on as well
                    taken = self._taken[host, name] = _Taken(row, now, sent)
                rate = float(max(row.told_rate, row.told_base))  # it has its base where rates are lost
                taken.rates[-1] = max(taken.rates[-1], rate)
                if now >= taken.began_at + max(PERIOD_S, table.pacing.period_s):
                    taken.end_period(now, rate, sent)
                    self.most_over = max(self.most_over, taken.over)
                    if taken.over >= IGNORED_PERIODS:
                        raise Violation(f"{name} ignores its rate at {node.name}, and its link is not held to it")

    def _listen(self, core: "NodeCore") -> None:
        destination: Any = core.destination
        took = destination.took

        def heard(host: str, store: UUID, via: str, size: int) -> None:
            took(host, store, via, size)
            taken = self._taken.get((host, via))
            if taken is not None and core.store_names.name_of(store) == via:
                taken.bytes += size
                taken.largest = max(taken.largest, size)

        destination.took = heard

    def metrics(self) -> dict[str, int]:
        return {"periods_over_rate": self.most_over}


def watch_cuts(bed: SimBed, clients: PacedWatch | None) -> dict[str, CutWatch]:
    """Watches the roots, by name; no node has started. `clients`: None where they have none."""
    found: dict[str, CutWatch] = {}
    for name, node in bed.sim_nodes.items():
        if node.config.pacing.rate is not None and clients is not None:
            found[name] = CutWatch(clients)
            node.on_turn.append(found[name].turned)
    return found
