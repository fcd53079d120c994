"""`holdfast pacing simulate | report`: the traffic paper's experiment from the command line.

Rules of this file: what is typed in, and what is printed or written; runs are made elsewhere.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.lines import json_line, say
from holdfast_lab.vpn import campaign
from holdfast_lab.vpn.acceptance import ALL_FROM
from holdfast_lab.vpn.campaign import shared_out
from holdfast_lab.vpn.measures import Burst, Outcome, Series, burst_size, run
from holdfast_lab.vpn.page import page, put_into
from holdfast_lab.vpn.parameters import BURST_MEAN_S, Experiment


def pacing(args: argparse.Namespace) -> int:
    """`args.action` says which; returns the exit code."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {"simulate": _simulate, "report": _report}
    return actions[args.action](args)


# ------------------------------------------------------------------------------------------------------- simulate


def _simulate(args: argparse.Namespace) -> int:
    base = Experiment(
        policy=args.policy, lend=args.lend, clients=args.clients, period_s=args.period, delay_s=args.delay,
        loss=args.loss, span_s=args.span, burst=args.burst if args.burst is not None else 1 / BURST_MEAN_S,
        bursting=ALL_FROM if args.all else (2,),
    )  # fmt: skip
    seeds = [replace(base, seed=args.seed + more) for more in range(args.seeds)]
    if args.size:
        bursts = shared_out(_sized, seeds, args.jobs or _cores())
        found: list[dict[str, Any]] = [{**_fields(one), "share": one.share} for one in bursts]
        lines = [f"{'seed':>6} {'size':>8} {'limit':>8} {'share':>6}"]
        lines += [f"{one.seed:>6} {one.size:>8} {one.limit:>8} {one.share:>6.2f}" for one in bursts]
    else:
        outcomes = shared_out(_run, seeds, args.jobs or _cores())
        found = [one.as_json() for one in outcomes]
        lines = [f"{'seed':>6} {'overflow':>9} {'peaks':>16} {'root':>6} {'Jain':>5} {'changes/min':>12}"]
        lines += [_line(one) for one in outcomes]
    if args.json:
        say(json_line({"policy": base.name, "runs": found}))
    else:
        say(f"policy {base.name}, {base.clients} clients, T = {base.period_s:g} s", *lines)
    return 0


def _line(one: Outcome) -> str:
    peaks = "/".join(str(peak) for peak in one.peaks[:3]) + ("/…" if len(one.peaks) > 3 else "")
    return (
        f"{one.seed:>6} {one.total:>9} {peaks:>16} {one.root_peak:>6} {one.fairness:>5.2f} {one.changes_per_min:>12.1f}"
    )


def _run(experiment: Experiment) -> Outcome:
    return run(experiment)[0]


def _sized(experiment: Experiment) -> Burst:
    return burst_size(experiment, experiment.burst)


def _fields(one: Burst) -> dict[str, Any]:
    return {"name": one.name, "seed": one.seed, "burst": one.burst, "size": one.size, "limit": one.limit}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# --------------------------------------------------------------------------------------------------------- report


def _report(args: argparse.Namespace) -> int:
    """Exit code 1 where a line of the acceptance table does not hold."""
    document = None
    if args.page is not None:
        try:
            document = Path(args.page).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {args.page}: {error.strerror}; expected a document with markers") from error
        put_into(document, [])  # a document without markers is refused before the runs
    seeds = range(args.seed, args.seed + args.seeds)
    jobs = args.jobs or _cores()

    def progress(what: str) -> None:
        say(what, file=sys.stderr)

    report = campaign.accept(seeds, jobs, progress)
    series = campaign.series_of(args.seed, jobs)
    report |= _from_series(series)
    if not args.short:
        report["varied"] = campaign.vary(list(seeds), jobs, progress)
    lines = page(report, f"by `holdfast pacing report --seeds {args.seeds}`")
    if args.picture is not None:
        from holdfast_lab.vpn.pictures import draw

        draw(series, report, args.seed, Path(args.picture))
    if document is not None:
        Path(args.page).write_text(put_into(document, lines), encoding="utf-8")
    say(*([json_line(report)] if args.json else lines))
    return 0 if report["holds"] else 1


def _from_series(series: list[Series]) -> dict[str, Any]:
    """What the figures' statements need of one run: client 2's rate and the root's queue, in and outside the burst."""
    by = {one.name: one for one in series}
    begins, ends = (int(at) for at in Experiment().burst_s)
    rates = [rates[1] for rates in by["weights"].rates]
    inside, outside = rates[begins:ends], rates[:begins] + rates[ends:]
    roots = {name: sum(by[name].root[begins:ends]) / (ends - begins) for name in ("fixed", "weights")}
    within = {"within": sum(inside) / len(inside), "outside": sum(outside) / len(outside)}
    return {"client_2": within, "root": roots}
