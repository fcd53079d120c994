"""The two phases of a run on either bed: faults strike; then all is healed, and everything must be completed.

Rules of this file: a generator says what is waited for and how long, and is told whether it came; who drives it lets
virtual time pass, or real time. Nothing here waits by itself. Source: TigerBeetle's VOPR, safety then liveness.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from holdfast_lab.base.client_history import History, Violation
from holdfast_lab.plan.moments import AIM_S
from holdfast_lab.plan.plan import Plan
from holdfast_lab.workloads import Workload, make_workload
from holdfast_lab.workloads.bed import Bed

SETUP_S: Final = 60.0
REST_S: Final = 10.0
"""After the last message was shown: receipts, retirements and tombstones settle."""


class Wait(NamedTuple):
    """Until `done()`, at most `seconds`; the driver sends back whether it is done."""

    seconds: float
    done: Callable[[], bool]


class RunningBed(Bed, Protocol):
    """A bed as its run sees it."""

    def finished(self) -> bool:
        """All that the workloads planned is done, and all that was accepted has been shown."""

    def at_work(self) -> list[str]:
        """Names of the programs that are not done."""


class Healing(Protocol):
    """Faults under way."""

    def heal(self) -> None: ...


def workloads_of(plan: Plan) -> list[Workload]:
    """The plan's workloads, made. Raises ConfigError."""
    return [make_workload(told, f"workload {index}") for index, told in enumerate(plan.workloads, 1)]


def phases(
    plan: Plan,
    bed: RunningBed,
    workloads: Sequence[Workload],
    strike: Callable[[], Healing],
    quiet: Callable[[], bool],
) -> Generator[Wait, bool, None]:
    """The run up to its rest. `strike` lets the faults begin; `quiet()`: none of them is still to come."""
    for workload in workloads:
        bed.spawn(workload.setup(bed), f"set up {workload.kind}")
    if not (yield Wait(SETUP_S, bed.finished)):
        raise Violation(f"the workloads were not set up within {SETUP_S:g} s")
    for workload in workloads:
        workload.start(bed)
    faults = strike()
    yield Wait(plan.safety_s, lambda: bed.finished() and quiet())
    faults.heal()
    if not (yield Wait(plan.liveness_s, bed.finished)):
        left = len(bed.history.outstanding)
        owed = sum(len(keys) for keys in bed.history.owed.values())
        raise Violation(
            f"not done {plan.liveness_s:g} s after all faults were healed: {left} accepted messages not shown, "
            f"{owed} owed to subscriptions, still at work: {', '.join(bed.at_work()) or 'nobody'}"
        )


def last_fault_s(plan: Plan) -> float:
    """When the last fault is over, in seconds since the first could strike."""
    return max((fault.at + (AIM_S if fault.when else 0.0) + fault.seconds for fault in plan.faults), default=0.0)


def history_counts(history: History) -> dict[str, int]:
    """What every run counts."""
    return {
        "offered": len(history.offered),
        "accepted": len(history.accepted),
        "received": len(history.received),
        "redelivered": history.redeliveries,
        "excused": len(history.excused),
    }


def workload_metrics(workloads: Iterable[Workload]) -> dict[str, Any]:
    """The workloads' own numbers, by kind, place in the plan, and name."""
    return {
        f"{workload.kind}-{index}.{name}": value
        for index, workload in enumerate(workloads, 1)
        for name, value in workload.metrics().items()
    }
