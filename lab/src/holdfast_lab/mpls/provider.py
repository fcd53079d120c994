"""The provider's network: routers with their tables filled, and what happens when something of it fails.

Rules of this file: starts converged, as after hours of running; from then on each router acts on what it has received
(igp.py). Labels for routers and VPNs are given out once, at the start; paths between PE routers are a full mesh, and
move as each router computes its own. Source: traffic-control §1, §2.2 and §4.1.
"""

from collections.abc import Mapping
from functools import partial
from ipaddress import IPv4Network

from holdfast.errors import ConfigError
from holdfast_lab.mpls.clock import Clock
from holdfast_lab.mpls.igp import LinkState
from holdfast_lab.mpls.labels import Swap
from holdfast_lab.mpls.links import Link, Packet
from holdfast_lab.mpls.network_file import NetworkFile
from holdfast_lab.mpls.paths import Graph, shortest
from holdfast_lab.mpls.reroute import Bypasses
from holdfast_lab.mpls.routers import EdgeRouter, Host, Router, SiteRouter
from holdfast_lab.mpls.vrf import VpnRoute, Vrf

Node = Router | SiteRouter | Host


class Provider:
    """One network in one clock. `links` by (source, target), each direction."""

    def __init__(self, clock: Clock, file: NetworkFile, *, fast_reroute: bool | None = None) -> None:
        self.clock = clock
        self.file = file
        self.fast_reroute = file.fast_reroute if fast_reroute is None else fast_reroute
        self.routers: dict[str, Router] = {name: Router(name) for name in file.p}
        self.edges: dict[str, EdgeRouter] = {name: EdgeRouter(name) for name in file.pe}
        self.routers |= self.edges
        self.sites = {site.name: SiteRouter(site.name, list(site.prefixes)) for site in file.sites}
        self.hosts = {host.name: Host(host.name, host.address) for host in file.hosts}
        self.links: dict[tuple[str, str], Link] = {}
        self.faults: list[tuple[float, str]] = []
        """When what failed or was repaired."""
        self._states: dict[str, LinkState] = {}
        self._bypasses = Bypasses(self.routers)
        self._connect()
        self._join_sites()
        self._start_routing()

    # ------------------------------------------------------------------------------------------------ building

    def node(self, name: str) -> Node:
        found: Node | None = self.routers.get(name) or self.sites.get(name) or self.hosts.get(name)
        if found is None:
            raise ConfigError(f"invalid node {name!r}; expected one of {self.file.name}")
        return found

    def _connect(self) -> None:
        for spec in self.file.links:
            for source, target in ((spec.one, spec.other), (spec.other, spec.one)):
                self.links[source, target] = link = Link(
                    self.clock, source, self.node(target),
                    bits_per_s=spec.bits_per_s, delay_s=spec.delay_s, buffer_bytes=spec.buffer_bytes,
                )  # fmt: skip
                if source in self.routers and target in self.routers:
                    self.routers[source].links[target] = link

    def _join_sites(self) -> None:
        """VRFs at the PE routers that have a site of the VPN, and static routes on both sides."""
        vpns = {vpn.name: vpn for vpn in self.file.vpns}
        for site in self.file.sites:
            vrf = self._vrf(site.pe, vpns[site.vpn].name)
            self.edges[site.pe].vrf_of[site.name] = site.vpn
            self.sites[site.name].provider = self.links[site.name, site.pe]
            for prefix in site.prefixes:
                vrf.sites[prefix] = self.links[site.pe, site.name]
        for host in self.file.hosts:
            self.hosts[host.name].link = self.links[host.name, host.at]
            if host.at in self.sites:
                self.sites[host.at].hosts[str(host.address)] = self.links[host.at, host.name]
            else:
                self.edges[host.at].vrf_of[host.name] = host.vpn
                self._vrf(host.at, host.vpn).sites[IPv4Network(host.address)] = self.links[host.at, host.name]

    def _vrf(self, pe: str, vpn: str) -> Vrf:
        edge = self.edges[pe]
        if vpn not in edge.vrfs:
            [spec] = [one for one in self.file.vpns if one.name == vpn]
            label = edge.labels.new()
            edge.labels.vpns[label] = vpn
            edge.vrfs[vpn] = Vrf(vpn, spec.rd, spec.imports, spec.exports, label)
        return edge.vrfs[vpn]

    def _start_routing(self) -> None:
        costs: dict[str, dict[str, float]] = {name: {} for name in self.routers}
        for spec in self.file.links:
            if spec.one in self.routers and spec.other in self.routers:
                costs[spec.one][spec.other] = costs[spec.other][spec.one] = spec.cost
        for name, router in self.routers.items():
            for edge in self.file.pe:
                router.labels.bindings[edge] = label = router.labels.new()
                if edge == name:
                    router.labels.ends.add(label)
            state = LinkState(self.clock, name, self.file.timers, costs[name], partial(self._install, name))
            state.links = router.links
            self._states[name] = state
        for state in self._states.values():
            state.peers = self._states
            state.own()
        known = {name: state.known[name] for name, state in self._states.items()}
        for name, state in self._states.items():
            state.known.update(known)
            self._install(name)
        self._spread_all(None)

    # ------------------------------------------------------------------------------------------------ paths

    def _install(self, name: str) -> None:
        """The router's paths to all PE routers, by what it knows now."""
        router = self.routers[name]
        graph = self._states[name].graph()
        paths = shortest(graph, name)
        labels = router.labels
        for edge in self.file.pe:
            if edge == name:
                continue
            path = paths.get(edge)
            if path is None:
                labels.pushes.pop(edge, None)
                labels.swaps.pop(labels.bindings[edge], None)
                continue
            swap = self._swap(graph, router, path)
            labels.swaps[labels.bindings[edge]] = swap
            if name in self.edges:
                labels.pushes[edge] = swap

    def _swap(self, graph: Graph, router: Router, path: tuple[str, ...]) -> Swap:
        neighbour, edge = path[1], path[-1]
        swap = Swap(neighbour, router.links[neighbour], self.routers[neighbour].labels.bindings[edge])
        if self.fast_reroute:
            swap.backup = self._bypasses.backup(graph, router, path)
        swap.use_backup = neighbour in self._states[router.name].down
        return swap

    # ------------------------------------------------------------------------------------------------ VPN routes

    def _spread(self, told: tuple[str, VpnRoute, bool]) -> None:
        """One PE router advertises a route to all others, or withdraws it (full mesh of MP-iBGP)."""
        source, route, there = told
        for edge in self.edges.values():
            if edge.name == source or not edge.alive:
                continue
            for vrf in edge.vrfs.values():
                (vrf.learn if there else vrf.withdraw)(route)

    def _spread_all(self, _: None) -> None:
        """As sessions do when they begin: each PE router advertises all its routes."""
        for edge in self.edges.values():
            for vrf in edge.vrfs.values():
                for route in vrf.own_routes(edge.name):
                    if edge.alive and vrf.sites[route.prefix].up:
                        self._spread((edge.name, route, True))

    def _announce(self, edge: EdgeRouter, vrf: Vrf, *, there: bool, prefixes: Mapping[IPv4Network, Link]) -> None:
        for route in vrf.own_routes(edge.name):
            if route.prefix in prefixes:
                self.clock.at(self.clock.now + self.file.timers.bgp_s, self._spread, (edge.name, route, there))

    # ------------------------------------------------------------------------------------------------ failures

    def fail(self, what: str) -> None:
        """A router of the provider, or the link `one-other`, stops now; neighbours notice in `detect_s`."""
        self.faults.append((self.clock.now, f"{what} fails"))
        if what in self.routers:
            self.routers[what].alive = self._states[what].alive = False
        for source, target in self._ends(what):
            self.links[source, target].fail()
            self.clock.at(self.clock.now + self.file.timers.detect_s, self._noticed, (source, target))

    def repair(self, what: str) -> None:
        """It works again from now on, and is used after `up_hold_s`."""
        self.faults.append((self.clock.now, f"{what} is repaired"))
        if what in self.routers:
            self.routers[what].alive = self._states[what].alive = True
            self._states[what].down.update(self.routers[what].links)
            self._states[what].own()
        if what in self.edges:
            self.clock.at(self.clock.now + self.file.timers.up_hold_s + self.file.timers.bgp_s, self._spread_all)
        for source, target in self._ends(what):
            self.links[source, target].repair()
            told = (source, target, self.links[source, target].epoch)
            self.clock.at(self.clock.now + self.file.timers.up_hold_s, self._back, told)

    def check_fault(self, what: str) -> None:
        """Raises ConfigError where there is nothing of that name that could fail."""
        self._ends(what)

    def _ends(self, what: str) -> list[tuple[str, str]]:
        if what in self.routers:
            return [(one, other) for one, other in self.links if what in (one, other)]
        one, _, other = what.partition("-")
        if (one, other) not in self.links:
            raise ConfigError(f"invalid value {what!r} for fail; expected a router of the provider or a link ONE-OTHER")
        return [(one, other), (other, one)]

    def _noticed(self, ends: tuple[str, str]) -> None:
        source, target = ends
        if self.links[ends].up:
            return
        router = self.routers.get(source)
        if router is None:
            return
        if target in router.links:
            self._states[source].lost(target)
            for swap in router.labels.all_swaps():
                swap.use_backup = swap.use_backup or swap.neighbour == target
        elif source in self.edges:
            self._site_changed(self.edges[source], target, there=False)

    def _back(self, told: tuple[str, str, int]) -> None:
        source, target, epoch = told
        router, link = self.routers.get(source), self.links[source, target]
        if router is None or not link.up or link.epoch != epoch:
            return  # it failed again since
        if target in router.links:
            self._states[source].regained(target)
        elif source in self.edges:
            self._site_changed(self.edges[source], target, there=True)

    def _site_changed(self, edge: EdgeRouter, site: str, *, there: bool) -> None:
        """The static routes to a site come or go, and with them what the other PE routers are told."""
        vrf = edge.vrfs[edge.vrf_of[site]]
        link = self.links[edge.name, site]
        routes = {prefix: to for prefix, to in vrf.sites.items() if to is link}
        self._announce(edge, vrf, there=there, prefixes=routes)

    # ------------------------------------------------------------------------------------------------ asking

    def trace(self, source: str, destination: str, *, seconds: float = 60.0) -> list[str]:
        """The way of one packet from host to host, sent now; the clock runs on until it has an end."""
        for name in (source, destination):
            if name not in self.hosts:
                raise ConfigError(f"invalid host {name!r}; expected one of {', '.join(self.hosts)}")
        packet = Packet(self.hosts[source].address, self.hosts[destination].address, 100)
        packet.trace = []
        self.hosts[source].send(packet)
        self.clock.run(self.clock.now + seconds)
        return packet.trace

    def summary(self) -> dict[str, list[str]]:
        """Names by kind, and each VPN's hosts."""
        file = self.file
        found = {
            "P": list(file.p), "PE": list(file.pe), "CE": list(self.sites), "hosts": list(self.hosts),
            "links": [f"{link.one}-{link.other}" for link in file.links],
        }  # fmt: skip
        for vpn in file.vpns:
            found[f"VPN {vpn.name}"] = [host.name for host in file.hosts if host.vpn == vpn.name]
        return found

    def lost(self) -> dict[str, int]:
        """Packets that did not get through, by where."""
        discarded = sum(sum(router.discarded.values()) for router in self.routers.values())
        discarded += sum(sum(site.discarded.values()) for site in self.sites.values())
        return {
            "in_failures": sum(link.lost for link in self.links.values()),
            "at_full_buffers": sum(link.dropped for link in self.links.values()),
            "discarded": discarded,
            "misdelivered": sum(host.misdelivered for host in self.hosts.values()),
        }
