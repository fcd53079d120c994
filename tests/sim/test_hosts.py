"""Virtual hosts in the swarm (docs/adr/0071)."""

from collections import Counter

import pytest

from holdfast_lab.base.client_history import History, Violation
from holdfast_lab.draws.drawn_hosts import with_hosts
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs import swarm
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan

SEEDS = range(1, 60)


def has_hosts(plan: Plan) -> bool:
    return any(told["kind"] == "apart" for told in plan.workloads)


def test_seeds_with_virtual_hosts() -> None:
    """The first two: they end well, and the programs have looked at messages, and asked for others' queues in vain."""
    seeds = [seed for seed in SEEDS if has_hosts(draw_plan(seed))]
    assert len(seeds) >= 3, "a share of the seeds has virtual hosts"
    seen: Counter[str] = Counter()
    for seed in seeds[:2]:
        result = execute(draw_plan(seed), seed)
        assert result.ok, f"seed {seed}: {result.failure}"
        for name, value in result.metrics.items():
            workload, _, what = name.rpartition(".")
            if workload.startswith("apart-"):
                seen[what] += int(value)
    assert seen["refused"] and seen["seen"], seen


def test_hosts_shift_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of a seed is as it is without them (docs/adr/0053)."""
    drawn = {seed: draw_plan(seed) for seed in range(1, 30)}
    monkeypatch.setattr(swarm, "DRAWS", tuple(draw for draw in swarm.DRAWS if draw is not with_hosts))
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert not Counter(without.faults) - Counter(plan.faults)
        assert has_hosts(plan) or plan == without


@pytest.mark.parametrize(("sent", "found"), [("acme", ""), ("", "acme"), ("acme", "globex")])
def test_a_message_out_of_its_host_is_a_violation(sent: str, found: str) -> None:
    history = History()
    key = b"000-00000001"
    history.offer(key, f"{sent}\0work@hub" if sent else "work@hub")
    place = f"{found}\0work at hub" if found else "work at hub"
    with pytest.raises(Violation, match=r"was sent in .*, and was shown at work at hub in"):
        history.receive(key, place, marked=False)
