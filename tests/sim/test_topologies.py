"""Nodes of the swarm take up other topology files while they run (drawn_topologies.py, runs/changed_files.py)."""

from dataclasses import replace

import pytest

from holdfast.federation.settings import Entry
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.queues import QueueConfig
from holdfast_lab.draws.drawn_topologies import with_topologies
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs import swarm
from holdfast_lab.runs.changed_files import ChangedFiles
from holdfast_lab.runs.routing_watch import watch_routes
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from holdfast_lab.sim.sim_bed import SimBed
from support.drawing import draw_up_to

pytestmark = pytest.mark.sim

SEEDS = range(1, 60)
LIGHT = 40
"""A seed with such changes that runs in a few seconds."""
RING = Topology(
    nodes=("a", "b", "c", "d"),
    links=tuple(Link(one=one, other=other) for one, other in ("ab", "bc", "cd", "da")),
    keepalive_s=0.2,
    hold_time_s=0.6,
    routing=RoutingConfig(heartbeat_s=0.5),
    supers=("b",),
    queues={"c": (QueueConfig(name="q"),)},
)


def changes(plan: Plan) -> int:
    return sum(fault.kind == "change-topology" for fault in plan.faults)


def _at(fault: Fault) -> float:
    return fault.at


def test_a_share_of_seeds_changes_its_files_and_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_topologies)
    after = {seed: draw_plan(seed) for seed in SEEDS}
    monkeypatch.setattr(swarm, "DRAWS", swarm.DRAWS[:-1])
    before = {seed: draw_plan(seed) for seed in SEEDS}
    assert 3 <= sum(changes(plan) > 0 for plan in after.values()) <= 20
    for seed, plan in after.items():
        assert changes(plan) == 0 or plan.topology.routing is not None
        others = tuple(fault for fault in plan.faults if fault.kind != "change-topology")
        assert plan.shrunk(faults=others) == before[seed].shrunk(faults=tuple(sorted(before[seed].faults, key=_at)))


def test_a_seed_whose_files_change_ends_well() -> None:
    plan = draw_plan(LIGHT)
    assert changes(plan) > 0
    result = execute(plan, LIGHT)
    assert result.ok, result.failure
    assert result.metrics["faults"]["change-topology"] > 0


def test_all_arrives_while_links_leave_the_files_of_running_and_of_killed_nodes() -> None:
    publish = {"kind": "publish", "node": "a", "address": "q@c", "messages": 80, "size": 200, "producers": 1}
    workloads = ({**publish, "rate": 20.0}, {"kind": "consume", "node": "c", "queue": "q"})
    changed = (
        Fault(kind="change-topology", at=0.3, link=("a", "b"), seconds=2.0),
        Fault(kind="change-topology", at=0.5, link=("b", "c"), seconds=1.0, amount=8.0),
        Fault(kind="crash", at=0.8, node="a", seconds=0.4),
        Fault(kind="change-topology", at=2.6, link=("a", "d"), seconds=1.0),
        Fault(kind="change-topology", at=2.7, link=("c", "d"), seconds=0.5),
    )
    result = execute(Plan(name="files", topology=RING, workloads=workloads, faults=changed), 1)
    assert result.ok, result.failure
    assert result.metrics["faults"]["change-topology"] == 4


def test_a_table_that_is_not_that_of_the_new_files_is_found() -> None:
    with SimBed(RING, 1) as bed:
        routes = watch_routes(bed)
        assert routes is not None
        files = ChangedFiles(bed, routes)
        bed.start()
        bed.run(5.0)
        assert routes.wrong() == ""
        node, core = bed.sim_nodes["a"], bed.sim_nodes["a"].core
        assert core is not None and core.forwarding.table["c"] == "b"
        posted, node.post = node.post, lambda event: None  # it does not read its file
        dearer = Fault(kind="change-topology", at=0.0, link=("a", "b"), amount=9.0)
        without = replace(dearer, amount=0.0)
        assert files.change(dearer)
        assert routes.wrong() == "a sends what is for b by b, the shortest way is by d"
        files.change_back(dearer)
        assert files.change(without) and "the shortest way is by d" in routes.wrong()
        node.post = posted
        files.change_back(without)
        assert files.change(without)
        bed.run(3.0)
        assert routes.wrong() == "" and set(core.forwarding.table.values()) == {"d"}
        node.crash()
        node.start()
        bed.run(5.0)
        assert node.core is not None and "b" not in node.core.neighbours, "it has the new file"
        files.heal()
        bed.run(5.0)
        assert routes.wrong() == "" and node.core.forwarding.table["c"] == "b"


def test_a_link_that_topics_go_over_stays() -> None:
    with SimBed(RING, 1) as bed:
        node, files = bed.sim_nodes["a"], ChangedFiles(bed, None)
        node.config = replace(node.config, federation=(Entry("news", "b"),))
        assert not files.change(Fault(kind="change-topology", at=0.0, link=("a", "b")))
        assert files.change(Fault(kind="change-topology", at=0.0, link=("a", "d")))
        assert [item.name for item in node.config.neighbours] == ["b"]
