"""Whole runs drawn from a seed, many of them: options, topology, workloads and faults (TigerBeetle's VOPR is the idea).

Rules of this file: everything a run does comes from its seed, so a seed is a reproduction; each seed runs in a worker
process whose death or hang is that seed's failure, never the swarm's. What is drawn: `draws/drawn_static.py` with
`draws/drawn_disks.py`, or `draws/drawn_routing.py` for networks that compute their routes; then what DRAWS adds,
in that order.
"""

import logging
import multiprocessing
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from holdfast_lab.base.processes import die_with_parent
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws import drawn_routing, drawn_static
from holdfast_lab.draws.drawn_access import with_access, with_room_for_gaps, with_short_names
from holdfast_lab.draws.drawn_aims import with_aims
from holdfast_lab.draws.drawn_bounds import with_bounds, with_idle, with_overflows
from holdfast_lab.draws.drawn_bursts import with_bursts
from holdfast_lab.draws.drawn_changes import with_changed_rules, with_departures
from holdfast_lab.draws.drawn_clients import with_clients
from holdfast_lab.draws.drawn_congestion import with_congestion
from holdfast_lab.draws.drawn_corners import with_corners
from holdfast_lab.draws.drawn_counted import with_counted
from holdfast_lab.draws.drawn_disks import with_disks, with_refusals
from holdfast_lab.draws.drawn_drains import with_drains
from holdfast_lab.draws.drawn_federation import with_federation
from holdfast_lab.draws.drawn_guesses import with_guesses
from holdfast_lab.draws.drawn_hostile import with_hostile, with_short_holds
from holdfast_lab.draws.drawn_hosts import with_crossing, with_hosts
from holdfast_lab.draws.drawn_knobs import with_small_bounds
from holdfast_lab.draws.drawn_links import with_refused_links
from holdfast_lab.draws.drawn_listeners import with_listeners
from holdfast_lab.draws.drawn_logins import with_logins
from holdfast_lab.draws.drawn_narrow import with_narrow
from holdfast_lab.draws.drawn_pacing import with_pacing, with_unsteady_pacing
from holdfast_lab.draws.drawn_policies import with_policies
from holdfast_lab.draws.drawn_relays import with_asked, with_larger, with_mixed, with_relays
from holdfast_lab.draws.drawn_reloads import with_reloads
from holdfast_lab.draws.drawn_remotes import with_remotes
from holdfast_lab.draws.drawn_scenes import with_later_scenes
from holdfast_lab.draws.drawn_services import with_services, with_services_apart
from holdfast_lab.draws.drawn_takes import with_takes, with_takes_for_programs
from holdfast_lab.draws.drawn_topologies import with_topologies
from holdfast_lab.draws.drawn_unreached import with_full, with_unreached
from holdfast_lab.draws.drawn_windows import with_windows
from holdfast_lab.draws.drawn_wire import with_wire
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.coverage import ACTS, FATES, FAULTS, MEETINGS, MET, Coverage, watched
from holdfast_lab.runs.run import execute

SWARM: Final = "swarm"
ROUTING: Final = "swarm-routing"
SWARMS: Final = {
    SWARM: "Topology, workloads, faults and options, all drawn from the seed: one run of the swarm.",
    ROUTING: "The same of a network whose nodes compute their own routes: links fail, the network splits, super nodes "
    "are lost.",
}
"""What may be drawn of a seed, by name. `swarm` draws a share of the other as well."""
ROUTING_SHARE: Final = 0.25
"""Of the swarm's seeds, those whose nodes compute their own routes; none of them is a large network."""
WALL_LIMIT_S: Final = 300.0
"""A seed that takes longer hangs. 40 nodes that compute their routes take half a minute of an idle core."""
LOOK_S: Final = 1.0
"""How often workers are asked how long they take."""

Draw = Callable[[Plan, int], Plan]
"""What it draws is on top of the plan, from a stream of its own of the seed."""

DRAWS: Final[tuple[Draw, ...]] = (
    with_refusals,
    with_hostile,
    with_small_bounds,
    with_aims,
    with_wire,
    with_takes,
    with_refused_links,
    with_later_scenes,
    with_short_holds,
    with_clients,
    with_policies,
    with_hosts,
    with_pacing,
    with_crossing,
    with_bursts,
    with_unreached,
    with_congestion,
    with_federation,
    with_logins,
    with_counted,
    with_guesses,
    with_reloads,
    with_bounds,
    with_drains,
    with_unsteady_pacing,
    with_services,
    with_access,
    with_room_for_gaps,
    with_overflows,
    with_relays,
    with_larger,
    with_mixed,
    with_idle,
    with_full,
    with_services_apart,
    with_asked,
    with_topologies,
    with_corners,
    with_changed_rules,
    with_departures,
    with_remotes,
    with_listeners,
    with_short_names,
    with_takes_for_programs,
    with_narrow,
    with_windows,
)
"""What is drawn on top of a plan: aims add knobs to those of the small bounds, and the wire takes one away again where
LMDB lies under the nodes. Windows come last, for they must let through all that the others send."""

Canary = Callable[[], None]
"""Called in the worker before a seed runs: plants a defect, to show that the swarm finds it."""


def draw_plan(seed: int, which: str = SWARM) -> Plan:
    """The plan of that seed; the same on every machine. `which` of SWARMS."""
    assert which in SWARMS, which
    if which == ROUTING:
        return drawn_routing.plan_of(seed, large_share=drawn_routing.LARGE_SHARE)
    own_routes = SeedTree(seed).stream("swarm/own routes").random() < ROUTING_SHARE
    plan = drawn_routing.plan_of(seed) if own_routes else with_disks(drawn_static.plan_of(seed), seed)
    for draw in DRAWS:
        plan = draw(plan, seed)
    return plan


# ---------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that did not end well. `failure` is one line, `replay_command` makes it again; `ended` False: its
    process hung or died, and so would whoever runs it again."""

    seed: int
    failure: str
    replay_command: str
    ended: bool = True


@dataclass(slots=True)
class SwarmReport:
    """`failed` by seed, ascending, whatever the order in which they ran."""

    seeds: int
    failed: list[Failure] = field(default_factory=list)
    wall_s: float = 0.0
    hops: int = 0
    virtual_s: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    def lines(self) -> list[str]:
        """For a person: what ran, what failed and how to see it again."""
        found = [
            f"{self.seeds} seeds, {len(self.failed)} failed, {self.hops:,} hops, {self.virtual_s / 3600:.1f} hours of "
            f"virtual time in {self.wall_s:.0f} s"
        ]
        for failure in self.failed:
            found += [f"seed {failure.seed}: {failure.failure}", f"  {failure.replay_command}"]
        return found


def replay_command(seed: int, which: str = SWARM) -> str:
    """The one command that runs a seed again, with its log."""
    return f"holdfast sim run {which} --seed {seed}"


def run_seed(seed: int, coverage: Coverage, which: str = SWARM) -> Any:
    """Draws and runs one seed in this process; returns its Result, and adds what it reached to `coverage`."""
    with watched(coverage):
        result = execute(draw_plan(seed, which), seed)
    coverage.add(FAULTS, result.coverage.get("faults", {}))
    coverage.add(ACTS, result.coverage.get(ACTS, {}))
    met = result.coverage.get(MEETINGS, Counter())
    coverage.add(MEETINGS, {name: count for name, count in met.items() if name in MET})
    coverage.add(FATES, result.coverage.get("commits met by a crash", {}))
    return result


def run_seeds(
    wanted: Sequence[int],
    *,
    which: str = SWARM,
    jobs: int | None = None,
    tell: Callable[[int, str], None] | None = None,
    canary: Canary | None = None,
    limit_s: float = WALL_LIMIT_S,
) -> SwarmReport:
    """Runs those seeds of `which` in `jobs` processes (None: one for each core), each for `limit_s` at most.

    `tell(done, failure)` is called after each seed, `failure` empty or one line. `canary` is called once in each worker
    and must be a function at the top of a module.
    """
    began = time.perf_counter()
    report = SwarmReport(len(wanted))
    todo = deque(wanted)
    jobs = max(1, min(jobs or len(os.sched_getaffinity(0)), len(wanted)))
    workers = [_Worker(canary, which) for _ in range(jobs)] if wanted else []
    done = 0
    try:
        while todo or any(worker.seed is not None for worker in workers):
            for worker in workers:
                if worker.seed is None and todo:
                    worker.give(todo.popleft())
                elif worker.seed is not None and time.monotonic() - worker.given_at > limit_s:
                    worker.end()
            ready = wait([worker.pipe for worker in workers if worker.seed is not None], timeout=LOOK_S)
            for index, worker in enumerate(workers):
                if worker.pipe not in ready or worker.seed is None:
                    continue
                seed, told = worker.seed, worker.take()
                if told is None:  # it died, or was ended: its seed failed, the next ones get a new process
                    hung = time.monotonic() - worker.given_at > limit_s
                    failure = f"hung: no end within {limit_s:g} s" if hung else f"the worker {worker.died()}"
                    workers[index] = _Worker(canary, which)
                else:
                    failure, hops, virtual_s, coverage = told
                    report.hops += hops
                    report.virtual_s += virtual_s
                    report.coverage.merge(coverage)
                if failure:
                    report.failed.append(Failure(seed, failure, replay_command(seed, which), told is not None))
                done += 1
                if tell is not None:
                    tell(done, failure)
    finally:
        for worker in workers:
            worker.end()
    report.failed.sort(key=lambda item: item.seed)
    report.wall_s = time.perf_counter() - began
    return report


class _Worker:
    """A process that runs one seed after the other."""

    def __init__(self, canary: Canary | None, which: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work_seeds, args=(theirs, canary, which), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.given_at = 0.0

    def give(self, seed: int) -> None:
        self.seed = seed
        self.given_at = time.monotonic()
        try:
            self.pipe.send(seed)
        except OSError:  # it is dead: `take` finds that out
            pass

    def take(self) -> tuple[str, int, float, Coverage] | None:
        """(failure, hops, virtual seconds, coverage) of its seed; None where the process died."""
        self.seed = None
        try:
            told: tuple[str, int, float, Coverage] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return told

    def died(self) -> str:
        self.process.join(5.0)
        return f"died with exit code {self.process.exitcode}"

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _work_seeds(pipe: "Connection[Any, Any]", canary: Canary | None, which: str) -> None:
    die_with_parent()
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    if canary is not None:
        canary()
    while True:
        try:
            seed = pipe.recv()
        except (EOFError, OSError):
            return
        coverage = Coverage()
        told: tuple[str, int, float, Coverage]
        try:
            result = run_seed(seed, coverage, which)
            told = (result.failure, result.hops, result.virtual_s, coverage)
        except Exception as error:  # drawing failed: that seed's failure
            told = (f"{type(error).__name__}: {error}", 0, 0.0, coverage)
        try:
            pipe.send(told)
        except OSError:  # nobody waits for it any more
            return
