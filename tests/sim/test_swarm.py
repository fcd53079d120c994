"""The swarm finds what is there, and nothing where nothing is; its workers' deaths are their seeds' failures."""

import pytest

from holdfast.errors import ConfigError
from holdfast.peering import sessions
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.coverage import EVENTS, REASONS, Coverage, everything
from holdfast_lab.runs.shrink import kind_of, shrink
from holdfast_lab.runs.swarm import (
    ROUTING,
    SWARMS,
    draw_plan,
    replay_command,
    run_seed,
    run_seeds,
)
from support import today
from support.workers import die, hang

pytestmark = pytest.mark.sim

JOBS = 2
SAME = 3
DAILY = 4
FOUND_DAILY = 1
FOUND = {
    705_039_491_633: "what waited out of order for a bounded destination took an epoch for each",
    739_943_019: "a link drawn one way was one both ways as well",
    739_943_039: "a network of full, thin links takes minutes to come to rest",
    740_201_809: "a node stopped while a mark was on its way to the disk",
    740_201_271: "of the lab: a producer without a name may repeat a message after a lost disk",
    740_201_272: "of the lab: and after a link that the node ended",
    740_201_988: "of the lab: a rival producer took its name back",
    740_200_187: "a queue of a few messages filled at one message a second",
    740_200_641: "large messages were refused because the one before had not been looked at",
    740_200_543: "a neighbour's false word was kept, as nobody told it otherwise",
    50_002: "a link ended between the commit of its messages and their answers",
    5: "a client heard that a name was gone whose deletion was not on disk, and that was there again after a crash",
    61_033: "a flow that ended its link opened a window, and links that waited for it were not told",
    70_004: "of the lab: a drained node refused a message before it looked what the service's name means",
    70_007: "of the lab: a strict queue waited for what a disk on the way had",
    740_201_594: "of the lab: a hostile client that was gone held all that its user may, beside honest ones",
    3_230_017: "a relay's copy went past a bound of bytes by the annotations that it got",
    3_230_044: "of the lab: a node forgot the link of a producer without a name, which had been away for long",
    3_230_161: "a purge asked in each turn whether it may go on, while its batch waited for something to be appended",
    3_230_304: "a named producer with many gaps and small frames was refused: the answer to its attach did not fit",
    3_230_318: "of the lab: who came back to a subscription waited for two seconds, and the node's disk stalled",
    3_230_373: "of the lab: a subscription's link was lost in silence, and attached again after its time",
    3_230_384: "a spool let go of a message whose number would have made one gap too many for a while",
    3_230_691: "of the lab: guesses were counted over a restart, which forgets who failed",
    3_231_571: "of the lab: two scenes sent 700 messages over a satellite, one at a time",
    3_260_114: "of the lab: a client left its root and came again, and the root began to look on anew",
    3_231_641: "of the lab: after a refused commit messages wait until what is left of it is stored",
    3_231_873: "of the lab: what a consumer had taken in one batch counted as shown when it came to each",
    3_262_012: "what left a deleted queue was sent to its node, which was known again, and a refused commit undid that",
    3_262_024: "a sender resumed a link that a drain had ended, and what was being stored was forgotten",
}
"""Seeds that found a defect, and which."""


def test_seeds_that_are_always_the_same() -> None:
    """A change of the core is judged by the same ones before and after it."""
    report = run_seeds(range(1, 1 + SAME), jobs=JOBS)
    assert not report.failed, "\n".join(report.lines())
    assert report.hops > 500


def test_seeds_of_the_day(day: int) -> None:
    """Others each day; `make swarm` runs thousands."""
    first = day * 1_000
    report = run_seeds(range(first, first + DAILY), jobs=JOBS)
    assert not report.failed, "\n".join(report.lines())
    assert report.hops > 200


def test_seeds_that_found_defects() -> None:
    """One each day, in turn."""
    report = run_seeds(today.some(list(FOUND), FOUND_DAILY), jobs=JOBS)
    assert not report.failed, "\n".join(report.lines())


def test_seeds_of_computed_routes() -> None:
    """One of the day, beside those that the swarm draws anyway; and one in which verdicts about late heartbeats kept
    thin links full, so that they came late again (docs/routing.md, "Heartbeats").
    """
    seeds = [seed for seed in range(1, 41) if len(draw_plan(seed, ROUTING).topology.nodes) <= 24]
    report = run_seeds([233, *today.some(seeds, 1)], which=ROUTING, jobs=JOBS)
    assert not report.failed, "\n".join(report.lines())
    assert report.hops > 100


@pytest.mark.parametrize("swarm", SWARMS)
def test_a_seed_is_its_plan(swarm: str) -> None:
    """Drawn twice it is the same; its JSON is exact."""
    for seed in range(1, 200):
        plan = draw_plan(seed, swarm)
        assert plan == draw_plan(seed, swarm)
        assert from_json(plan.to_json()) == plan


def test_an_unknown_swarm_draws_nothing() -> None:
    with pytest.raises(AssertionError, match="swarm-router"):
        draw_plan(1, "swarm-router")


def test_what_seeds_draw() -> None:
    """A quarter of the swarm's compute their routes, none of them large; alone, some are of hundreds of nodes."""
    drawn = [draw_plan(seed).topology for seed in range(1, 401)]
    computed = [topology for topology in drawn if topology.routing is not None]
    assert 70 < len(computed) < 130
    assert min(len(topology.nodes) for topology in computed) == 8
    assert 24 < max(len(topology.nodes) for topology in computed) <= 40
    alone = [draw_plan(seed, ROUTING) for seed in range(1, 401)]
    assert all(plan.topology.routing is not None for plan in alone)
    assert max(len(plan.topology.nodes) for plan in alone) > 200
    kinds = {fault.kind for plan in alone for fault in plan.faults}
    assert {"partition", "remove-link", "power", "replace-disk", "clock-step", "one-way", "stop"} <= kinds


def test_stores_that_become_someone_new_and_purges_are_drawn() -> None:
    """Each beside disks that stall and refuse; who went back without knowing it does not die before it is told."""
    plans = [plan for plan in (draw_plan(seed) for seed in range(1, 401)) if plan.topology.routing is None]
    put_back = [plan for plan in plans if {"restore-backup", "copied-disk"} & {fault.kind for fault in plan.faults}]
    purged = [plan for plan in plans if any(fault.kind == "purge" for fault in plan.faults)]
    assert 30 < len(put_back) < 90 and 30 < len(purged) < 150
    for some in (put_back, purged):
        kinds = [{fault.kind for fault in plan.faults} for plan in some]
        assert all(sum(kind in found for found in kinds) > 10 for kind in ("stalled-disk", "full-disk", "slow-disk"))
        assert sum("refusing-disk" in found for found in kinds) > 5
    for plan in put_back:
        (back,) = [fault for fault in plan.faults if fault.kind in ("restore-backup", "copied-disk")]
        assert [back.node in (link.one, link.other) for link in plan.topology.links].count(True) == 1
        downs = {fault.kind for fault in plan.faults if fault.node == back.node} & {"crash", "power", "replace-disk"}
        assert not downs or back.kind == "copied-disk"


def test_who_calls_messages_undeliverable_makes_room_for_another() -> None:
    takes = [told for seed in range(1, 401) for told in draw_plan(seed).workloads if told.get("elsewhere")]
    assert len(takes) > 5 and all(told["stays"] for told in takes)


def test_replay_command() -> None:
    assert replay_command(7) == "holdfast sim run swarm --seed 7"
    assert replay_command(7, ROUTING) == "holdfast sim run swarm-routing --seed 7"


def weight(plan: Plan) -> int:
    """About how long its run takes: by messages, and nodes that each may pass."""
    return len(plan.topology.nodes) * sum(told.get("messages", 100) for told in plan.workloads)


def test_jobs_change_nothing() -> None:
    """Of small networks: it is the report that jobs might change."""
    plans = {seed: draw_plan(seed) for seed in range(11, 100)}
    seeds = sorted(plans, key=lambda seed: weight(plans[seed]))[:2]
    one, two = (run_seeds(seeds, jobs=jobs) for jobs in (1, 2))
    assert (one.hops, one.virtual_s, one.coverage.counts) == (two.hops, two.virtual_s, two.coverage.counts)


def test_a_worker_that_dies_fails_its_seed() -> None:
    report = run_seeds([7, 8, 9], jobs=JOBS, canary=die)
    assert [failure.seed for failure in report.failed] == [7, 8, 9]
    assert all(failure.failure == "the worker died with exit code 3" for failure in report.failed)


def test_a_worker_that_hangs_is_ended() -> None:
    report = run_seeds([7, 8], jobs=JOBS, canary=hang, limit_s=1.0)
    assert [failure.failure for failure in report.failed] == ["hung: no end within 1 s"] * 2


def test_shrinking_keeps_what_fails() -> None:
    """A failure that needs one fault and one publisher keeps both, and hardly more."""
    seed, plan = next(
        (seed, plan)
        for seed in range(1, 500)
        if len((plan := draw_plan(seed)).faults) > 5 and len(plan.topology.nodes) > 4 and len(plan.workloads) > 4
    )
    needed, fault = plan.workloads[0]["address"], plan.faults[3]
    tried = []

    def fails(smaller: Plan) -> str:
        tried.append(smaller)
        if not smaller.topology.links:
            raise ConfigError("no links")
        sent = sum(told["messages"] for told in smaller.workloads if told.get("address") == needed)
        return f"Violation: {sent} messages at {needed}" if sent and fault in smaller.faults else ""

    found = shrink(plan, seed, fails(plan), fails=fails)
    assert found.faults == (fault,)
    assert [told["kind"] for told in found.workloads] == ["publish", "consume"]
    assert found.workloads[0]["messages"] == found.workloads[0]["producers"] == 1
    assert len(found.topology.links) <= 2
    assert len(tried) < 400


def test_shrinking_takes_super_nodes_too() -> None:
    """What is left of a network with computed routes is a network still."""
    plan = next(plan for plan in (draw_plan(seed, ROUTING) for seed in range(1, 99)) if plan.topology.supers)
    found = shrink(plan, 1, "x", fails=lambda smaller: "x").topology
    found.validate()
    assert len(found.nodes) < len(plan.topology.nodes) and not {*found.supers, *found.joins}.difference(found.nodes)


def test_shrinking_is_bounded() -> None:
    tried = []

    def fails(smaller: Plan) -> str:
        tried.append(smaller)
        return "x"

    shrink(draw_plan(1), 1, "x", tries_max=5, fails=fails)
    assert len(tried) == 5


def test_kinds_of_failures() -> None:
    one = "Violation: 003-00000081 was appended twice to work-1 at lhr"
    assert kind_of(one) == kind_of("Violation: 000-00000001 was appended twice to work-0 at ber")
    assert kind_of(one) != kind_of("Violation: 000-00000001 was shown twice at work-0 at ber")


def test_coverage_counts_and_has_reasons_only_for_what_there_is() -> None:
    there = everything()
    assert all(set(reasons) <= set(there[kind]) for kind, reasons in REASONS.items())
    coverage = Coverage()
    assert run_seed(3, coverage).ok
    assert set(coverage.counts) <= set(there)
    assert all(set(counts) <= set(there[kind]) for kind, counts in coverage.counts.items())
    assert coverage.counts[EVENTS]["TurnEnded"] > 10
    assert sessions.TRANSITIONS.__class__ is dict, "the watching is over with the run"
    before = {kind: sum(counts.values()) for kind, counts in coverage.counts.items()}
    coverage.merge(coverage)
    assert sum(coverage.counts[EVENTS].values()) == 2 * before[EVENTS]
    assert len(Coverage().unreached()) == len(there)
    assert all(line for line in coverage.lines())
