"""Simulated nodes with a broker that is no node (holdfast_lab/sim/broker.py), and whether its checks can fail."""

import pytest

from holdfast_lab.canaries import plant
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import BrokerShape, line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute

pytestmark = pytest.mark.sim


def plan(**shape: object) -> Plan:
    topology = line("jfk hub")
    broker = BrokerShape(name="elsewhere", fetched="fetched", **shape)  # type: ignore[arg-type]
    topology = type(topology)(nodes=topology.nodes, links=topology.links, brokers={"jfk": (broker,)})
    sends = {"kind": "publish", "node": "jfk", "address": "work@elsewhere", "messages": 200, "name": "in"}
    takes = {"kind": "consume", "node": "jfk", "queue": "fetched", "credit": 10, "name": "out"}
    faults = tuple(Fault(kind=kind, at=at, node="jfk", seconds=0.2) for kind, at in (("crash", 0.3), ("power", 0.8)))
    faults += (Fault(kind="cut-clients", at=1.2, node="jfk", seconds=0.0),)
    return Plan(name="remote", topology=topology, workloads=(sends, takes), faults=faults, safety_s=3.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_broker_among_crashes_and_cuts(seed: int) -> None:
    drawn = plan(returns=0.05, rejects=0.05, cuts=10, lasts_s=0.2, offers=40)
    assert from_json(drawn.to_json()) == drawn
    result = execute(drawn, seed)
    assert result.ok, result.failure
    assert result.metrics["accepted"] == 240


def test_what_a_node_gives_up_as_a_connection_ends_is_found() -> None:
    with plant("remote-answered-for-many"):
        result = execute(plan(cuts=10, lasts_s=0.2, delay_s=0.05), 1)
    assert not result.ok and "its last copy is gone" in result.failure


@pytest.mark.parametrize("excess", ["link", "session", "connection"])
@pytest.mark.parametrize("bound", ["links_max", "sessions_max"])
def test_a_broker_that_takes_less_than_it_says_gets_all(bound: str, excess: str) -> None:
    few = {"session_links": 1} if bound == "sessions_max" else {}
    drawn = plan(offers=20, excess=excess, **{bound: 1}, **few)
    assert from_json(drawn.to_json()) == drawn
    result = execute(drawn, 1)
    assert result.ok, result.failure
    assert result.metrics["accepted"] == 220
