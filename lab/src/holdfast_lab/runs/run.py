"""One run: a plan and a seed to a verdict.

Rules of this file: a safety phase in which faults strike, then all is healed and everything must be done within the
plan's virtual time (TigerBeetle's two phases). A run never hangs: virtual time is bounded, and so are its events.
"""

import gc
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from holdfast_lab.base.client_history import Violation
from holdfast_lab.judge.beliefs import check_beliefs
from holdfast_lab.plan.knobs import turned
from holdfast_lab.plan.phases import REST_S, history_counts, last_fault_s, phases, workload_metrics, workloads_of
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.bands_watch import watch_bands
from holdfast_lab.runs.coverage import ACTS, MEETINGS
from holdfast_lab.runs.cut_watch import watch_cuts
from holdfast_lab.runs.paced_watch import watch_rates
from holdfast_lab.runs.resumed_watch import watch_resumed
from holdfast_lab.runs.routing_watch import watch_routes
from holdfast_lab.runs.sim_faults import Faults
from holdfast_lab.runs.sorting_watch import watch_sorting
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import Hostile

PROGRESS_EVERY: Final = 2_000


def execute(
    plan: Plan,
    seed: int,
    *,
    keep_notes: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Runs the plan. `progress` is called with the share of virtual time that has passed."""
    made = SimBed(
        plan.topology, seed, turn_s=plan.turn_s, keep_notes=keep_notes, piece_bytes=plan.piece_bytes,
        paged=plan.paged,
    )  # fmt: skip
    with turned(plan.knobs), made as bed:
        run = _Run(plan, bed, progress)
        return judged(bed, plan.name, run.go, run.metrics, run.coverage)


def judged(
    bed: SimBed,
    name: str,
    go: Callable[[], None],
    metrics: Callable[[], dict[str, Any]],
    coverage: Callable[[], dict[str, Counter[str]]],
) -> Result:
    """Runs `go` on the bed; whatever it raises is the verdict."""
    began = perf_counter()
    failure = ""
    # A run makes hundreds of thousands of objects that live as long as it does and hardly a cycle: looking for
    # cycles among them would take a sixth of its time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        go()
    except Exception as error:  # whatever breaks is the run's verdict: a promise, or a defect
        failure = f"{type(error).__name__}: {error}"
        bed.world.note("run", "failed", failure)
    finally:
        if collecting:
            gc.enable()
    wall_s = perf_counter() - began
    return Result(
        name=name,
        seed=bed.world.seeds.seed,
        ok=not failure,
        failure=failure,
        digest=bed.world.digest,
        virtual_s=bed.world.elapsed_s,
        wall_s=wall_s,
        hops=bed.ledger.hops,
        metrics=metrics(),
        coverage=coverage(),
        notes=bed.world.notes,
    )


def counts_of(bed: SimBed) -> dict[str, Any]:
    """What every run counts."""
    history, ledger = bed.history, bed.ledger
    return {
        **history_counts(history),
        "dead": len(ledger.dead),
        "hops": ledger.hops,
        "shared": sum(
            neighbour.hop.messages_shared
            for node in bed.sim_nodes.values()
            if node.core is not None
            for neighbour in node.core.neighbours.values()
        ),
        "events": bed.world.events,
    }


def sessions_of(bed: SimBed) -> Counter[str]:
    """The transitions of all sessions."""
    found: Counter[str] = Counter()
    for node in bed.sim_nodes.values():
        for _, kind, fields in node.records:
            if kind == "session":
                found[f"{fields['previous']} -> {fields['state']}"] += 1
    return found


def check_contained(bed: SimBed) -> None:
    """A contained failure did no harm, but is still a defect: in whichever life of its node."""
    for name, node in bed.sim_nodes.items():
        if node.contained:
            raise Violation(f"{name} contained {node.contained} failures of its own code; its log has them")


class _Run:
    def __init__(self, plan: Plan, bed: SimBed, progress: Callable[[float], None] | None) -> None:
        self.plan = plan
        self.bed = bed
        self.progress = progress
        self.workloads = workloads_of(plan)
        self.routes = watch_routes(bed)
        self.rates = watch_rates(bed)
        self.sorting = watch_sorting(bed)
        self.bands = watch_bands(bed)
        self.cuts = watch_cuts(bed, self.rates)
        watch_resumed(bed, self.workloads)
        for name, drift in plan.drifts.items():
            bed.sim_nodes[name].clock.drift = drift
        self.faults: Faults | None = None

    def go(self) -> None:
        """The whole history, and what must hold at its end. What a node contained comes first: all else that is wrong
        may follow from it."""
        try:
            self._history()
        except Violation:
            self._check_contained()
            raise
        self._check_contained()

    def _check_contained(self) -> None:
        if not any(fault.kind == "defect" for fault in self.plan.faults):
            check_contained(self.bed)

    def _history(self) -> None:
        bed = self.bed
        bed.start()
        steps = phases(self.plan, bed, self.workloads, self._strike, self._quiet)
        wait = next(steps, None)
        while wait is not None:
            try:
                wait = steps.send(bed.run(wait.seconds, self._told_until(wait.done)))
            except StopIteration:
                wait = None
        ends_at = bed.now() + self.plan.liveness_s
        bed.run(REST_S)
        self._until_no_copies(ends_at)
        if self.routes is not None:
            self.routes.at_rest(bed.run)
            self._until_no_copies(ends_at)
        bed.ledger.at_rest()
        if self.faults is not None:
            self.faults.check()
        for workload in self.workloads:
            workload.check(bed)
        honest = [node for node in bed.sim_nodes.values() if node.liar is None]
        check_beliefs({node.name: node.core for node in honest if node.core is not None})
        for node in bed.sim_nodes.values():
            node.validate()
            node.check_reloaded()
            node.store.check()

    def _until_no_copies(self, ends_at: float) -> None:
        """Second copies on thin links come to their end, to be dropped there. One may still be on a line, and on no
        disk, when this looks."""
        while self.bed.ledger.on_its_way() and self.bed.now() < ends_at:
            self.bed.run(REST_S)

    def _strike(self) -> Faults:
        for broker in self.bed.brokers:
            broker.begin()
        self.faults = Faults(self.bed, list(self.plan.faults), self.routes)
        return self.faults

    def _quiet(self) -> bool:
        """No fault is still to come."""
        return self.bed.world.elapsed_s > last_fault_s(self.plan)

    def _told_until(self, done: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: self._told() or done()

    def _told(self) -> bool:
        if self.progress is not None and self.bed.world.events % PROGRESS_EVERY == 0:
            self.progress(self.bed.world.elapsed_s)
        return False

    def metrics(self) -> dict[str, Any]:
        """Counts of the run, the workloads' by kind and number."""
        found = {**counts_of(self.bed), **workload_metrics(self.workloads)}
        if self.routes is not None:
            found |= self.routes.metrics()
        if self.rates is not None:
            found |= self.rates.metrics()
        counted = [bands.metrics() for bands in self.bands.values()] + [cuts.metrics() for cuts in self.cuts.values()]
        for counts in counted:
            found |= {key: found.get(key, 0) + count for key, count in counts.items()}
        if self.sorting:
            found["sorted"] = sum(watch.looked for watch in self.sorting.values())
        if self.faults is not None:
            found["faults"] = dict(sorted(self.faults.hits.items()))
            if self.faults.unsteady:
                found["pacing_messages"] = dict(sorted(self.faults.unsteady.items()))
        return found

    def coverage(self) -> dict[str, Counter[str]]:
        """What the run exercised: session transitions, faults, fates of commits, commands."""
        found = {"sessions": sessions_of(self.bed)}
        if self.faults is not None:
            found |= {"faults": self.faults.hits, "commits met by a crash": self.faults.fates}
            found[MEETINGS] = self.faults.meetings
        hostile = [workload for workload in self.workloads if isinstance(workload, Hostile)]
        if hostile:
            found[ACTS] = sum((workload.done for workload in hostile), Counter())
        return found
