"""Federation and routing: over which neighbours a node without a topology file routes, and what federation knows of the
links (docs/federation.md, docs/adr/0081).

Rules of this file: routes are computed elsewhere; here is what each side tells the other.
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
        """Calls them when the table was computed, and when a node left for good."""

    @property
    def edges(self) -> Edges:
        """The links over which messages go now, with the cost of each."""


class BindingRoutes:
    """`rerouted`: what routing says, or what this node may send to, may be another than federation was told.
    `may_spread`: so may the neighbours over which topics are forwarded."""

    def __init__(self, name: str, neighbours: Mapping[str, Session]) -> None:
        self._name = name
        self._neighbours = neighbours
        self._network: Network | None = None
        self._spread: Callable[[Iterable[str]], None] | None = None
        self._spread_over: dict[str, None] = {}
        """The neighbours over which topics are forwarded, in either direction, that `_spread` was told."""
        self.may_spread = True
        self.rerouted = True

    def spreads(self, spread: Callable[[Iterable[str]], None]) -> None:
        """Who is told the neighbours over which topics are forwarded, in either direction."""
        self._spread = spread

    def tell_spread(self, federation: Federation, entries: Iterable[Entry]) -> None:
        """Those that are new."""
        if self._spread is None:
            return
        names = [entry.neighbour for entry in entries]
        names += [name for name, neighbour in federation.neighbours.items() if neighbour.modes]
        new = [name for name in dict.fromkeys(names) if name not in self._spread_over]
        if new:
            self._spread_over.update(dict.fromkeys(new))
            self._spread(new)

    def routed_by(self, network: Network, forgot: Callable[[str], None]) -> None:
        """There is routing. `forgot`: called when a node left for good."""
        self._network = network
        network.followed_by(self._computed, forgot)
        self.rerouted = True

    def _computed(self) -> None:
        self.rerouted = True

    def tell(self, federation: Federation, now: float) -> bool:
        """Tells federation what routing says now; False where it knows that."""
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
