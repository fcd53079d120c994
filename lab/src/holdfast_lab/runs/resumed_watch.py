"""Links of producers without a name, watched at each turn: what was in doubt on one may come again once it has been
away for `resume_s_max` and its node has forgotten it (docs/client.md, docs/adr/0012).

Rules of this file: since when a link has been away it works out itself, from the turns in which nobody held it. A node
that forgets one earlier is not excused.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.endpoints.resumption.suspended import Suspendable
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import Publish

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


class ResumedWatch:
    """Of one node and the producers there."""

    def __init__(self, may_repeat: set[bytes], producers: Iterable[Publish]) -> None:
        self._may_repeat = may_repeat
        self._producers = list(producers)
        self._core: NodeCore | None = None
        self._before = 0.0
        """When the turn before was."""
        self._away: dict[bytes, tuple[Suspendable, float]] = {}
        """By the link's key: the record of one that nobody holds, and since when at the earliest."""
        self.forgotten = 0

    def turned(self, node: SimNode) -> None:
        core = node.core
        if core is None:
            return
        now, incoming = core.clock.now, core.resume.incoming
        if core is not self._core:  # it counts anew for what it finds on its disk
            self._core, self._before, self._away = core, core.started_at, {}
        for key, (record, since) in [*self._away.items()]:
            known = incoming.get(key)
            if known is record and known.holder is None:
                continue
            del self._away[key]
            if known is not record and now - since >= core.config.limits.resume_s_max:
                self._forgot(key)
        for key, record in incoming.items():
            if record.holder is None and key not in self._away:
                self._away[key] = record, self._before
        self._before = now

    def _forgot(self, key: bytes) -> None:
        name = key.rpartition(b"\0")[2].decode()
        for log in (log for producer in self._producers for log in producer.logs if log.name == name):
            self.forgotten += 1
            self._may_repeat.update(map(log.key, log.open))


def watch_resumed(bed: SimBed, workloads: Iterable[object]) -> None:
    """Watches the nodes that have producers without a name."""
    nameless: dict[str, list[Publish]] = {}
    for workload in workloads:
        if isinstance(workload, Publish) and not workload.named:
            nameless.setdefault(workload.node, []).append(workload)
    for name, producers in nameless.items():
        bed.sim_nodes[name].on_turn.append(ResumedWatch(bed.history.may_repeat, producers).turned)
