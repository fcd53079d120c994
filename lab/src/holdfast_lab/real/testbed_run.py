"""One run of a plan on real nodes: the simulator's phases and result, real time, judged from outside.

Rules of this file: reuses the phases; only what drives them is its own. Nothing here can be repeated exactly, so a
result's digest is empty, and its times are the machine's.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast_lab.plan.phases import REST_S, history_counts, last_fault_s, phases, workload_metrics, workloads_of
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.real.testbed import TestBed
from holdfast_lab.real.testbed_faults import TestbedFaults, check_faults


async def run_on_testbed(
    plan: Plan, directory: Path, seed: int, *, progress: Callable[[float], None] | None = None
) -> Result:
    """Runs the plan; stores, configurations and logs stay in `directory`. `progress` is called with the seconds passed.

    Raises ConfigError for a plan that real nodes cannot run; whatever else breaks is the result's failure. `hops`
    counts what the transmission queues handed out since their nodes' last start, copies that went again included.
    """
    if plan.drifts:
        raise ConfigError(f"invalid value {plan.drifts} for plan {plan.name!r} drifts; expected none on real nodes")
    if plan.topology.routing is not None:  # real nodes are given tables, not a topology to compute them from
        raise ConfigError(f"plan {plan.name!r} has routing, which real nodes do not support; remove it")
    workloads = workloads_of(plan)
    bed = TestBed(plan.topology, directory, seed)
    check_faults(plan.faults, bed)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    began = time.perf_counter()
    faults: TestbedFaults | None = None
    failure, hops = "", 0

    def strike() -> TestbedFaults:
        nonlocal faults
        faults = TestbedFaults(bed, plan.faults)
        return faults

    try:
        async with bed:
            steps = phases(plan, bed, workloads, strike, lambda: bed.elapsed_s > last_fault_s(plan))
            wait = next(steps, None)
            while wait is not None:
                done = await bed.wait(wait.seconds, wait.done)
                if progress is not None:
                    progress(bed.elapsed_s)
                try:
                    wait = steps.send(done)
                except StopIteration:
                    wait = None
            hops = await bed.at_rest(REST_S)
            if bed.failure is not None:
                raise bed.failure
            for workload in workloads:
                workload.check(bed)
    except Exception as error:  # whatever breaks is the run's verdict: a promise, or a defect
        failure = f"{type(error).__name__}: {error}"
        bed.note("run", "failed", failure)
    hits = Counter(faults.hits) if faults is not None else Counter()
    metrics: dict[str, Any] = {**history_counts(bed.history), "hops": hops, **workload_metrics(workloads)}
    metrics["faults"] = dict(sorted(hits.items()))
    return Result(
        name=plan.name,
        seed=seed,
        ok=not failure,
        failure=failure,
        digest="",
        virtual_s=bed.elapsed_s,
        wall_s=time.perf_counter() - began,
        hops=hops,
        metrics=metrics,
        coverage={"faults": hits},
        notes=bed.notes,
    )
