"""A VPN's table at a PE router, and the routes that PE routers advertise to each other.

Rules of this file: values, and the table of one VPN at one router. A route is known by route distinguisher and prefix,
so two VPNs may use the same addresses; it is imported where one of its targets is (RFC 4364 §4). What was imported is
not exported again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from holdfast_lab.mpls.links import Link


@dataclass(frozen=True, slots=True)
class VpnRoute:
    """A route as MP-iBGP advertises it. `next_hop`: the PE router; `label`: of the VRF there."""

    rd: str
    prefix: IPv4Network
    next_hop: str
    label: int
    targets: frozenset[str]


class Vrf:
    """`sites`: prefixes of this router's own sites and the link to each; `learned`: routes of others, as imported."""

    def __init__(self, name: str, rd: str, imports: Collection[str], exports: Collection[str], label: int) -> None:
        self.name = name
        self.rd = rd
        self.imports = set(imports)
        self.exports = frozenset(exports)
        self.label = label
        self.sites: dict[IPv4Network, Link] = {}
        self.learned: dict[tuple[str, IPv4Network, str], VpnRoute] = {}
        self._cache: dict[str, Link | VpnRoute | None] = {}

    def own_routes(self, router: str) -> list[VpnRoute]:
        return [VpnRoute(self.rd, prefix, router, self.label, self.exports) for prefix in self.sites]

    def learn(self, route: VpnRoute) -> None:
        """Takes it if a target of it is imported here."""
        if route.targets & self.imports:
            self.learned[route.rd, route.prefix, route.next_hop] = route
            self.forget_lookups()

    def withdraw(self, route: VpnRoute) -> None:
        if self.learned.pop((route.rd, route.prefix, route.next_hop), None) is not None:
            self.forget_lookups()

    def forget_lookups(self) -> None:
        """To be called when sites change."""
        self._cache.clear()

    def local(self, address: str) -> Link | None:
        """The link to the site of this router that has the address."""
        found = self.lookup(address)
        return found if isinstance(found, Link) else None

    def lookup(self, address: str) -> Link | VpnRoute | None:
        """The longest prefix that has the address; of equal ones a site of this router, then the lowest next hop."""
        if address in self._cache:
            return self._cache[address]
        wanted = IPv4Address(address)
        best: Link | VpnRoute | None = None
        longest = -1
        for prefix, link in self.sites.items():
            if wanted in prefix and prefix.prefixlen > longest:
                best, longest = link, prefix.prefixlen
        for (_, prefix, _), route in sorted(self.learned.items(), key=lambda item: (item[0][2], item[0][0])):
            if wanted in prefix and prefix.prefixlen > longest:
                best, longest = route, prefix.prefixlen
        self._cache[address] = best
        return best
