"""The nodes of a run, the links between them, and the next hop of each node for every other.

Rules of this file: data and arithmetic; both beds build their nodes from it. The forwarding table is fixed for a run
unless a fault changes it: the fewest hops, of equal ones the lowest name.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from holdfast.access.rules import NO_ACCESS, AccessConfig
from holdfast.errors import ConfigError
from holdfast.federation.settings import Entry
from holdfast.pacing.settings import NO_PACING, PacingConfig
from holdfast.routing.settings import RoutingConfig
from holdfast.routing.topology import KM_PER_MS, TopologyLink, TopologyNode
from holdfast.routing.topology import Topology as Map
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast_lab.base.fences import USERS
from holdfast_lab.base.harness import HARNESS
from holdfast_lab.base.plain_broker import Excess

KEEPALIVE_S: Final = 0.5
HOLD_TIME_S: Final = 1.5
LIMITS: Final = Limits()
OFFERED: Final = "offered"
"""The address of a broker from which messages are fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape:
    """One direction of a link: `rate` bytes a second (None: no limit), times in seconds, `loss` of packets."""

    rate: float | None = None
    delay_s: float = 0.002
    jitter_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`one` dials `other`. `back` None: the same shape both ways.

    `cost` and `direction` are the topology file's, for nodes that compute their routes: None is by its formula, and
    "one" lets messages go from `one` to `other` alone.
    """

    one: str
    other: str
    there: LinkShape = LinkShape()
    back: LinkShape | None = None
    cost: float | None = None
    direction: str = "both"

    @property
    def shapes(self) -> tuple[LinkShape, LinkShape]:
        """Of both directions, there and back."""
        return self.there, self.back or self.there


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShape:
    """A broker that is no node, a remote of one: it returns and rejects those parts of what comes to it, and ends the
    first `cuts` of its connections after `lasts_s` on average. `delay_s`: how far it is away. `offers` messages of
    `size` bytes are there to be fetched, from the address OFFERED to the queue `fetched`. It takes frames of
    `frame_bytes`, so many `sessions`, and so many links in each; one that `begins` allows a single session, which it
    begins itself. Whatever that allows, `links_max` and `sessions_max` are the most that a connection may have, and
    one too many ends what `excess` says (base/plain_broker.py)."""

    name: str
    returns: float = 0.0
    rejects: float = 0.0
    cuts: int = 0
    lasts_s: float = 1.0
    credit: int = 20
    delay_s: float = 0.002
    offers: int = 0
    size: int = 200
    fetched: str = "fetched"
    frame_bytes: int = 65_536
    begins: bool = False
    sessions: int = 256
    session_links: int = 1_024
    links_max: int = 1_024
    sessions_max: int = 256
    excess: Excess = "link"

    @property
    def config(self) -> RemoteConfig:
        """As its node has it."""
        fetch = (Fetch(OFFERED, self.fetched),) if self.offers else ()
        return RemoteConfig(name=self.name, remote="127.0.0.1:1", fetch=fetch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """`queues` by node; `forwarding` by node and destination overrides the computed next hop."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    queues: Mapping[str, tuple[QueueConfig, ...]] = field(default_factory=dict)
    forwarding: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Limits = LIMITS
    keepalive_s: float = KEEPALIVE_S
    hold_time_s: float = HOLD_TIME_S
    routing: RoutingConfig | None = None
    """With it each node is given the whole topology and computes its own table; `forwarding` stands before it."""
    supers: tuple[str, ...] = ()
    """Nodes with the role `super`; which one acts goes by the order of `nodes`."""
    takes: Mapping[str, int] = field(default_factory=dict)
    """Nodes with a `message_bytes_max` of their own."""
    joins: tuple[str, ...] = ()
    """Nodes that the topology file of most does not have: only their own and their neighbours' files do."""

    crossing: tuple[str, ...] = ()
    """Virtual hosts that each node has, and whose messages may cross between all that are neighbours."""
    pacing: Mapping[str, PacingConfig] = field(default_factory=dict)
    """By node: what a root shares among its clients, and which clients keep to whose rates."""
    federation: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """By node: the topics that go to its neighbours."""
    brokers: Mapping[str, tuple[BrokerShape, ...]] = field(default_factory=dict)
    """By node: its remotes."""
    logins: bool = False
    """Links lead to other machines, without TLS: neighbours log in, by a mechanism that does not send the password."""

    access: Mapping[str, AccessConfig] = field(default_factory=dict)
    """By node: who may do what there; each user's password is HARNESS. All its users are in the default host, so such a
    node has no other."""

    def validate(self) -> None:
        """Raises ConfigError where a link or a queue names no node, or nobody may enter a node's virtual hosts."""
        known = set(self.nodes)
        if len(known) != len(self.nodes):
            raise ConfigError("topology lists a node twice; list it once")
        for link in self.links:
            for name in (link.one, link.other):
                if name not in known:
                    link_name = f"link {link.one} to {link.other}"
                    raise ConfigError(f"invalid value {name!r} for {link_name}; expected a node's name")
        for name in (
            *self.queues,
            *self.forwarding,
            *self.supers,
            *self.joins,
            *self.takes,
            *self.pacing,
            *self.federation,
            *self.brokers,
            *self.access,
        ):
            if name not in known:
                raise ConfigError(f"invalid value {name!r} for topology; expected a node's name")
        for name in self.access:
            if hosts := self.hosts(name):
                raise ConfigError(f"no user may enter {hosts} at node {name!r}; give it rules or hosts, not both")

    def neighbours(self, node: str) -> list[str]:
        """In the order of their names."""
        found = {link.other if link.one == node else link.one for link in self.links if node in (link.one, link.other)}
        return sorted(found)

    def table(self, node: str, *, down: frozenset[tuple[str, str]] = frozenset()) -> dict[str, str]:
        """Destination to next hop from `node`; what cannot be reached is left out. `down`: links not to be used."""
        first: dict[str, str] = {}
        queue = deque([node])
        while queue:
            at = queue.popleft()
            for name in self.neighbours(at):
                if (at, name) in down or (name, at) in down or name == node or name in first:
                    continue
                first[name] = first.get(at, name)
                queue.append(name)
        return {**first, **self.forwarding.get(node, {})}

    def config(self, node: str, remotes: Mapping[str, str], whole: Map | None = None) -> NodeConfig:
        """What that node is started with; `remotes` gives HOST:PORT of those that it dials.

        `whole` is what `map` gives, from who asks for many nodes: with computed routes it is needed for each.
        """
        dialled = {link.other for link in self.links if link.one == node}
        neighbours = tuple(
            NeighbourConfig(
                name=name,
                remote=remotes[name] if name in dialled else None,
                keepalive_s=self.keepalive_s,
                probe_s=self.keepalive_s,
                hold_time_s=self.hold_time_s,
                hosts=self.crossing,
                **self._login(node, name),
            )
            for name in self.neighbours(node)
        )
        given = self.table(node) if self.routing is None else self.forwarding.get(node, {})
        return NodeConfig(
            name=node,
            neighbours=neighbours,
            queues=self.queues.get(node, ()),
            forwarding=tuple(sorted(given.items())),
            create_queues=True,
            vhosts=tuple(VhostConfig(name=host) for host in self.hosts(node)),
            hostnames=(HARNESS,),
            limits=replace(self.limits, message_bytes_max=self.takes[node]) if node in self.takes else self.limits,
            topology=None if self.routing is None else self.file_of(node, whole or self.map()),
            routing=self.routing or RoutingConfig(),
            pacing=self.pacing.get(node, NO_PACING),
            federation=self.federation.get(node, ()),
            remotes=tuple(broker.config for broker in self.brokers.get(node, ())),
            access=self.access.get(node, NO_ACCESS),
            users=self._users(node, {item.account for item in neighbours}),
        )

    def _login(self, node: str, other: str) -> dict[str, Any]:
        """Of a pair, whoever dials."""
        pair = "+".join(sorted((node, other)))
        return {"user": self.login_of(node, other), "password": f"password {pair}"} if self.logins else {}

    def _users(self, node: str, accounts: Container[str]) -> tuple[UserConfig, ...]:
        """Those that its rules name, now or once they are drawn anew; neighbours log in as others."""
        access = self.access.get(node, NO_ACCESS)
        named = dict.fromkeys(name for rule in access.rules for name in rule.users)
        named |= dict.fromkeys(USERS if access.rules else ())
        named |= dict.fromkeys(name for group in access.groups for name in group.users)
        return tuple(UserConfig(name=name, password=HARNESS) for name in named if name not in accounts)

    def login_of(self, node: str, other: str) -> str:
        """As whom neighbours log in at each other, where they do."""
        return f"user {'+'.join(sorted((node, other)))}"

    def hosts(self, node: str) -> list[str]:
        """The virtual hosts of that node beside the default one: those that cross, and those of its queues."""
        of_queues = (queue.vhost for queue in self.queues.get(node, ()) if queue.vhost)
        return list(dict.fromkeys((*self.crossing, *of_queues)))

    def map(self) -> Map:
        """The topology as its file would have it: a link's cost is by its slower direction's rate and longer delay."""
        links: dict[tuple[str, str], TopologyLink] = {}
        for link in self.links:
            rates = [way.rate for way in link.shapes if way.rate is not None]
            made = TopologyLink(
                from_=link.one,
                to=link.other,
                bandwidth_bps=max(1, int(min(rates) * 8)) if rates else None,
                distance_km=max(way.delay_s for way in link.shapes) * 1_000 * KM_PER_MS,
                cost=link.cost,
                direction=link.direction,
            )
            if (link.other, link.one) not in links:  # where both dial, it is still one link
                links.setdefault((link.one, link.other), made)
        return Map(
            nodes=tuple(
                TopologyNode(name=name, number=number, roles=("super",) if name in self.supers else ())
                for number, name in enumerate(self.nodes, 1)
            ),
            links=tuple(links.values()),
        )

    def file_of(self, node: str, whole: Map) -> Map:
        """The topology file that this node is given, of `map`'s `whole`: those that join later stand in it where it is
        joined to them.
        """
        missing = set(self.joins)
        if missing:
            missing -= {node, *self.neighbours(node)}
        if not missing:
            return whole
        return Map(
            nodes=tuple(item for item in whole.nodes if item.name not in missing),
            links=tuple(item for item in whole.links if missing.isdisjoint(item.ends)),
        )


def joined(links: Iterable[Link]) -> list[tuple[str, str]]:
    """The pairs that those links join, each once, whoever dials: as the first of its links has it."""
    found: dict[tuple[str, str], None] = {}
    for link in links:
        if (link.other, link.one) not in found:
            found[link.one, link.other] = None
    return list(found)


def line(names: str | tuple[str, ...], shape: LinkShape | None = None) -> Topology:
    """Nodes in a row, each dialling the next."""
    nodes = tuple(names.split()) if isinstance(names, str) else names
    pairs = pairwise(nodes)
    return Topology(
        nodes=nodes, links=tuple(Link(one=one, other=other, there=shape or LinkShape()) for one, other in pairs)
    )
