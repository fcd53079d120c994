"""Users with rules of their own: what the workload finds, and how its rules are read."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.access import lists
from holdfast.endpoints.addresses import resolver
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.fences import ACTIONS, ROOT, USERS, Fences
from holdfast_lab.canaries import plant
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute

QUEUES = tuple(QueueConfig(name=f"fenced-{number}") for number in range(3))


def run(seed: int = 1, **told: Any) -> Any:
    workload = {"kind": "fenced", "node": "fra", "messages": 150, "rate": 20.0, "life_s": 2.0, **told}
    topology = replace(line("ber fra"), queues={"fra": QUEUES})
    return execute(Plan(name="fenced", topology=topology, workloads=(workload,)), seed)


def count(result: Any, name: str) -> float:
    return float(result.metrics.get(f"fenced-1.{name}", 0))


def test_both_readings_of_the_rules_agree() -> None:
    seen = set()
    for seed in range(300):
        fences = Fences.drawn(Random(seed))
        for who in (*USERS, ROOT):
            for queue in ("fenced-0", "fenced-1", "fenced-2"):
                for action in ACTIONS:
                    may = fences.may(who, action, queue)
                    seen.add((who, may))
                    assert (fences.why_not(who, action, queue, "") is None) is may, (seed, who, action, queue)
    assert len(seen) == 2 * len(USERS) + 1


def test_who_may_is_served_and_who_may_not_is_refused_in_each_way() -> None:
    results = [run(seed) for seed in (1, 2, 3)]
    assert all(result.ok for result in results), [result.failure for result in results]
    for what in ("a message", "a sender", "a receiver", "a browser"):
        for how in ("allowed", "refused"):
            assert sum(count(result, f"{what} {how}") for result in results) > 0, (what, how)
    assert all(count(result, f"shown to {ROOT}") > 0 for result in results)


@pytest.mark.parametrize("what", ["anonymous", "browser", "closest"])
def test_what_is_not_asked_or_not_read_right_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "browser":  # who may receive may browse, and the other way round
        monkeypatch.setattr(resolver, "browses", lambda source: False)
    elif what == "closest":
        monkeypatch.setattr(lists.Pattern, "matches", lambda self, address: True)
    if what != "anonymous":
        results = [run(seed) for seed in range(1, 6)]
        assert any(not result.ok and ", who may" in result.failure for result in results)
        return
    with plant("unasked-without-an-address"):
        results = [run(seed) for seed in (1, 2, 3)]
    assert any(not result.ok and "a message of" in result.failure for result in results)
