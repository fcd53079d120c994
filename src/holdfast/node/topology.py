"""A node and its topology file: reading it, and what it adds to the node's own configuration (docs/topology.md).

Rules of this file: the two files must not contradict each other; what only the topology says applies; a [[neighbour]]
overrides what would be derived. Every mistake is a ConfigError of one line that names the key and the topology file.
"""

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.node.toml import read_toml
from holdfast.routing.topology import SUPER, Topology, TopologyNode, topology_of
from holdfast.settings.neighbours import NeighbourConfig


def load_topology(path: Path, *, allow_pipe: bool = False) -> Topology:
    """The topology in `path`; `allow_pipe` as for `read_toml`. Raises ConfigError that begins with the path."""
    try:
        return topology_of(read_toml(path, allow_pipe=allow_pipe))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def node_of(topology: Topology, file: str, name: str) -> TopologyNode:
    """The node of that name in it; ConfigError if there is none."""
    node = topology.node(name)
    if node is None:
        raise ConfigError(f"invalid value {name!r} for node name; expected the name of a [[node]] in {file}")
    return node


def roles_of(node: TopologyNode, file: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """The node's roles: `given` in its own file (None: not there), or else those of the topology, or else client.
    ConfigError if the two differ. A super node must be one in the topology, because the other nodes use that.
    """
    if given is None:
        return node.roles or ("client",)
    if node.roles and set(given) != set(node.roles):
        raise ConfigError(
            f"invalid value {', '.join(given) or 'none'} for node roles; expected what {file} says of node "
            f"{node.name!r}: {', '.join(node.roles)}"
        )
    if SUPER in given and not node.roles:
        raise ConfigError(f"node roles has {SUPER}, but node {node.name!r} in {file} does not; add it there too")
    return tuple(given)


def neighbours_of(
    topology: Topology, file: str, name: str, given: Sequence[NeighbourConfig]
) -> tuple[NeighbourConfig, ...]:
    """`given`, then those that the topology alone has, in the order of its links.

    The node that a link begins at dials the other's address, once for each pair however many links join them; without
    that address neither end gets a neighbour of it. ConfigError where one given is joined to the node by no link.
    """
    links = topology.links_of(name)
    joined = {end for link in links for end in link.ends} - {name}
    for neighbour in given:
        if neighbour.name not in joined:
            raise ConfigError(
                f"neighbour {neighbour.name!r} has no link to {name!r} in {file}; expected one of "
                f"{', '.join(map(repr, sorted(joined))) or 'none, as the node has no links'}"
            )
    known = {neighbour.name for neighbour in given}
    derived = []
    for link in links:
        other = link.to if link.from_ == name else link.from_
        dialled = topology.node(link.to)
        assert dialled is not None, link
        if other not in known and dialled.address is not None:
            known.add(other)
            dials = link.from_ == name
            remote = str(dialled.address) if dials else None
            derived.append(NeighbourConfig(name=other, remote=remote, tls=dials and dialled.tls))
    return (*given, *derived)
