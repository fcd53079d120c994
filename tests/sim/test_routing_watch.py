"""What watches computed routes finds what is wrong: each of its complaints, made by hand in a network at rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holdfast.core.node import NodeCore
from holdfast.routing.records import Known
from holdfast.routing.settings import RoutingConfig
from holdfast_lab.base.client_history import Violation
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, Topology
from holdfast_lab.runs.routing_watch import TOLD_MAX, RoutingWatch, watch_routes
from holdfast_lab.runs.sim_faults import Faults
from holdfast_lab.sim.sim_bed import SimBed

pytestmark = pytest.mark.sim

RING = Topology(
    nodes=("a", "b", "c", "d"),
    links=tuple(Link(one=one, other=other) for one, other in ("ab", "bc", "cd", "da")),
    keepalive_s=0.2,
    hold_time_s=0.6,
    routing=RoutingConfig(heartbeat_s=0.5),
    supers=("b",),
)


@contextmanager
def at_rest(topology: Topology = RING) -> Iterator[tuple[SimBed, RoutingWatch]]:
    with SimBed(topology, 1) as bed:
        routes = watch_routes(bed)
        bed.start()
        bed.run(5.0)
        assert routes is not None and routes.wrong() == ""
        yield bed, routes


def core(bed: SimBed, name: str) -> NodeCore:
    found = bed.sim_nodes[name].core
    assert found is not None
    return found


def _other_way(node: NodeCore) -> None:
    node.forwarding.table = node.forwarding.table | {"c": "d"}


def _no_way(node: NodeCore) -> None:
    node.forwarding.table = {to: via for to, via in node.forwarding.table.items() if to != "c"}


def _other_super(node: NodeCore) -> None:
    assert node.routing is not None
    node.routing.acting = "c"


def _other_record(node: NodeCore) -> None:
    assert node.routing is not None
    known = node.routing.states.known
    known["c"] = Known(replace(known["c"].record, version=3), known["c"].stamp)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_other_way, "a sends what is for c by d, the shortest way is by b"),
        (_no_way, "a sends what is for c by None, the shortest way is by b"),
        (_other_super, "a takes c for the acting super node, it is b"),
        (_other_record, "of c, b has"),
    ],
)
def test_what_differs_is_told(spoil: Callable[[NodeCore], None], said: str) -> None:
    with at_rest() as (bed, routes):
        spoil(core(bed, "a"))
        assert said in routes.wrong()


def test_a_session_that_is_missing_is_told() -> None:
    with at_rest() as (bed, routes):
        bed.network.set_up("a", "b", up=False)
        bed.network.set_up("b", "a", up=False)
        bed.run(2.0)
        assert routes.wrong() == ""  # all know
        bed.network.set_up("a", "b", up=True)
        bed.network.set_up("b", "a", up=True)
        assert "has no session with" in routes.wrong()


def test_a_cut_is_timed() -> None:
    with at_rest() as (bed, routes):
        Faults(bed, [Fault(kind="remove-link", at=1.0, link=("a", "b"))], routes)
        bed.run(10.0)
        (seconds,) = routes.recoveries
        assert 0.2 < seconds < 1.5 and core(bed, "a").forwarding.table["b"] == "d"


def test_news_without_end_is_told() -> None:
    """By one neighbour to another in one session, and by a node of its own links."""
    with at_rest() as (bed, routes):
        neighbour = core(bed, "a").neighbours["b"]
        row = ["c", 7, 0, None, ["b", 1], None, None, None]
        for _ in range(TOLD_MAX):
            neighbour.send({"kind": "links", "rows": [row]})
        neighbour.send({"kind": "links", "rows": [row]})  # from within a node: the run fails by it, the node does not
        with pytest.raises(Violation, match="a told b version 7 of c's links 5 times in one session"):
            bed.run(1.0)
        with pytest.raises(Violation, match=r"a said \d+ words of its links, its sessions account for"):
            for version in range(1, 99):
                routes._row("a", "b", ["a", 2**62 + version, 0, None, [], None, None, None], routes._told["a", "b"])


def test_what_is_found_within_a_node_is_the_runs_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node neither meets it nor contains it: it would pass for a failure of its own."""

    def finds(self: RoutingWatch, name: str, neighbour: str, fields: dict[str, object]) -> None:
        raise Violation(f"{name} said {fields['kind']} to {neighbour}")

    with at_rest() as (bed, _):
        monkeypatch.setattr(RoutingWatch, "_said", finds)
        with pytest.raises(Violation, match=r"said \w+ to"):
            bed.run(5.0)
        for node in bed.nodes:
            contained = core(bed, node).containment
            assert (contained.peers_ended, contained.parts_failed) == (0, 0)


def test_a_message_that_goes_round_is_told() -> None:
    """Once where two tables differed, and no more until one changes."""
    with at_rest() as (_, routes):
        who = "@d", bytes(23) + b"\x05", False
        for _ in range(4):
            routes._travels("a", who)
        with pytest.raises(Violation, match="message 5 for d goes in circles: it came to a 5 times"):
            routes._travels("a", who)
        routes._change()
        routes._travels("a", who)
