"""Windows between nodes, which let all that a seed sends come in time: they are drawn last."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.settings.limits import Limits
from holdfast_lab.draws.drawn_windows import window_needed, with_windows
from holdfast_lab.plan.networks import LinkShape, line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs import swarm
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)
SATELLITE = LinkShape(delay_s=0.475)
"""A message takes a second, with its answer and commits; 200 come in time, one after the other."""
TOO_SMALL = 3_231_571
"""Its nodes sent one message at a time, and 700 over a satellite to the same node."""


def sent(node: str, address: str, messages: int, **told: Any) -> dict[str, Any]:
    return {"kind": "publish", "node": node, "address": address, "messages": messages, **told}


def needed(workloads: Iterable[dict[str, Any]], names: str = "ber fra jfk") -> int:
    return window_needed(Plan(name="windows", topology=line(names, SATELLITE), workloads=tuple(workloads)))


def test_what_several_send_over_one_link_to_one_node_comes_in_time_together() -> None:
    """In the network of the seed that failed, each came in time by itself."""
    plan = draw_plan(TOO_SMALL)
    paced, purged = [
        told for told in plan.workloads if told["node"] == "nrt" and str(told.get("address")).endswith("@fra")
    ]
    (link,) = [link for link in plan.topology.links if {link.one, link.other} == {"nrt", "fra"}]
    limits = plan.topology.limits
    least_s = 2 * link.there.delay_s * (paced["messages"] + purged["messages"])
    assert least_s > plan.liveness_s, "one after the other"
    assert least_s / min(limits.hop_in_doubt_max, limits.credit) < plan.liveness_s / 2


def test_all_that_goes_over_a_link_to_a_node_shares_a_window() -> None:
    assert needed([sent("ber", "work@fra", 200)]) == 1
    assert needed([sent("ber", "work@fra", 100, producers=2), sent("ber", "other@fra", 1)]) == 2
    assert needed([sent("ber", "work@jfk", 200), sent("fra", "work@jfk", 1)]) == 2, "it passes there"
    assert needed([sent("ber", "work@jfk", 200), sent("ber", "work@fra", 200)]) == 1, "each node has one"
    assert needed([sent("ber", "work@ber", 1_000), sent("ber", "service", 1_000)]) == 0, "they go over no link"
    assert needed([sent("ber", "work@elsewhere", 1_000)]) == 0, "it is no node of the network"


def test_what_is_passed_on_from_a_queue_counts_again() -> None:
    comes = sent("ber", "first@ber", 401)
    moves = {"kind": "transact", "node": "ber", "queue": "first", "address": "second@fra"}
    assert needed([comes, moves]) == 3
    ring = [["ber", "first", "second@fra", "move"], ["fra", "second", "first@ber", "move"]]
    assert needed([comes, {"kind": "linked", "node": "ber", "links": ring}]) == 3
    assert needed([comes, {"kind": "linked", "node": "ber", "links": ring, "rounds": {"first@ber": 2}}]) == 5


def test_transactions_topics_and_links_without_an_address_count_what_they_send() -> None:
    assert needed([{**sent("ber", "work@fra", 0), "transactions": 21, "most": 10}]) == 2
    assert needed([{"kind": "addressed", "node": "ber", "addresses": ["one@ber", "two@fra"], "messages": 201}]) == 2
    reads = [{"node": "fra"}, {"node": "fra"}, {"node": "ber"}]
    told = {"kind": "federated", "publishers": ["ber", "jfk"], "subscriptions": reads, "messages": 200}
    assert needed([told]) == 1
    assert needed([told, sent("ber", "work@fra", 1)]) == 2


def test_windows_that_are_wide_enough_stay_and_others_are_no_wider_than_needed() -> None:
    topology = line("ber fra", SATELLITE)
    for limits, expected in (
        (Limits(credit=1, hop_in_doubt_max=50), (2, 50)),
        (Limits(credit=7, hop_in_doubt_max=1), (7, 2)),
        (Limits(credit=2, hop_in_doubt_max=2), (2, 2)),
    ):
        plan = Plan(
            name="windows",
            topology=replace(topology, limits=limits),
            workloads=(sent("ber", "work@fra", 400),),
        )
        found = with_windows(plan, 1).topology.limits
        assert (found.credit, found.hop_in_doubt_max) == expected


def test_few_seeds_get_larger_windows_and_nothing_else_of_them_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [*SEEDS, TOO_SMALL]
    assert swarm.DRAWS[-1] is with_windows, "it looks at all that is sent"
    plans = [draw_plan(seed) for seed in seeds]
    draw_up_to(monkeypatch, swarm.DRAWS[-2])
    without = [draw_plan(seed) for seed in seeds]
    assert 0 < sum(plan != before for plan, before in zip(plans, without, strict=True)) < len(seeds) / 50
    for plan, before in zip(plans, without, strict=True):
        old, new = before.topology.limits, plan.topology.limits
        assert new.credit >= old.credit and new.hop_in_doubt_max >= old.hop_in_doubt_max
        limits = replace(old, credit=new.credit, hop_in_doubt_max=new.hop_in_doubt_max)
        assert plan == replace(before, topology=replace(before.topology, limits=limits))
        if plan.topology.routing is None:
            assert min(new.credit, new.hop_in_doubt_max) >= window_needed(plan)
        else:
            assert plan == before
