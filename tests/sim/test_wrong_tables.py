"""Tables that a fault made wrong, in the swarm: right again within three exchanges, with all messages delivered."""

from dataclasses import replace

import pytest

from holdfast.routing.settings import RoutingConfig
from holdfast_lab.draws.drawn_routing import plan_of
from holdfast_lab.plan.faults import Fault
from holdfast_lab.runs.routing_watch import watch_routes
from holdfast_lab.runs.sim_faults import Faults
from holdfast_lab.runs.swarm import ROUTING, run_seeds
from holdfast_lab.sim.sim_bed import SimBed
from sim.test_routing_watch import RING
from support import today

pytestmark = pytest.mark.sim

SPOILT = [seed for seed in range(100) if any(fault.kind == "wrong-tables" for fault in plan_of(seed).faults)]
SMALL = [seed for seed in SPOILT if len(plan_of(seed).topology.nodes) <= 16]


def test_a_share_of_the_seeds_draws_them() -> None:
    assert 10 <= len(SPOILT) <= 40


def test_spoilt_tables_in_the_swarm() -> None:
    report = run_seeds(today.some(SMALL, 1), which=ROUTING, jobs=2)
    assert not report.failed, "\n".join(report.lines())


@pytest.mark.parametrize(("refresh_s", "right"), [(2.0, True), (3_600.0, False)])
def test_without_comparison_they_stay_wrong(refresh_s: float, right: bool) -> None:
    """The checker sees it: nothing but the comparison sets them right where no super node compares."""
    topology = replace(RING, supers=(), routing=RoutingConfig(heartbeat_s=0.5, refresh_s=refresh_s))
    with SimBed(topology, 3) as bed:
        routes = watch_routes(bed)
        assert routes is not None
        bed.start()
        bed.run(5.0)
        faults = [Fault(kind="wrong-tables", at=0.1, node=name, amount=1.0) for name in topology.nodes[:2]]
        Faults(bed, faults, routes)
        bed.run(6.2)
        assert (routes.wrong() == "") is right
