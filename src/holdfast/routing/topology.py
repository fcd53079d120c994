"""The configured topology: nodes, links, and what a link costs. esb-dynamic-routing §4.1 (docs/topology.md).

Rules of this file: data, made from TOML; every mistake is a ConfigError of one line. Costs are whole millionths, so
that sums are exact, and equal costs are equal on every node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.names import HostPort, check_name, parse_host_port, without_scheme
from holdfast.schema import COUNT, TEXT, Keys, Kind, check_keys, found, is_number, one_of, whole_within

NODES_MAX: Final = 10_000
LINKS_MAX: Final = 100_000
NUMBER_MAX: Final = 2**32 - 1
"""A node's number travels as an AMQP uint (esb-dynamic-routing §4.4: the trace holds numbers)."""

ROLES: Final = ("client", "root", "super")
SUPER: Final = "super"
DIRECTIONS: Final = ("both", "one")
BANDWIDTH_BPS_DEFAULT: Final[Mapping[str, int]] = {"tcp": 100_000_000, "tls": 100_000_000, "serial": 115_200}
"""By kind of link, in bits a second."""
KINDS: Final = tuple(BANDWIDTH_BPS_DEFAULT)

MICRO: Final = 1_000_000
"""Costs are counted in millionths; a cost of 1 is a millisecond (docs/adr/0015-routing.md)."""
COST_MICRO_MAX: Final = 2**53
"""The highest cost of a link that a node advertises, in millionths: what JSON and every language's numbers hold
exactly."""
DRAINED_MICRO: Final = 2**52
"""What a node that is drained adds to the cost of each of its links, in millionths, as a stub router does (RFC 6987):
more than any path of other nodes costs that a file describes, so that nobody's way leads through it who has another."""
COST_MAX: Final = 1_000_000_000
"""The highest that a file gives: the longest path of the largest topology, in millionths, is still an AMQP ulong."""
DISTANCE_KM_MAX: Final = 1_000_000_000

HOP_MS: Final = 1
"""The commit of each hop."""
MESSAGE_BITS: Final = 8_192
"""1 KiB: the message whose time a cost is."""
KM_PER_MS: Final = 200
"""Light in fibre and copper: two thirds of its speed in empty space."""

NAMED_MAX: Final = 10
"""Names that one warning spells out."""

Edges = dict[str, dict[str, int]]
"""From node, to node: the cost of that direction, in millionths."""


def cost_number(cost_micro: int) -> int | float:
    """A cost for people and JSON: whole if possible, otherwise with up to six decimals."""
    whole, rest = divmod(cost_micro, MICRO)
    return cost_micro / MICRO if rest else whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyNode:
    """`address` is where its neighbours dial it, and `tls` whether TLS is spoken there; None: only [[neighbour]]
    entries have it. `roles` empty: the node's own configuration decides.
    """

    name: str
    number: int
    address: HostPort | None = None
    roles: tuple[str, ...] = ()
    tls: bool = False

    def validate(self) -> None:
        """Raises ConfigError that names the node and the key."""
        check_name(self.name)
        where = f"node {self.name!r}"
        if not 0 <= self.number <= NUMBER_MAX:
            raise ConfigError(f"invalid value {self.number} for {where} number; expected 0 to {NUMBER_MAX}")
        for role in self.roles:
            if role not in ROLES:
                raise ConfigError(f"invalid value {found(role)} for {where} roles; expected one of {', '.join(ROLES)}")
        if len(set(self.roles)) != len(self.roles):
            raise ConfigError(f"{where} has a role twice; list each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLink:
    """A link that messages may take from `from_` to `to`, and back if `direction` is "both".

    `bandwidth_bps` in bits a second (None: as its kind has it), `distance_km` in kilometres. `cost` as configured;
    None: by the formula. The session works in both directions in any case, because custody needs answers.
    """

    from_: str
    to: str
    kind: str = "tcp"
    direction: str = "both"
    bandwidth_bps: int | None = None
    distance_km: float = 0.0
    cost: float | None = None

    def __str__(self) -> str:
        return f"link {self.from_!r} to {self.to!r}"

    @property
    def ends(self) -> tuple[str, str]:
        return self.from_, self.to

    @property
    def cost_micro(self) -> int:
        """In millionths: the cost given, else `1 + 8,192,000 / bandwidth_bps + distance_km / 200`, which is the
        milliseconds that 1 KiB takes over the link, the hop's commit included.
        """
        if self.cost is not None:
            return round(self.cost * MICRO)
        bandwidth_bps = self.bandwidth_bps or BANDWIDTH_BPS_DEFAULT[self.kind]
        return HOP_MS * MICRO + round(
            MESSAGE_BITS * 1_000 * MICRO / bandwidth_bps + self.distance_km * MICRO / KM_PER_MS
        )

    def validate(self) -> None:
        """Raises ConfigError that names the link and the key; that its ends exist is the topology's to say."""
        if self.from_ == self.to:
            raise ConfigError(f"{self} begins and ends at the same node; give it two nodes")
        for key, value, choices in (
            ("kind", self.kind, KINDS),
            ("direction", self.direction, DIRECTIONS),
        ):
            if value not in choices:
                known = ", ".join(choices)
                raise ConfigError(f"invalid value {found(value)} for {self} {key}; expected one of {known}")
        for key, number, kind in (
            ("bandwidth_bps", self.bandwidth_bps, COUNT),
            ("distance_km", self.distance_km, _DISTANCE),
            ("cost", self.cost, _COST),
        ):
            if number is not None and not kind.fits(number):
                raise ConfigError(f"invalid value {found(number)} for {self} {key}; expected {kind.wanted(number)}")


@dataclass(frozen=True)
class Topology:
    """Nodes and links in the order of the file. Valid once `validate` has passed, as from `topology_of`."""

    nodes: tuple[TopologyNode, ...]
    links: tuple[TopologyLink, ...]

    # Made at the first question: a node with many links asks after each of them when it starts.

    @cached_property
    def _named(self) -> dict[str, TopologyNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _joining(self) -> dict[tuple[str, str], TopologyLink]:
        """By its ends, the lower name first: the first link that joins them."""
        joining: dict[tuple[str, str], TopologyLink] = {}
        for link in self.links:
            joining.setdefault(_pair(*link.ends), link)
        return joining

    def link_between(self, one: str, other: str) -> TopologyLink | None:
        """The first link that joins the two, whatever its direction."""
        return self._joining.get(_pair(one, other))

    def kind_between(self, one: str, other: str) -> str | None:
        """The kind of the link between the two; None if there is none."""
        link = self.link_between(one, other)
        return None if link is None else link.kind

    def validate(self) -> None:
        """Raises ConfigError at the first node or link that is wrong."""
        for what, count, most in (("node", len(self.nodes), NODES_MAX), ("link", len(self.links), LINKS_MAX)):
            if count > most:
                raise ConfigError(f"there are {count} [[{what}]] tables; the limit is {most}")
        if not self.nodes:
            raise ConfigError("there is no [[node]]; add at least one")
        named: dict[str, TopologyNode] = {}
        numbered: dict[int, TopologyNode] = {}
        for node in self.nodes:
            node.validate()
            if node.name in named:
                raise ConfigError(f"node {node.name!r} is listed twice; list it once")
            if node.number in numbered:
                other = numbered[node.number].name
                raise ConfigError(
                    f"node {node.name!r} has number {node.number}, which node {other!r} has too; give each its own "
                    "(without a number a node has its place in the file)"
                )
            named[node.name] = numbered[node.number] = node
        taken: dict[tuple[str, str], TopologyLink] = {}
        for link in self.links:
            for key, name in (("from", link.from_), ("to", link.to)):
                if name not in named:
                    raise ConfigError(f"invalid value {found(name)} for {link} {key}; expected the name of a [[node]]")
            link.validate()
            for edge in _edges(link):
                if edge in taken:
                    other = "" if taken[edge].ends == link.ends else f' (as the way back of {taken[edge]}, "both")'
                    raise ConfigError(f"{link} is listed twice{other}; list it once in each direction")
                taken[edge] = link

    def node(self, name: str) -> TopologyNode | None:
        """The node of that name, or None."""
        return self._named.get(name)

    def edges(self) -> Edges:
        """The links over which each node can send, with their costs; empty for a node without links."""
        edges: Edges = {node.name: {} for node in self.nodes}
        for link in self.links:
            for start, end in _edges(link):
                edges[start][end] = link.cost_micro
        return edges

    def links_of(self, name: str) -> list[TopologyLink]:
        """The links that begin or end at that node, in the order of the file."""
        return [link for link in self.links if name in link.ends]

    def supers(self) -> list[TopologyNode]:
        """The super nodes, by number: the order in which they act (docs/adr/0015-routing.md)."""
        return sorted((node for node in self.nodes if SUPER in node.roles), key=lambda node: (node.number, node.name))


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _edges(link: TopologyLink) -> list[tuple[str, str]]:
    return [(link.from_, link.to), (link.to, link.from_)] if link.direction == "both" else [(link.from_, link.to)]


def star(name: str, neighbours: Iterable[str]) -> Topology:
    """Of a node without a topology file: links of cost 1 between it and those neighbours."""
    nodes = tuple(TopologyNode(name=each, number=number) for number, each in enumerate((name, *neighbours), 1))
    return Topology(nodes, tuple(TopologyLink(from_=name, to=node.name, cost=1.0) for node in nodes[1:]))


# --------------------------------------------------------------------------------------- from what TOML gave

_DISTANCE: Final = Kind(
    f"a number of kilometres, 0 to {DISTANCE_KM_MAX:,}",
    lambda value: is_number(value) and 0 <= value <= DISTANCE_KM_MAX,
)
_COST: Final = Kind(
    f"a number, 0.000001 to {COST_MAX:,}", lambda value: is_number(value) and 1 / MICRO <= value <= COST_MAX
)
_ROLES: Final = Kind(
    f"a list of {', '.join(ROLES)}, at least one",
    lambda value: isinstance(value, list) and value != [] and all(one_of(*ROLES).fits(role) for role in value),
)
_NODE: Final[Keys] = {"name": TEXT, "number": whole_within(0, NUMBER_MAX), "address": TEXT, "roles": _ROLES}
_LINK: Final[Keys] = {
    "from": TEXT,
    "to": TEXT,
    "cost": _COST,
    "kind": one_of(*KINDS),
    "bandwidth_bps": COUNT,
    "distance_km": _DISTANCE,
    "direction": one_of(*DIRECTIONS),
}


def topology_of(document: Mapping[str, Any]) -> Topology:
    """The topology that a TOML document of `[[node]]` and `[[link]]` writes. Raises ConfigError.

    A node without a number has its place in the file, from 1.
    """
    for key in document:
        if key not in ("node", "link"):
            raise ConfigError(f"unknown key {found(key)}; expected one of [[node]], [[link]]")
    topology = Topology(
        tuple(_node(place, table) for place, table in enumerate(_tables(document, "node", NODES_MAX), 1)),
        tuple(_link(place, table) for place, table in enumerate(_tables(document, "link", LINKS_MAX), 1)),
    )
    topology.validate()
    return topology


def _tables(document: Mapping[str, Any], name: str, most: int) -> Sequence[Mapping[str, Any]]:
    value = document.get(name, [])
    if not (isinstance(value, list) and all(isinstance(entry, dict) for entry in value)):
        raise ConfigError(f"invalid value {found(value)} for {name}; expected a list of tables, [[{name}]]")
    if len(value) > most:
        raise ConfigError(f"there are {len(value)} [[{name}]] tables; the limit is {most}")
    return value


def _node(place: int, table: Mapping[str, Any]) -> TopologyNode:
    name = table.get("name")
    where = f"node {found(name)}" if isinstance(name, str) and name else f"node number {place}"
    check_keys(where, table, _NODE)
    if name is None:
        raise ConfigError(f"{where} has no name; expected {TEXT.expected}")
    address = table.get("address")
    tls, address = (False, None) if address is None else without_scheme(address)
    return TopologyNode(
        name=name,
        number=table.get("number", place),
        address=None if address is None else parse_host_port(f"{where} address", address, port_min=1),
        roles=tuple(table.get("roles", ())),
        tls=tls,
    )


def _link(place: int, table: Mapping[str, Any]) -> TopologyLink:
    ends = table.get("from"), table.get("to")
    told = all(isinstance(end, str) and end for end in ends)
    where = f"link {found(ends[0])} to {found(ends[1])}" if told else f"link number {place}"
    check_keys(where, table, _LINK)
    for key in ("from", "to"):
        if key not in table:
            raise ConfigError(f"{where} has no {key}; expected the name of a [[node]]")
    given = dict(table)
    return TopologyLink(from_=given.pop("from"), to=given.pop("to"), **given)


# ------------------------------------------------------------------------------------------------- warnings


def warnings(topology: Topology) -> list[str]:
    """Probable mistakes, a line each: nodes that are cut off from the rest, no super node. Reachability is computed
    from the first super node, or else the first node: nodes that reach it and are reached from it are connected with
    all others that do.
    """
    told = []
    supers = topology.supers()
    if not supers:
        told.append('roles: there is no node with the role "super"; so no node can be declared lost')
    centre = (supers or topology.nodes)[0].name
    there = topology.edges()
    back: Edges = {name: {} for name in there}
    for start, ends in there.items():
        for end, cost in ends.items():
            back[end][start] = cost
    for edges, what in ((there, f"cannot be reached from {centre!r}"), (back, f"cannot reach {centre!r}")):
        reached = _reached(edges, centre)
        missed = [node.name for node in topology.nodes if node.name not in reached]
        if missed:
            more = f" and {len(missed) - NAMED_MAX} more" if len(missed) > NAMED_MAX else ""
            told.append(f"node {', '.join(map(repr, missed[:NAMED_MAX]))}{more}: {what}")
    return told


def _reached(edges: Edges, start: str) -> set[str]:
    reached = {start}
    waiting = [start]
    while waiting:
        for end in edges[waiting.pop()]:
            if end not in reached:
                reached.add(end)
                waiting.append(end)
    return reached
