"""Names of services, links that copy from a place on, and rules of a node's own, as the swarm draws them: last."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.errors import ConfigError
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.fences import ACTIONS, MADE, QUEUES, USERS, Fences, access_of
from holdfast_lab.canaries import plant
from holdfast_lab.draws import drawn_access, drawn_services
from holdfast_lab.draws.drawn_access import ACCESS_SHARE, GAPS, with_access, with_room_for_gaps
from holdfast_lab.draws.drawn_services import APART, SERVICES, with_services, with_services_apart
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import Draw, draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 150)
AWAY = "fenced-away@ber"


def test_a_share_of_the_seeds_has_each() -> None:
    plans = list(map(draw_plan, SEEDS))
    for kind, share in (("services", 0.1), ("copied", 0.1)):
        drawn = [
            plan for plan in plans if any(told["kind"] == kind and "called" not in told for told in plan.workloads)
        ]
        assert share / 3 < len(drawn) / len(plans) < share * 2, kind
        assert all(from_json(plan.to_json()) == plan for plan in drawn)
    apart = [plan for plan in plans if sum("called" in told for told in plan.workloads) == 2]
    assert 0.08 / 3 < len(apart) / len(plans) < 0.16
    assert all(from_json(plan.to_json()) == plan for plan in apart)
    ruled = [plan for plan in plans if plan.topology.access]
    assert ACCESS_SHARE / 5 < len(ruled) / len(plans) < ACCESS_SHARE
    for plan in ruled:
        assert from_json(plan.to_json()) == plan
        for node in plan.topology.access:
            plan.topology.config(node, dict.fromkeys(plan.topology.neighbours(node), "127.0.0.1:1")).validate()


def _no_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    none = {name: (0.0, draw) for name, (_, draw) in SERVICES.items()}
    monkeypatch.setattr(drawn_services, "SERVICES", none)


def _none_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_services, "APART", {name: (0.0, draw) for name, (_, draw) in APART.items()})


def _no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_access, "ACCESS_SHARE", 0.0)


@pytest.mark.parametrize(
    ("draw", "without_it"),
    [(with_services, _no_scenes), (with_access, _no_rules), (with_services_apart, _none_apart)],
)
def test_nothing_else_of_a_seed_changes(
    monkeypatch: pytest.MonkeyPatch, draw: Draw, without_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    draw_up_to(monkeypatch, draw)
    plans = list(map(draw_plan, SEEDS[:60]))
    without_it(monkeypatch)
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        theirs = without.topology
        topology = replace(plan.topology, queues=theirs.queues, access=theirs.access, logins=theirs.logins)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def test_no_virtual_hosts_are_drawn_where_rules_let_nobody_in() -> None:
    topology = line("ber fra")
    access = access_of(Random(1), [topology.login_of("fra", "ber")], "ber")
    plan = Plan(name="rules", topology=replace(topology, logins=True, access={"fra": access}), workloads=())
    assert not drawn_services.services_apart(Random(1), "fra", plan).queues
    assert drawn_services.services_apart(Random(1), "ber", plan).queues, "there is a place beside it"


def test_a_topology_with_virtual_hosts_that_nobody_may_enter_is_refused() -> None:
    topology = line("ber fra")
    access = access_of(Random(1), [topology.login_of("fra", "ber")], "ber")
    queues = {"fra": (QueueConfig(name="either", vhost="acme"),)}
    replace(topology, queues=queues).validate()
    replace(topology, access={"fra": access}).validate()
    with pytest.raises(ConfigError, match="no user may enter"):
        replace(topology, queues=queues, access={"fra": access}).validate()


def test_transactions_have_room_for_the_numbers_that_they_leave_open() -> None:
    few = replace(line("ber fra").limits, ranges_max=2)
    told: dict[str, Any] = {"kind": "transact", "node": "fra", "queue": "in", "address": "out"}
    plan = Plan(name="gaps", topology=replace(line("ber fra"), limits=few), workloads=(told,))
    assert with_room_for_gaps(plan, 1).topology.limits.ranges_max == GAPS
    assert with_room_for_gaps(replace(plan, workloads=()), 1).topology.limits.ranges_max == 2


# ---------------------------------------------------------------------------------------------------- rules


def test_both_readings_of_a_nodes_own_rules_agree() -> None:
    seen = set()
    for seed in range(200):
        fences = Fences.of(access_of(Random(seed), ["neighbour"], "ber"))
        for who in USERS:
            for queue in (*QUEUES, MADE, AWAY):
                for action in (*ACTIONS, "create", "relay"):
                    may = fences.may(who, action, queue)
                    seen.add((action, queue == AWAY, may))
                    assert (fences.why_not(who, action, queue, "") is None) is may, (seed, who, action, queue)
    assert seen == {(action, away, may) for action in (*ACTIONS, "create", "relay") for away in (False, True)
                    for may in (False, True)}  # fmt: skip


def run(seed: int) -> Any:
    topology = line("ber fra")
    access = access_of(Random(seed), [topology.login_of("fra", "ber")], "ber")
    topology = replace(topology, logins=True, access={"fra": access})
    fenced = {"kind": "fenced", "node": "fra", "messages": 120, "rate": 20.0, "life_s": 2.0, "away": "ber"}
    others = {"kind": "publish", "node": "ber", "address": "other@fra", "messages": 20, "name": "other"}
    takes = {"kind": "consume", "node": "fra", "queue": "other", "name": "other-out"}
    return execute(Plan(name="rules", topology=topology, workloads=(fenced, others, takes), safety_s=9.0), seed)


def test_a_node_decides_by_its_own_rules() -> None:
    results = [run(seed) for seed in (4, 5, 6)]
    assert [result.failure for result in results] == ["", "", ""]
    assert any(result.hops > 20 for result in results), "what may be relayed is, beside what others send"


def test_what_is_relayed_unasked_is_found() -> None:
    with plant("relayed-unasked"):
        failures = [run(seed).failure for seed in (1, 2, 3, 4, 5, 6)]
    assert any(" relay at " in failure for failure in failures), failures


def test_a_queue_that_is_made_unasked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resolver, "makes", lambda self, meant: False)
    failures = [run(seed).failure for seed in range(1, 12)]
    assert any("who may not create" in failure for failure in failures), failures
