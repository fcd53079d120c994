"""Virtual hosts in the swarm (docs/adr/0071)."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import History, Violation
from holdfast_lab.canaries import plant
from holdfast_lab.draws import drawn_hosts
from holdfast_lab.draws.drawn_hosts import CROSSED, with_crossing, with_hosts
from holdfast_lab.draws.drawn_scenes import renewed_in
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs import swarm
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support import today
from support.drawing import draw_up_to

SEEDS = range(1, 60)


def has_hosts(plan: Plan) -> bool:
    return any(told["kind"] == "apart" for told in plan.workloads)


@pytest.mark.sim
def test_seeds_with_virtual_hosts() -> None:
    """One of three each day: it ends well, and the programs have looked at messages, and asked for others' queues in
    vain."""
    seeds = [seed for seed in SEEDS if has_hosts(draw_plan(seed))]
    assert len(seeds) >= 3, "a share of the seeds has virtual hosts"
    seen: Counter[str] = Counter()
    for seed in today.some(seeds[:3], 1):
        result = execute(draw_plan(seed), seed)
        assert result.ok, f"seed {seed}: {result.failure}"
        for name, value in result.metrics.items():
            workload, _, what = name.rpartition(".")
            if workload.startswith("apart-"):
                seen[what] += int(value)
    assert seen["refused"] and seen["seen"], seen


def test_hosts_shift_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of a seed is as it is without them (docs/adr/0053)."""
    draw_up_to(monkeypatch, with_hosts)
    drawn = {seed: draw_plan(seed) for seed in range(1, 30)}
    monkeypatch.setattr(swarm, "DRAWS", tuple(draw for draw in swarm.DRAWS if draw is not with_hosts))
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert not Counter(without.faults) - Counter(plan.faults)
        assert has_hosts(plan) or plan == without


def test_a_share_of_the_seeds_has_hosts_that_cross_and_nothing_else_of_them_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw_up_to(monkeypatch, with_crossing)
    drawn = {seed: draw_plan(seed) for seed in range(1, 100)}
    crossing = {seed: plan for seed, plan in drawn.items() if plan.topology.crossing}
    share = drawn_hosts.CROSSING_SHARE
    assert share / 2 < len(crossing) / len(drawn) < share * 2
    assert sum(fault.kind == "earlier-version" for plan in crossing.values() for fault in plan.faults) > len(crossing)
    monkeypatch.setattr(drawn_hosts, "CROSSING_SHARE", 0.0)
    assert any(renewed_in(plan) for plan in crossing.values())
    for seed, plan in crossing.items():
        crossed = [queue for queues in plan.topology.queues.values() for queue in queues if queue.name == CROSSED]
        assert not renewed_in(plan) or all(queue.order != "strict" for queue in crossed), seed
        assert from_json(plan.to_json()) == plan
        without = draw_plan(seed)
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
        for node, found in plan.topology.queues.items():
            queues = without.topology.queues.get(node, ())
            assert found[: len(queues)] == queues
        topology = replace(plan.topology, queues=without.topology.queues, crossing=())
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())


def crossed() -> Plan:
    """Messages of three hosts over a node that runs as an earlier version meanwhile."""
    queues = tuple(QueueConfig(name="crossed", vhost=host, order="strict") for host in drawn_hosts.NAMES)
    topology = replace(line("jfk via hub"), crossing=drawn_hosts.NAMES[1:], queues={"hub": queues})
    workloads: list[dict[str, Any]] = []
    for host in drawn_hosts.NAMES:
        sends = {"kind": "publish", "node": "jfk", "address": "crossed@hub", "messages": 50, "rate": 20.0}
        takes = {"kind": "consume", "node": "hub", "queue": "crossed"}
        workloads += [{**sends, "vhost": host, "name": f"{host}-in"}, {**takes, "vhost": host, "name": f"{host}-out"}]
    faults = (Fault(kind="earlier-version", at=1.0, node="via", seconds=2.0),)
    return Plan(name="crossed", topology=topology, workloads=tuple(workloads), faults=faults, safety_s=6.0)


def test_each_message_ends_in_its_own_host_over_a_node_of_an_earlier_version() -> None:
    result = execute(crossed(), 1)
    assert result.ok, result.failure
    assert result.metrics["accepted"] == result.metrics["received"] == 150
    assert result.metrics["faults"] == {"earlier-version": 1}


def test_a_host_that_is_forgotten_at_a_hop_is_found() -> None:
    with plant("host-lost-on-the-way"):
        result = execute(crossed(), 1)
    assert "was sent in virtual host" in result.failure and "in the default host" in result.failure


@pytest.mark.parametrize(("sent", "found"), [("acme", ""), ("", "acme"), ("acme", "globex")])
def test_a_message_out_of_its_host_is_a_violation(sent: str, found: str) -> None:
    history = History()
    key = b"000-00000001"
    history.offer(key, f"{sent}\0work@hub" if sent else "work@hub")
    place = f"{found}\0work at hub" if found else "work at hub"
    with pytest.raises(Violation, match=r"was sent in .*, and was shown at work at hub in"):
        history.receive(key, place, marked=False)
