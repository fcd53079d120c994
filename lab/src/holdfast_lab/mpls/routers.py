"""Nodes that packets pass: P and PE routers of the provider, CE routers of sites, and hosts.

Rules of this file: forwarding alone; who fills the tables is provider.py's business. Between PE routers a packet has
two labels: the VPN's, pushed first, and that of the path to the other PE router, swapped by each P router on the way.
Both are popped at the far PE router (no penultimate hop popping), which forwards by the VPN's table. Source:
traffic-control §2.2 and §4.1.
"""

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network

from holdfast_lab.mpls.labels import LabelTable
from holdfast_lab.mpls.links import HOPS_MAX, LABEL_BYTES, Link, Packet
from holdfast_lab.mpls.vrf import Vrf


class Router:
    """A P router; `discarded` counts packets by the reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.labels = LabelTable()
        self.links: dict[str, Link] = {}
        """To its neighbours in the provider's network."""
        self.discarded: Counter[str] = Counter()

    def receive(self, packet: Packet, link: Link) -> None:
        packet.hops += 1
        if packet.hops > HOPS_MAX:
            self.discard(packet, "in a loop")
        elif packet.labels:
            self.by_label(packet)
        else:
            self.unlabelled(packet, link)

    def by_label(self, packet: Packet) -> None:
        top = packet.labels.pop()
        swap = self.labels.swaps.get(top)
        if swap is not None:
            swap.apply(packet, self.name, top)
        else:
            self.at_end(packet, top)

    def at_end(self, packet: Packet, top: int) -> None:
        self.discard(packet, f"label {top} is not known")

    def unlabelled(self, packet: Packet, link: Link) -> None:
        self.discard(packet, "has no label")

    def discard(self, packet: Packet, why: str) -> None:
        self.discarded[why] += 1
        if packet.trace is not None:
            packet.trace.append(f"{self.name}: discarded, {why}")


class EdgeRouter(Router):
    """A PE router: a Router with a table for each VPN of its sites."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.vrfs: dict[str, Vrf] = {}
        self.vrf_of: dict[str, str] = {}
        """The VPN of each site's router or host, by its name."""

    def at_end(self, packet: Packet, top: int) -> None:
        packet.size -= LABEL_BYTES
        if top in self.labels.ends and packet.labels:
            if packet.trace is not None:
                packet.trace.append(f"{self.name}: pop {top}")
            self.at_end(packet, packet.labels.pop())
            return
        name = self.labels.vpns.get(top)
        if name is None:
            self.discard(packet, f"label {top} is not known")
            return
        if packet.trace is not None:
            packet.trace.append(f"{self.name}: pop {top}, VPN {name}")
        site = self.vrfs[name].local(packet.destination)
        if site is None:
            self.discard(packet, f"VPN {name} has no site with {packet.destination}")
        else:
            site.send(packet)

    def unlabelled(self, packet: Packet, link: Link) -> None:
        """From a site."""
        name = self.vrf_of.get(link.source)
        if name is None:
            self.discard(packet, "has no label")
            return
        found = self.vrfs[name].lookup(packet.destination)
        if found is None:
            self.discard(packet, f"VPN {name} has no route to {packet.destination}")
        elif isinstance(found, Link):
            if packet.trace is not None:
                packet.trace.append(f"{self.name}: VPN {name}, a site of its own")
            found.send(packet)
        else:
            push = self.labels.pushes.get(found.next_hop)
            if push is None:
                self.discard(packet, f"no path to {found.next_hop}")
                return
            if packet.trace is not None:
                packet.trace.append(f"{self.name}: VPN {name}, push {found.label}")
            packet.labels.append(found.label)
            packet.size += LABEL_BYTES
            push.apply(packet, self.name, None)


class SiteRouter:
    """A CE router: static routes to the hosts behind it, and to the provider for all else."""

    def __init__(self, name: str, prefixes: list[IPv4Network]) -> None:
        self.name = name
        self.prefixes = prefixes
        self.hosts: dict[str, Link] = {}
        self.provider: Link | None = None
        self.discarded: Counter[str] = Counter()

    def receive(self, packet: Packet, link: Link) -> None:
        if packet.trace is not None:
            packet.trace.append(f"{self.name}: forwards")
        host = self.hosts.get(packet.destination)
        if host is not None:
            host.send(packet)
        elif self.provider is not None and link.source != self.provider.target.name:
            self.provider.send(packet)
        else:
            self.discarded["no host with that address"] += 1


class Host:
    """Where packets begin and end. `take` gets the payload of each that is for this host."""

    def __init__(self, name: str, address: IPv4Address) -> None:
        self.name = name
        self.address = str(address)
        self.link: Link | None = None
        self.take: Callable[[Packet], None] | None = None
        self.misdelivered = 0

    def receive(self, packet: Packet, link: Link) -> None:
        if packet.destination != self.address:
            self.misdelivered += 1
            return
        if packet.trace is not None:
            packet.trace.append(f"{self.name}: arrived")
        if self.take is not None:
            self.take(packet)

    def send(self, packet: Packet) -> None:
        assert self.link is not None
        if packet.trace is not None:
            packet.trace.append(f"{self.name}: sends to {packet.destination}")
        self.link.send(packet)
