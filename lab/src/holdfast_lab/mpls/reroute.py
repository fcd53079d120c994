"""Fast reroute: bypasses around a neighbour or a link, set up before it fails.

Rules of this file: which bypass a router would use, and the labels along it; nothing is timed: setting one up is done
with the computation of paths. One bypass carries all that goes around the same thing to the same router, which knows it
by the label beneath (RFC 4090 §3.2, facility backup; the last router before it pops the bypass's label).
"""

from collections.abc import Mapping

from holdfast_lab.mpls.labels import Swap
from holdfast_lab.mpls.paths import Graph, shortest
from holdfast_lab.mpls.routers import Router


class Bypasses:
    """`labels`: the label at the second router of each path that was set up; a path has the same one for ever."""

    def __init__(self, routers: Mapping[str, Router]) -> None:
        self._routers = routers
        self.labels: dict[tuple[str, ...], int] = {}

    def backup(self, graph: Graph, router: Router, path: tuple[str, ...]) -> Swap | None:
        """What `router` does with what goes along `path`, from it to a PE router, when the next hop is gone.

        Around the next hop to the router after it; where the next hop is the PE router itself, or nothing leads around
        it, around the link. None where nothing does that, either.
        """
        edge = path[-1]
        around: tuple[str, ...] | None = None
        if len(path) > 2:
            around = shortest(graph, router.name, without=(path[1],)).get(path[2])
        if around is None:
            less = {node: dict(neighbours) for node, neighbours in graph.items()}
            less[router.name].pop(path[1], None)
            around = shortest(less, router.name).get(path[1])
        if around is None:
            return None
        out = self._routers[around[-1]].labels.bindings[edge]
        more = () if len(around) == 2 else (self._label(around),)
        return Swap(around[1], router.links[around[1]], out, more)

    def _label(self, around: tuple[str, ...]) -> int:
        """The label with which the path's second router forwards to its end."""
        known = self.labels.get(around)
        if known is not None:
            return known
        second = self._routers[around[1]]
        label = second.labels.new()
        rest = around[1:]
        out = None if len(rest) == 2 else self._label(rest)
        second.labels.swaps[label] = Swap(rest[1], second.links[rest[1]], out)
        self.labels[around] = label
        return label
