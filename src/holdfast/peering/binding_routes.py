"""Federation and routing: over which neighbours a node without a topology file routes, and what federation knows of the
links (docs/federation.md, docs/adr/0081).

Rules of this file: routes are computed elsewhere; this file passes information between the two.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from holdfast.federation.federation import Federation
from holdfast.federation.parents import Routes
from holdfast.federation.settings import Entry
from holdfast.peers.neighbours.session_port import Session
from holdfast.routing.paths import Edges
from holdfast.routing.topology import MICRO


class Network(Protocol):
    """The node's routing."""

    def followed_by(self, computed: Callable[[], None], forgot: Callable[[str], None]) -> None:
        """Registers functions that are called when the table was computed, and when a node left for good."""

    @property
    def edges(self) -> Edges:
        """The links over which messages go now, with the cost of each."""


class BindingRoutes:
    """`rerouted`: the routes, or the destinations that this node may send to, may have changed since federation last
    got them. `may_spread`: the same for the neighbours over which topics are forwarded."""

    def __init__(self, name: str, neighbours: Mapping[str, Session]) -> None:
        self._name = name
        self._neighbours = neighbours
        self._network: Network | None = None
        self._spread: Callable[[Iterable[str]], None] | None = None
        self._spread_over: dict[str, None] = {}
        """The neighbours over which topics are forwarded, in either direction, with which `_spread` was called."""
        self.may_spread = True
        self.rerouted = True

    def spreads(self, spread: Callable[[Iterable[str]], None]) -> None:
        """Registers a function that is called with the neighbours over which topics are forwarded, in either
        direction."""
        self._spread = spread

    def tell_spread(self, federation: Federation, entries: Iterable[Entry]) -> None:
        """Reports new neighbours."""
        if self._spread is None:
            return
        names = [entry.neighbour for entry in entries if entry.neighbour in self._neighbours]  # others are remotes
        names += [name for name, neighbour in federation.neighbours.items() if neighbour.modes]
        new = [name for name in dict.fromkeys(names) if name not in self._spread_over]
        if new:
            self._spread_over.update(dict.fromkeys(new))
            self._spread(new)

    def routed_by(self, network: Network, forgot: Callable[[str], None]) -> None:
        """Connects routing. `forgot`: called when a node left for good."""
        self._network = network
        network.followed_by(self._computed, forgot)
        self.rerouted = True

    def _computed(self) -> None:
        self.rerouted = True

    def tell(self, federation: Federation, now: float) -> bool:
        """Passes the present routes to federation; False if they have not changed."""
        if not self.rerouted:
            return False
        self.rerouted = False
        if self._network is not None:
            up: Edges = self._network.edges
        else:
            up = {self._name: {name: MICRO for name, one in self._neighbours.items() if one.offered}}
        routes = Routes(up)
        if routes == federation.routes:
            return False
        federation.route(routes, now)
        return True
