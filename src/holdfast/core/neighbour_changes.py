"""Applies changes of `[[neighbour]]`, `[[route]]` and the topology file while the node runs (docs/operations.md).

Rules of this file: a session ends if its settings change, and custody does not end with it: messages in doubt are
offered again to the new next hop, and the destination recognises a copy by its identity.
"""

from collections.abc import Callable

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.sender import HopParts
from holdfast.engine.due_times import DueTimes
from holdfast.links.containment import Containment
from holdfast.peering.routes import Routes
from holdfast.peering.session_parts import SessionParts
from holdfast.peering.sessions import Neighbour
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig


class NeighbourChanges:
    """Adds, changes and removes neighbours, and has routing use the links and costs of the new topology."""

    def __init__(
        self,
        neighbours: dict[str, Neighbour],
        next_hops: dict[str, NextHop],
        hop_parts: HopParts,
        session_parts: SessionParts,
        due_times: DueTimes[Neighbour],
        containment: Containment,
        forwarding: Forwarding,
        *,
        routing: Callable[[], Routes | None],
        nodes_left: Callable[[], None],
    ) -> None:
        """`nodes_left`: called when nodes may have left the network."""
        self._neighbours = neighbours
        self._next_hops = next_hops
        self._hop_parts = hop_parts
        self._session_parts = session_parts
        self._due_times = due_times
        self._containment = containment
        self._forwarding = forwarding
        self._routing = routing
        self._nodes_left = nodes_left
        self._dials = 0
        """The last number of a dial of a neighbour that was removed: it may be added again, and numbers grow."""

    def take_up(self, new: NodeConfig) -> None:
        """Applies the new lists of neighbours and routes, and the new topology if there is one."""
        configs = {config.name: config for config in new.neighbours}
        for name in [name for name in self._neighbours if name not in configs]:
            self._remove(name)
        for name, config in configs.items():
            neighbour, kind = self._neighbours.get(name), new.kind_of_link(name)
            if neighbour is None:
                self._add(config, kind)
            else:
                neighbour.hop.hosts = frozenset((DEFAULT_HOST, *config.hosts))
                neighbour.configure(config, kind)
        routing = self._routing()
        if routing is None:
            self._forwarding.change(dict(new.forwarding))
        elif new.topology is not None:
            routing.take_up(new, new.topology)
        self._forwarding.wake()
        self._nodes_left()

    def _add(self, config: NeighbourConfig, kind: str | None) -> None:
        hop = self._next_hops[config.name] = NextHop(self._hop_parts, config.name, config.hosts)
        neighbour = self._neighbours[config.name] = Neighbour(self._session_parts, config, hop, kind)
        neighbour.dials = max(neighbour.dials, self._dials)

    def _remove(self, name: str) -> None:
        neighbour = self._neighbours[name]
        neighbour.leave("it was removed from the neighbours")
        self._dials = max(self._dials, neighbour.dials)
        for destination in list(neighbour.hop.senders):
            neighbour.hop.close(destination)
        routing = self._routing()
        if routing is not None:
            routing.link_down(neighbour)
        self._due_times.remove(neighbour)
        self._containment.resting.pop(neighbour, None)
        self._forwarding.receipts.forget(neighbour.hop)
        del self._next_hops[name], self._neighbours[name]
