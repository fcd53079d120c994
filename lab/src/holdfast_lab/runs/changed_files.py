"""The topology files of a run's nodes, as faults change them: an operator brings them to one node after the other.

Rules of this file: a node has its file from the strike on, running or not; a node that runs reads it at once, as with
`holdfast reload`. Every change is made on the file that the run began with, so that changes come and go in any order.
"""

from dataclasses import replace

from holdfast.engine import events
from holdfast.routing.topology import MICRO, Topology
from holdfast.settings.node import NodeConfig
from holdfast_lab.plan.faults import Fault
from holdfast_lab.runs.routing_watch import RoutingWatch
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed


class ChangedFiles:
    """Which faults change which node's file now."""

    def __init__(self, bed: SimBed, routes: RoutingWatch | None) -> None:
        self._bed = bed
        self._routes = routes
        self._first: dict[str, NodeConfig] = {}
        """By node whose file was changed: what the run began with."""
        self._changes: dict[str, list[Fault]] = {}

    def change(self, fault: Fault) -> bool:
        """The file of the link's first node has it no more, or with `amount` times its cost. False if that node has no
        topology, or forwards a topic over the link, which such a file may not take away."""
        node, other = self._bed.sim_nodes[fault.link[0]], fault.link[1]
        if node.config.topology is None or any(entry.neighbour == other for entry in node.config.federation):
            return False
        self._first.setdefault(node.name, node.config)
        self._changes.setdefault(node.name, []).append(fault)
        self._read(node)
        return True

    def change_back(self, fault: Fault) -> None:
        """The file is as it was, but for other changes."""
        node = self._bed.sim_nodes[fault.link[0]]
        self._changes[node.name].remove(fault)
        self._read(node)

    def heal(self) -> None:
        """All files are as they were."""
        for name, changes in self._changes.items():
            if changes:
                changes.clear()
                self._read(self._bed.sim_nodes[name])

    def _read(self, node: SimNode) -> None:
        config = self._first[node.name]
        for fault in self._changes[node.name]:
            config = _changed(config, fault)
        node.config = config
        if self._routes is not None:
            self._routes.file_changed(node)
        if node.core is not None:
            node.post(events.ConfigRead(config=config))


def _changed(config: NodeConfig, fault: Fault) -> NodeConfig:
    topology, (name, other) = config.topology, fault.link
    assert topology is not None
    if not fault.amount:
        links = tuple(link for link in topology.links if set(link.ends) != {name, other})
        left = tuple(item for item in config.neighbours if item.name != other)
        return replace(config, topology=Topology(topology.nodes, links), neighbours=left)
    links = tuple(
        replace(link, cost=link.cost_micro * fault.amount / MICRO) if set(link.ends) == {name, other} else link
        for link in topology.links
    )
    return replace(config, topology=Topology(topology.nodes, links))
