"""Networks with routing on, for tests: nodes from links, and what is to hold of them once they are at rest."""

from typing import Any

from holdfast.peering.routes import Routes
from holdfast.routing.settings import RoutingConfig
from holdfast.routing.topology import Topology, TopologyLink, TopologyNode
from support.rig import Node, Rig


def core_routes(node: Node) -> Routes:
    assert node.core is not None and node.core.routing is not None
    return node.core.routing


def topology(*links: str, supers: tuple[str, ...] = (), costs: dict[str, float] | None = None) -> Topology:
    """From links written `a-b` (both ways) or `a>b` (one way); numbers by the order of names, each link costs 1.

    Serial ones: their sessions probe seldom, which is most of what a long run costs.
    """
    pairs = [(link, link.replace(">", "-").split("-")) for link in links]
    names = list(dict.fromkeys(name for _, pair in pairs for name in pair))
    return Topology(
        nodes=tuple(
            TopologyNode(name=name, number=number, roles=("super",) if name in supers else ())
            for number, name in enumerate(sorted(names), 1)
        ),
        links=tuple(
            TopologyLink(
                from_=pair[0],
                to=pair[1],
                cost=(costs or {}).get(link, 1.0),
                kind="serial",
                direction="one" if ">" in link else "both",
            )
            for link, pair in pairs
        ),
    )


def network(
    rig: Rig,
    *links: str,
    supers: tuple[str, ...] = (),
    costs: dict[str, float] | None = None,
    start: bool = True,
    routing: dict[str, Any] | None = None,
    **fields: dict[str, Any],
) -> list[Node]:
    """Nodes by name, each with the whole topology; `routing` are settings of all, `fields` by node."""
    whole = topology(*links, supers=supers, costs=costs)
    settings = RoutingConfig(**(routing or {}))
    names = list(dict.fromkeys(name for link in links for name in link.replace(">", "-").split("-")))
    shared = {name: {"topology": whole, "routing": settings} | fields.get(name, {}) for name in names}
    return rig.graph(*(link.replace(">", "-") for link in links), start=start, **shared)


def routes(node: Node) -> dict[str, str]:
    assert node.core is not None
    return dict(node.core.forwarding.table)


def path(node: Node, to: str) -> str:
    assert node.core is not None and node.core.routing is not None
    found = node.core.routing.paths.get(to)
    return "" if found is None else "".join(found.nodes)


def agree(*nodes: Node) -> bool:
    """Whether they hold the same records, and think that nothing is missing."""
    found = {node.core.routing.states.digest for node in nodes if node.core is not None and node.core.routing}
    return len(found) == 1 and all(
        node.core.routing.synchronised for node in nodes if node.core is not None and node.core.routing
    )


def marks(node: Node) -> dict[str, tuple[int, bool]]:
    """Version of each record, and whether it is stamped."""
    assert node.core is not None and node.core.routing is not None
    known = node.core.routing.states.known
    return {name: (item.record.version, item.stamp is not None) for name, item in sorted(known.items())}
