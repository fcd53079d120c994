"""What a topology file says to one node, and the table of link states after the file has changed.

Rules of this file: pure. What a node has said of itself comes before what the file says of it; the file speaks for
nodes that have said nothing yet. Source: docs/adr/0015-routing.md, docs/adr/0110-topology-while-a-node-runs.md.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from holdfast.routing.cost import MeasuredCost
from holdfast.routing.linkstate import LinkStates
from holdfast.routing.records import silent
from holdfast.routing.topology import BANDWIDTH_BPS_DEFAULT, NUMBER_MAX, SUPER, Topology


@dataclass(frozen=True, slots=True)
class Configured:
    """`edges`: each node's links with their costs in millionths. `costs`: of this node's links, which lead to its
    neighbours; `bandwidths`: of the same, in bits a second. `numbers`: of all nodes. `is_super`: whether this node is
    one of the `supers`."""

    edges: Mapping[str, Mapping[str, int]]
    costs: Mapping[str, int]
    bandwidths: dict[str, int]
    numbers: dict[str, int]
    supers: tuple[str, ...]
    is_super: bool

    def number(self, name: str) -> int:
        """By which the acting super node is chosen; one that the file does not name comes after all that it does."""
        return self.numbers.get(name, NUMBER_MAX + 1)


def configured(name: str, roles: Sequence[str], topology: Topology, neighbours: Container[str]) -> Configured:
    """What the file says to the node `name`, whose own file gives `roles` and `neighbours`."""
    edges = topology.edges()
    costs = {to: cost for to, cost in edges.get(name, {}).items() if to in neighbours}
    supers = [node.name for node in topology.supers()]
    if SUPER in roles and name not in supers:
        supers.append(name)
    numbers = {node.name: node.number for node in topology.nodes}
    links = {to: topology.link_between(name, to) for to in costs}
    bandwidths = {to: link.bandwidth_bps or BANDWIDTH_BPS_DEFAULT[link.kind] for to, link in links.items() if link}
    return Configured(edges | {name: costs}, costs, bandwidths, numbers, tuple(supers), name in supers)


def links_changed(
    costs: dict[str, int], measured: dict[str, MeasuredCost], before: Configured, after: Configured
) -> None:
    """Changes the costs of this node's links to those of the new file. A cost that was measured stays if the file says
    the same of its link as before."""
    for name in [name for name in costs if name not in after.costs]:
        del costs[name]
        measured.pop(name, None)
    for name, cost in after.costs.items():
        said = before.costs.get(name), before.bandwidths.get(name)
        if said != (cost, after.bandwidths.get(name)):
            costs[name] = cost
            measured.pop(name, None)


def file_changed(states: LinkStates, file: Configured) -> None:
    """Has the new file speak for the nodes that have said nothing. What nodes have said stays, also that of nodes which
    the file does not name any more: they leave the table as others' nodes do (docs/routing.md, "Upkeep"). The file's
    nodes and links always fit."""
    states.grow(file.edges)
    for name, known in list(states.known.items()):
        if name not in file.edges and not known.record.version and name not in states.quarantined:
            states.remove(known)
    for name, known in silent(file.edges, file.supers).items():
        states.dropped.pop(name, None)
        before = states.known.get(name)
        if before is None or (not before.record.version and name not in states.quarantined):
            states.put(known)
