"""Congestion that the swarm draws last: who ignores its rate for long, and room that opens after a quiet while."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from holdfast.endpoints.admission import Admission
from holdfast.endpoints.overtaking import OvertakingIntake
from holdfast.links.incoming import Intake
from holdfast.pacing.messages import read_pace
from holdfast.pacing.root_credit import RootCredit
from holdfast.peering.rate_control import RateControl
from holdfast_lab.draws import drawn_congestion
from holdfast_lab.draws.drawn_congestion import IGNORED_S, MIXED, QUIET, ROOT_RATE, with_congestion
from holdfast_lab.draws.drawn_hosts import CROSSED
from holdfast_lab.draws.drawn_pacing import QUEUE
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs import cut_watch
from holdfast_lab.runs.cut_watch import IGNORED_PERIODS, OVER
from holdfast_lab.runs.run import Result, execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 130)


def plans() -> dict[int, Plan]:
    return {seed: draw_plan(seed) for seed in SEEDS}


def ignores(plan: Plan) -> bool:
    return any(fault.kind == "ignores-rate" and fault.seconds == IGNORED_S for fault in plan.faults)


def is_quiet(plan: Plan) -> bool:
    return any(queue.name == QUIET for queues in plan.topology.queues.values() for queue in queues)


def test_a_share_of_the_seeds_has_them() -> None:
    drawn = plans()
    for has in (ignores, is_quiet, is_mixed):
        found = [plan for plan in drawn.values() if has(plan)]
        assert 0.02 < len(found) / len(SEEDS) < 0.12
        assert from_json(found[0].to_json()) == found[0]


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_congestion)
    drawn = {
        seed: plan
        for seed, plan in plans().items()
        if ignores(plan) or is_quiet(plan) or of_hosts(plan) or is_mixed(plan)
    }
    monkeypatch.setattr(drawn_congestion, "IGNORING_SHARE", 0.0)
    monkeypatch.setattr(drawn_congestion, "QUIET_SHARE", 0.0)
    monkeypatch.setattr(drawn_congestion, "HOSTS_SHARE", 0.0)
    monkeypatch.setattr(drawn_congestion, "MIXED_SHARE", 0.0)
    assert drawn
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert with_congestion(without, seed) == without
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
        assert plan.topology.links == without.topology.links


def run(has: str, **bounds: Any) -> Result:
    """The first seed that has a queue as is asked for, with nothing else, and no faults."""
    for seed, plan in plans().items():
        queues = [queue for found in plan.topology.queues.values() for queue in found if queue.name == QUIET]
        if queues and all(getattr(queues[0], key) == value for key, value in bounds.items()):
            mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(has))
            return execute(replace(plan, workloads=mine, faults=(), knobs={}, paged=False), seed)
    raise AssertionError(f"no seed has one with {bounds}")


def ignoring() -> Result:
    """The first seed with a client that ignores its rate, with nothing else."""
    seed, plan = next((seed, plan) for seed, plan in plans().items() if ignores(plan))
    mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(QUEUE))
    faults = tuple(fault for fault in plan.faults if fault.kind == "ignores-rate")
    return execute(replace(plan, workloads=mine, faults=faults, paged=False), seed)


@pytest.mark.sim
def test_low_messages_fill_the_queue_once_higher_ones_are_silent() -> None:
    result = run(QUIET, when_full="refuse")
    assert result.ok, result.failure
    assert result.metrics["refused_by_band"] > 20
    assert result.metrics["taken_after_quiet"] > 20


@pytest.mark.sim
def test_what_waits_is_taken_once_the_queue_is_open_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(QUIET, when_full="block", messages_max=8)
    assert result.ok, result.failure
    assert result.metrics["waited_for_band"] > 0
    assert result.metrics["taken_after_quiet"] > 10
    monkeypatch.setattr(Admission, "tick", lambda self, now: self.waiting.clear())
    result = run(QUIET, when_full="block", messages_max=8)
    assert not result.ok and "waits, and has had room for" in result.failure


@pytest.mark.sim
def test_a_neighbour_is_over_its_rate_for_long_enough_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ignoring()
    assert result.ok, result.failure
    assert result.metrics["periods_over_rate"] >= 3

    def computed(self: Any, now: float) -> None:
        original(self, now)
        self.cut.clear()

    original = RootCredit.computed
    monkeypatch.setattr(RootCredit, "computed", computed)
    result = ignoring()
    assert not result.ok and "its link is not held to it" in result.failure


@pytest.mark.sim
def test_what_was_under_way_when_a_root_cut_a_neighbour_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that waited while the link was down is sent at once, and the root reads it slowly."""
    seed, plan = next((seed, plan) for seed, plan in plans().items() if ignores(plan))
    mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(QUEUE))
    [fault] = [fault for fault in plan.faults if fault.kind == "ignores-rate"]
    [root] = [name for name, told in plan.topology.pacing.items() if told.rate is not None]
    down = Fault(kind="partition", at=1.0, link=(fault.node, root), seconds=7.0)
    limits = replace(
        plan.topology.limits, connection_unstored_bytes_max=1_000, unstored_bytes_max=2_000, hop_in_doubt_max=500
    )
    plan = replace(
        plan, topology=replace(plan.topology, limits=limits), workloads=mine, paged=False, turn_s=0.01, piece_bytes=700,
        faults=(replace(fault, at=0.5, seconds=24.0), down), safety_s=25.0,
    )  # fmt: skip
    end_period, in_a_row = cut_watch._Taken.end_period, Counter[Any]()

    def ended(self: Any, now: float, *rest: Any) -> None:
        too_much = self.bytes > OVER * ROOT_RATE * (now - self.began_at) + self.largest
        in_a_row[self] = in_a_row[self] + 1 if too_much else 0
        most.append(in_a_row[self])
        end_period(self, now, *rest)

    most: list[int] = []
    monkeypatch.setattr(cut_watch._Taken, "end_period", ended)
    result = execute(plan, seed)
    assert result.ok, result.failure
    assert max(most) >= IGNORED_PERIODS, "the root takes too much for long enough to be found"


@pytest.mark.parametrize(("taken", "sent", "is_over"), [(90, 90, True), (90, 10, False), (10, 90, False)])
def test_a_neighbour_is_over_its_rate_if_it_sends_too_much_and_the_root_takes_it(
    taken: int, sent: int, is_over: bool
) -> None:
    """What comes late was sent before, and what is sent again is taken once."""
    watched = cut_watch._Taken(None, 0.0, 1_000)
    watched.rates[-1] = 50.0
    watched.bytes, watched.largest = taken, 5
    watched.end_period(1.0, 50.0, 1_000 + sent)
    assert bool(watched.over) is is_over
    watched.bytes = taken
    watched.end_period(2.0, 50.0, 1_000 + 2 * sent)
    assert watched.over == 2 * is_over


def of_hosts(plan: Plan) -> bool:
    return any(told.hosts for told in plan.topology.pacing.values())


@pytest.mark.sim
def test_a_root_of_several_hosts_gives_each_its_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(seed, plan) for seed, plan in plans().items() if of_hosts(plan)]
    assert 2 <= len(found) < len(SEEDS) / 10
    seed, plan = found[0]
    assert from_json(plan.to_json()) == plan
    mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(CROSSED))
    plan = replace(plan, workloads=mine, faults=(), knobs={}, paged=False)
    result = execute(plan, seed)
    assert result.ok, result.failure
    assert result.metrics["paced_of_hosts"] > 10 and result.metrics["turns_that_waited"] > 10

    def hear(self: Any, session: Any, fields: dict[Any, Any]) -> None:
        pace = read_pace(fields)
        assert pace is not None
        for pacer in self.pacers.values():
            if pacer.receive(self._clock.now, pace._replace(group=pacer.origin.group)):
                self._paced(pace.root)

    monkeypatch.setattr(RateControl, "_on_pace", hear)
    result = execute(plan, seed)
    assert not result.ok and "never gave to it" in result.failure


def is_mixed(plan: Plan) -> bool:
    return any(queue.name == MIXED for queues in plan.topology.queues.values() for queue in queues)


@pytest.mark.sim
def test_urgent_messages_pass_low_ones_of_their_link(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, plan = next((seed, plan) for seed, plan in plans().items() if is_mixed(plan))
    mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(MIXED))
    mine = tuple(told | ({"think_s": 0.8} if told["kind"] == "consume" else {"rate": 0.0}) for told in mine)
    plan = replace(plan, workloads=mine, faults=(), knobs={}, paged=False)
    result = execute(plan, seed)
    assert result.ok, result.failure
    assert result.metrics["passed_by"] > 5
    monkeypatch.setattr(OvertakingIntake, "take_parked", Intake.take_parked)
    monkeypatch.setattr(OvertakingIntake, "delivered", Intake.delivered)
    result = execute(plan, seed)
    assert not result.ok and "waits, and has had room for" in result.failure
