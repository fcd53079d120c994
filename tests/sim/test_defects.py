"""Nodes whose own functions raise now and then lose, double and reorder nothing (docs/adr/0019-containment.md)."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.endpoints.producer import ProducerLink
from holdfast_lab.draws.drawn_static import plan_of
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.sim_faults import Faults
from holdfast_lab.sim.defects import _SHARED, PLACES
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import Consume, Publish
from support import today

pytestmark = pytest.mark.sim


def drawn(count: int) -> list[int]:
    """The first seeds whose plans have defects."""
    found: list[int] = []
    seed = 1
    while len(found) < count:
        if any(fault.kind == "defect" for fault in plan_of(seed).faults):
            found.append(seed)
        seed += 1
    return found


def functions(tree: ast.AST, within: str = "") -> Iterator[str]:
    """Qualified names of a module's functions and methods."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{within}{node.name}.")


def test_every_place_is_there() -> None:
    """A function that was renamed would have no defect planted, or one where none may be."""
    modules = Path(holdfast.__file__).parent.rglob("*.py")
    known = {name for path in modules for name in functions(ast.parse(path.read_text(encoding="utf-8")))}
    assert not {*PLACES, *_SHARED} - known


def test_networks_with_defects_lose_nothing() -> None:
    """Some of the first seeds that draw them, others each day; `make swarm` draws more."""
    for seed in today.some(drawn(15), 3):
        result = execute(plan_of(seed), seed)
        assert not result.failure, f"seed {seed}: {result.failure}"


def test_defects_everywhere_end_connections_and_no_node() -> None:
    """Any event may raise for four seconds; then it is over, and everything arrives."""
    topology = Topology(
        nodes=("jfk", "ord", "hub"),
        links=(Link(one="jfk", other="ord"), Link(one="ord", other="hub")),
        forwarding={"jfk": {"hub": "ord"}, "hub": {"jfk": "ord"}},
    )
    with SimBed(topology, 7) as bed:
        bed.start()
        Consume(node="hub", queue="work", consumers=2).start(bed)
        Publish(node="jfk", address="work@hub", messages=200, rate=40.0).start(bed)
        plan = [Fault(kind="defect", at=0.1, node=name, seconds=4.0, amount=1.0) for name in topology.nodes]
        faults = Faults(bed, plan)
        bed.run(1.0)
        defects = [node.defects for node in bed.sim_nodes.values() if node.defects is not None]
        assert len(defects) == len(topology.nodes)
        bed.run(6.0)
        faults.heal()
        assert bed.run(120.0, bed.finished), f"{len(bed.history.outstanding)} messages never came"
        bed.run(130.0)  # a part that failed rests for a minute at most, and then its copy goes
        bed.ledger.at_rest()
        assert not bed.history.excused and len(bed.history.received) == 200  # none doubled: the ledger looks at that
        raised = sum((item.raised for item in defects), start=Counter[str]())
        assert raised.total() > 30 and set(raised) <= set(PLACES) and len(raised) > 10
        cores = [node.core for node in bed.sim_nodes.values() if node.core is not None]
        assert sum(core.containment.peers_ended for core in cores) > 10
        assert {node.lives for node in bed.sim_nodes.values()} == {1}


@pytest.mark.parametrize("fault", ["crash", "power", "stop"])
def test_what_a_life_contained_is_counted_when_the_next_has_begun(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect that was contained fails the run, though the node was started again since."""
    delivered = ProducerLink.delivered
    raised: list[bool] = []

    def fail_once(self: ProducerLink, delivery: Any) -> None:
        if not raised:
            raised.append(True)
            raise RuntimeError("for once")
        delivered(self, delivery)

    monkeypatch.setattr(ProducerLink, "delivered", fail_once)
    plan = Plan(
        name="lives",
        topology=Topology(nodes=("jfk",), links=()),
        workloads=(
            {"kind": "publish", "node": "jfk", "address": "work", "messages": 40, "rate": 10.0},
            {"kind": "consume", "node": "jfk", "queue": "work"},
        ),
        faults=(Fault(kind=fault, at=2.0, node="jfk", seconds=1.0),),
        safety_s=5.0,
    )
    result = execute(plan, 1)
    assert raised and result.failure == "Violation: jfk contained 1 failures of its own code; its log has them"


def test_what_was_contained_comes_before_what_followed_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each message ends its own connection nothing is ever done; the run says why."""

    def fail(self: ProducerLink, delivery: Any) -> None:
        raise RuntimeError("each time")

    monkeypatch.setattr(ProducerLink, "delivered", fail)
    plan = Plan(
        name="never",
        topology=Topology(nodes=("jfk",), links=()),
        workloads=(
            {"kind": "publish", "node": "jfk", "address": "work", "messages": 1, "rate": 10.0},
            {"kind": "consume", "node": "jfk", "queue": "work"},
        ),
        safety_s=1.0,
        liveness_s=3.0,
    )
    assert "failures of its own code" in execute(plan, 1).failure
