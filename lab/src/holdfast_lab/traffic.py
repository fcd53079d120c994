"""The traffic paper's experiment as scenarios of `holdfast sim`: `traffic-POLICY` (docs/simulator.md).

Rules of this file: what a run gave, under the names that other programs rely on; nothing is judged. Messages by client
are `client1`, `client2`, … Source: traffic-control §4.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast_lab.base.notes import Note
from holdfast_lab.plan.result import Result
from holdfast_lab.vpn.bound import limit
from holdfast_lab.vpn.measures import Outcome, Series, Tell
from holdfast_lab.vpn.measures import run as run_experiment
from holdfast_lab.vpn.parameters import CLIENTS, Experiment

SERIES_CLIENTS: Final = CLIENTS
"""Of the clients, so many have series: one of each pattern."""

NOTES_MAX: Final = 10_000


def run(name: str, experiment: Experiment, tell: Tell) -> Result:
    """One run. `tell` is called with the seconds that have passed."""
    started = time.monotonic()
    outcome, series = run_experiment(experiment, tell)
    metrics = _metrics(experiment, outcome)
    told = _told(series, experiment.series_s) if experiment.series_s else {}
    everything = json.dumps([metrics, series.queues, series.root, series.rates, series.overflows], sort_keys=True)
    return Result(
        name,
        experiment.seed,
        True,
        "",
        hashlib.blake2b(everything.encode(), digest_size=16).hexdigest(),
        series.ended_s,
        time.monotonic() - started,
        outcome.delivered,
        metrics,
        notes=_notes(experiment, series),
        series=told,
    )


def _by_client(values: Sequence[float]) -> dict[str, float]:
    return {f"client{number}": value for number, value in enumerate(values, 1)}


def _metrics(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "overflowed": _by_client(outcome.overflowed),
        "peak_messages": _by_client(outcome.peaks),
        "generated": _by_client(outcome.generated),
        "root_peak_messages": outcome.root_peak,
        "overflowed_total": outcome.total,
        "overflowed_outside_burst": outcome.outside,
        "delivered": outcome.delivered,
        "loads_per_s": outcome.loads_per_s,
        "paces_per_s": outcome.paces_per_s,
    }
    if experiment.until_overflow:
        alone, whole = limit(experiment, whole=False), limit(experiment, whole=True)
        most = whole if experiment.lend > 0 else alone
        found |= {
            "burst_messages": outcome.in_burst,
            "limit_messages": alone,
            "limit_whole_messages": whole,
            "share_of_limit": outcome.in_burst / most,
        }
    else:
        found |= {
            "jain": outcome.fairness,
            "rate_changes_per_min": outcome.changes_per_min,
            "rate_in_burst": _by_client(outcome.rates_within),
            "rate_outside_burst": _by_client(outcome.rates_outside),
            "root_mean_messages_in_burst": outcome.root_mean,
        }
    return found | outcome.counted


def _told(series: Series, step_s: int) -> Mapping[str, list[float]]:
    """At the end of each step of so many seconds: the queues, the mean of the root's, the rates, and how many messages
    were generated and overflowed so far."""
    found: dict[str, list[float]] = {"root": [], "overflowed": []}
    clients = range(min(SERIES_CLIENTS, len(series.queues[0])))
    for client in clients:
        found |= {f"queue{client + 1}": [], f"rate{client + 1}": [], f"generated{client + 1}": []}
    overflows = 0
    for end in range(step_s, len(series.queues), step_s):
        while overflows < len(series.overflows) and series.overflows[overflows][0] <= end:
            overflows += 1
        found["root"].append(round(sum(series.root[end - step_s + 1 : end + 1]) / step_s, 3))
        found["overflowed"].append(overflows)
        for client in clients:
            found[f"queue{client + 1}"].append(series.queues[end][client])
            found[f"rate{client + 1}"].append(round(series.rates[end][client], 3))
            found[f"generated{client + 1}"].append(series.generated[end][client])
    return found


def _notes(experiment: Experiment, series: Series) -> list[Note]:
    begins, ends = experiment.burst_s
    notes = [Note(begins, "run", "burst", f"begins, {experiment.burst:g} messages a second")]
    notes += [
        Note(at, f"client{number + 1}", "overflow", "a message found the queue full")
        for at, number in series.overflows[:NOTES_MAX]
    ]
    if ends <= experiment.span_s:
        notes.append(Note(ends, "run", "burst", "ends"))
    notes += [Note(at, "network", "fault", text) for at, text in series.faults]
    return sorted(note for note in notes if note.at <= experiment.span_s)
