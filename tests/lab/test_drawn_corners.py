"""Corners that no seed had reached, and configurations that change in a run, as the swarm draws them: last."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.fences import Fences, access_of, redrawn
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.canaries import plant
from holdfast_lab.draws import drawn_changes, drawn_corners
from holdfast_lab.draws.drawn_changes import LEAVES_SHARE, with_changed_rules, with_departures
from holdfast_lab.draws.drawn_corners import CORNERS, LISTENERS_BOUND, with_corners
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import Draw, draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 150)


def has(scene: str, plan: Plan) -> bool:
    name = scene.replace(" ", "-")
    return any(told.get("name") in (name, f"{name}-in") for told in plan.workloads)


def changes(plan: Plan, kind: str) -> int:
    return sum(fault.kind == kind for fault in plan.faults)


def test_a_share_of_the_seeds_has_each() -> None:
    plans = list(map(draw_plan, SEEDS))
    for scene, (share, _) in CORNERS.items():
        drawn = [plan for plan in plans if has(scene, plan)]
        assert share / 5 < len(drawn) / len(plans) < share * 2, scene
        assert all(from_json(plan.to_json()) == plan for plan in drawn)
    assert sum(changes(plan, "change-rules") > 0 for plan in plans) > 1
    departs = [plan for plan in plans if changes(plan, "depart")]
    assert LEAVES_SHARE / 5 < len(departs) / len(plans) < LEAVES_SHARE
    assert all(from_json(plan.to_json()) == plan for plan in departs)


def _no_corners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_corners, "CORNERS", {name: (0.0, draw) for name, (_, draw) in CORNERS.items()})


def _no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_changes, "RULES_SHARE", 0.0)


def _no_departures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_changes, "LEAVES_SHARE", 0.0)


@pytest.mark.parametrize(
    ("draw", "without_it"),
    [(with_corners, _no_corners), (with_changed_rules, _no_changes), (with_departures, _no_departures)],
)
def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch, draw: Draw, without_it: Any) -> None:
    draw_up_to(monkeypatch, draw)
    plans = list(map(draw_plan, SEEDS[:40]))
    without_it(monkeypatch)
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert draw(without, seed) == without
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
        assert plan.topology.nodes[: len(without.topology.nodes)] == without.topology.nodes
        assert plan.topology.links[: len(without.topology.links)] == without.topology.links
        assert set(without.knobs.items()) <= set(plan.knobs.items())
        same: dict[str, Any] = {"topology": without.topology, "workloads": (), "faults": (), "knobs": {}}
        assert replace(plan, **same) == replace(without, **same)


def run(told: dict[str, Any], *more: dict[str, Any], **given: Any) -> Any:
    topology = line("ber fra")
    if "queues" in given:
        topology = replace(topology, queues=given.pop("queues"))
    return execute(Plan(name="corners", topology=topology, workloads=(told, *more), safety_s=4.0, **given), 1)


LAGS = {"kind": "lagging", "node": "fra", "queue": "topic/lagging", "messages": 20}


def test_a_listener_at_its_bound_keeps_the_latest() -> None:
    told = {"knobs": {LISTENERS_BOUND: 5}}
    result = run(LAGS, **told)
    assert result.failure == ""
    assert result.metrics["lagging-1.judged"] == 3 and result.metrics["lagging-1.dropped"] > 5
    with plant("newest-dropped"):
        assert "which were among the latest" in run(LAGS, **told).failure


def test_what_a_link_moves_into_memory_comes_there() -> None:
    rooms = tuple(QueueConfig(name=name, durable=False, messages_max=20, order="none") for name in ("from", "to"))
    told = {"kind": "in-memory", "node": "fra", "queue": "to", "through": "from", "messages": 60, "in_doubt": 5}
    result = run(told, queues={"fra": rooms})
    assert result.failure == "" and result.metrics["in-memory-1.shown"] == 60
    with plant("lost-into-memory"):
        assert run(told, queues={"fra": rooms}).failure


DEPARTS = (
    Fault(kind="partition", at=0.5, link=("ber", "fra"), seconds=2.5),
    Fault(kind="depart", at=1.0, link=("ber", "fra"), seconds=2.0),
)


def test_mail_for_a_node_that_left_is_ended_and_its_numbers_are_not_waited_for() -> None:
    sends = {"kind": "publish", "node": "ber", "address": "mail@fra", "messages": 60, "rate": 30.0}
    takes = {"kind": "consume", "node": "fra", "queue": "mail"}
    ends = {"kind": "departed", "node": "ber", "gone": "fra", "pause_s": 0.2}
    strict = {"fra": (QueueConfig(name="mail", order="strict"),)}
    result = run(sends, takes, ends, queues=strict, faults=DEPARTS)
    assert result.failure == ""
    assert result.metrics["dead"] > 0 and result.metrics["departed-3.200"] > 0 and result.metrics["departed-3.409"] > 0
    with plant("numbers-given-up"):
        assert "not done" in run(sends, takes, ends, queues=strict, faults=DEPARTS, liveness_s=20.0).failure


def test_other_rules_are_drawn_for_the_same_users_and_hold_at_once() -> None:
    random = SeedTree(3).stream("rules")
    access = access_of(random, ("ber",), "ber")
    again = redrawn(random, access)
    assert again.rules[-1] in access.rules and again.groups == access.groups and again.rules != access.rules
    fences = Fences.of(access)
    assert not fences.changed_since(-1e9)
    fences.change(again, 10.0)
    assert fences.rules == Fences.of(again).rules
    assert fences.changed_since(9.0) and fences.changed_since(10.0) and not fences.changed_since(10.1)


def test_a_node_decides_by_the_rules_that_it_was_told_last() -> None:
    random = SeedTree(1).stream("rules")
    topology = replace(line("ber fra"), access={"fra": access_of(random, ("user ber+fra", "ber"), "ber")}, logins=True)
    told = {"kind": "fenced", "node": "fra", "name": "fenced", "messages": 100, "away": "ber", "rate": 25.0}
    faults = tuple(Fault(kind="change-rules", at=at, node="fra") for at in (0.8, 1.6, 2.4))
    plan = Plan(name="rules", topology=topology, workloads=(told,), faults=faults, safety_s=4.0)
    assert execute(plan, 1).failure == ""
    with plant("first-change-alone"):
        assert " at fenced-" in execute(plan, 1).failure
