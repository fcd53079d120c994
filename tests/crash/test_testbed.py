"""The testbed: plans of the simulator on real nodes, killed and cut, and the same plans in the simulator."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.queues import QueueConfig
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import LinkShape, Topology, line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.real.testbed import TestBed
from holdfast_lab.real.testbed_run import run_on_testbed
from holdfast_lab.runs.run import execute

pytestmark = pytest.mark.crash

NODES: Topology = replace(line("jfk hub lhr"), queues={"lhr": (QueueConfig(name="flights", order="strict"),)})
PUBLISH = {"kind": "publish", "node": "jfk", "address": "flights@lhr", "producers": 2, "messages": 300, "rate": 150.0}
CONSUME = {"kind": "consume", "node": "lhr", "queue": "flights", "consumers": 2}
PLAN = Plan(
    name="real",
    topology=NODES,
    workloads=(PUBLISH, CONSUME),
    faults=(
        Fault(kind="crash", at=0.5, node="hub", seconds=0.3),
        Fault(kind="silent-cut", at=1.4, link=("hub", "lhr")),
        Fault(kind="partition", at=1.6, link=("jfk", "hub"), seconds=0.4),
    ),
    safety_s=8.0,
    liveness_s=30.0,
)


async def test_a_plan_holds_on_real_nodes_and_in_the_simulator(tmp_path: Path) -> None:
    simulated = await asyncio.to_thread(execute, PLAN, 1)  # it has a loop of its own
    assert simulated.ok, simulated.failure
    real = await run_on_testbed(PLAN, tmp_path, 1)
    assert real.ok, f"{real.failure}; {real.notes}"
    for name in ("offered", "accepted", "received"):
        assert real.metrics[name] == simulated.metrics[name] == 600
    assert real.metrics["faults"] == {"crash": 1, "partition": 1, "silent-cut": 1}
    assert [note.text for note in real.notes if note.place == "hub"] == ["life 1", "life 2"]


async def test_messages_of_virtual_hosts_cross_between_real_nodes(tmp_path: Path) -> None:
    queues = tuple(QueueConfig(name="flights", vhost=host, order="strict") for host in ("", "acme"))
    topology = replace(NODES, queues={"lhr": queues}, crossing=("acme",))
    workloads = tuple(
        {**told, "vhost": host, "name": f"{told['kind']}-{host or 'default'}"}
        for host in ("", "acme")
        for told in (PUBLISH, CONSUME)
    )
    result = await run_on_testbed(PLAN.shrunk(topology=topology, workloads=workloads), tmp_path, 1)
    assert result.ok, f"{result.failure}; {result.notes}"
    assert result.metrics["accepted"] == result.metrics["received"] == 1_200


async def test_what_goes_wrong_on_real_nodes_is_the_verdict(tmp_path: Path) -> None:
    """Nobody consumes: after the faults the run says what was not shown, and leaves nothing running."""
    plan = PLAN.shrunk(workloads=({**PUBLISH, "messages": 5, "producers": 1},), faults=(), safety_s=0.5, liveness_s=0.5)
    result = await run_on_testbed(plan, tmp_path, 1)
    assert not result.ok
    assert "not done 0.5 s after all faults were healed: 5 accepted messages not shown" in result.failure


async def test_what_real_nodes_cannot_do_is_refused_before_anything_starts(tmp_path: Path) -> None:
    power = PLAN.shrunk(faults=(Fault(kind="power", at=0.1, node="hub", seconds=0.1),))
    with pytest.raises(ConfigError, match=r"^invalid fault 'power' in a run on real nodes; expected one of crash, "):
        await run_on_testbed(power, tmp_path / "run", 1)
    with pytest.raises(ConfigError, match=r"invalid value 'ams' for fault .* node; expected a node's name"):
        await run_on_testbed(PLAN.shrunk(faults=(Fault(kind="crash", at=0.1, node="ams"),)), tmp_path / "run", 1)
    with pytest.raises(ConfigError, match="drifts"):
        await run_on_testbed(PLAN.shrunk(drifts={"hub": 0.1}), tmp_path / "run", 1)
    computed = PLAN.shrunk(topology=replace(NODES, routing=RoutingConfig()))
    with pytest.raises(ConfigError, match=r"plan 'real' has routing, which real nodes do not support"):
        await run_on_testbed(computed, tmp_path / "run", 1)
    with pytest.raises(ConfigError, match=r"invalid value 0\.1 for link jfk to hub loss"):
        TestBed(line("jfk hub", LinkShape(loss=0.1)), tmp_path / "run", 1)
    assert not (tmp_path / "run").exists()
