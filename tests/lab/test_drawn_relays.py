"""Topics that are passed on by static entries, and larger messages of federated topics: the last of all draws (ADR
0053)."""

from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_relays
from holdfast_lab.draws.drawn_relays import NODES_MAX, USUAL_SIZE, with_asked, with_larger, with_mixed, with_relays
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.swarm import draw_plan
from holdfast_lab.workloads.together import Together
from holdfast_lab.workloads.transact import Transact
from support.drawing import draw_up_to

SEEDS = range(1, 301)


def relayed(plan: Plan) -> bool:
    return any(told.get("name") == "relayed" for told in plan.workloads)


def test_a_share_of_the_seeds_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_relays)  # what is drawn later may bound a queue too
    plans = [plan for plan in map(draw_plan, SEEDS) if relayed(plan)]
    assert 3 < len(plans) < 40 and all(len(plan.topology.nodes) <= NODES_MAX for plan in plans)
    assert all(from_json(plan.to_json()) == plan for plan in plans)
    bounded = [plan for plan in plans if plan.topology.pacing]
    assert 0 < len(bounded) < len(plans)
    for plan in bounded:
        (told,) = [told for told in plan.workloads if told.get("name") == "relayed"]
        assert not _has_circle(told["entries"])


def _has_circle(entries: list[list[str]]) -> bool:
    left = [tuple(way) for way in entries]
    while left:
        ends = {there for _, there in left} - {here for here, _ in left}
        if not ends:
            return True
        left = [way for way in left if way[1] not in ends]
    return False


def test_a_share_of_the_federated_topics_has_larger_messages() -> None:
    sizes = [
        told["size"]
        for plan in map(draw_plan, SEEDS)
        for told in plan.workloads
        if told["kind"] == "federated" and told.get("mode") != "push"
    ]
    assert 0 < sum(size >= 300 for size in sizes) < len(sizes)


def test_a_share_of_the_federated_topics_has_static_entries_too() -> None:
    found = [
        (told["entries"], told.get("pushed", []))
        for plan in map(draw_plan, SEEDS)
        for told in plan.workloads
        if told["kind"] == "federated" and told.get("mode", "dynamic") == "dynamic"
    ]
    mixed = [(entries, pushed) for entries, pushed in found if pushed]
    assert 0 < len(mixed) < len(found)
    assert all(way in entries for entries, pushed in mixed for way in pushed)
    assert any(len(pushed) < len(entries) for entries, pushed in mixed)


def test_a_share_of_the_federated_topics_is_asked_for() -> None:
    found = [
        (told["entries"], told.get("pushed", []), told["asked"])
        for plan in map(draw_plan, SEEDS)
        for told in plan.workloads
        if told.get("asked")
    ]
    assert found and any(len(asked) < len(entries) for entries, _, asked in found)
    assert any(way[::-1] in entries and way[::-1] not in asked for entries, _, asked in found for way in asked)
    for entries, pushed, asked in found:
        assert all(way in entries and way not in pushed and way[::-1] not in pushed for way in asked)


def test_bounds_are_drawn_beside_transactions_that_do_not_say_how_large_their_messages_are() -> None:
    assert {Transact.size, Together.size} == {USUAL_SIZE}
    plan = draw_plan(485)
    assert any(told["kind"] == "transact" and "size" not in told for told in plan.workloads)
    assert any(bounds.capacity_bytes is not None for bounds in plan.topology.pacing.values())


def test_what_is_asked_for_shifts_nothing() -> None:
    for seed in SEEDS[:60]:
        plan = draw_plan(seed)
        bare = replace(plan, workloads=tuple({**told, "asked": []} for told in plan.workloads))
        again = with_asked(bare, seed)
        assert [{**told, "asked": []} for told in again.workloads] == list(bare.workloads)
        assert replace(again, workloads=()) == replace(plan, workloads=())


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_relays)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_relays, "SHARE", 0.0)
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        topology = replace(plan.topology, pacing=without.topology.pacing)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
        assert replace(with_larger(without, seed), workloads=()) == replace(without, workloads=())
        mixed = with_mixed(without, seed)
        assert replace(mixed, workloads=()) == replace(without, workloads=())
        assert [{**told, "pushed": []} for told in mixed.workloads] == [
            {**told, "pushed": []} for told in without.workloads
        ]
