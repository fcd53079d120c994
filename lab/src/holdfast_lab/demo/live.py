"""`holdfast sim live`: the traffic paper's experiment on real processes, beside the model with the same messages
(docs/mpls.md, "Live").

Rules of this file: what is typed in, what is printed, and the verdicts, which are the paper's statements (§4.4).
"""

import argparse
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from holdfast.lines import json_line, say
from holdfast_lab.base.progress import Progress
from holdfast_lab.real.live_traffic import FASTER, Live, run_live, scaled
from holdfast_lab.vpn.measures import Outcome
from holdfast_lab.vpn.measures import run as run_model
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, Experiment

POLICIES: Final = ("fixed", "weights", "level 0", "level 1")
SHARE: Final = 0.15
"""How far from the model's the messages may be that overflow without control."""


def experiment_of(name: str, seed: int) -> Experiment:
    policy, _, lend = name.partition(" ")
    return Experiment(policy=policy, lend=float(lend or 0), seed=seed)


def verdicts(found: Live, model: Outcome) -> dict[str, bool]:
    """The paper's statements, by what they say; whether each holds of the live run."""
    others = found.overflowed[0] + found.overflowed[2]
    said = {"no accepted message is lost": found.lost == 0}
    if found.name != "fixed":
        quarter = max(found.peaks) < CLIENT_MESSAGES / 2
        return said | {"nothing overflows": sum(found.overflowed) == 0, "no queue is half full": quarter}
    near = abs(found.overflowed[1] - model.overflowed[1]) <= SHARE * model.overflowed[1]
    return said | {
        "client 2 overflows, as much as in the model": found.overflowed[1] > 0 and near,
        "clients 1 and 3 do not": others == 0,
        "and client 2 in its burst alone": found.early == 0,
        "its queue was full": found.peaks[1] >= CLIENT_MESSAGES - 1,
    }


def row_of(found: Live, model: Outcome) -> dict[str, Any]:
    held = verdicts(found, model)
    return {
        "policy": found.name, "seed": found.seed, "ok": all(held.values()), "verdicts": held, "live": asdict(found),
        "model": {"overflowed": model.overflowed, "peaks": model.peaks, "root_peak": model.root_peak},
    }  # fmt: skip


def lines_of(row: dict[str, Any]) -> list[str]:
    """For a person."""
    lines = []
    for name in ("live", "model"):
        one = row[name]
        overflowed, peaks = (" / ".join(map(str, one[key])) for key in ("overflowed", "peaks"))
        lines.append(
            f"{row['policy']}, seed {row['seed']}, {name:5}  overflowed {overflowed}  "
            f"peaks {peaks} of {CLIENT_MESSAGES}  root {one['root_peak']}"
        )
    return lines + [f"{'yes' if holds else 'NO ':3} {what}" for what, holds in row["verdicts"].items()]


def live(args: argparse.Namespace) -> int:
    """`holdfast sim live`; exit code 1 where a verdict does not hold."""
    rows = []
    with Progress() as progress:
        for seed in range(args.seed, args.seed + args.seeds):
            for name in args.policy or POLICIES:
                experiment = experiment_of(name, seed)
                if not args.json:
                    seconds = scaled(experiment).span_s / FASTER
                    progress.say(f"{name}, seed {seed}: one root and three clients as processes, {seconds:.0f} s")
                model, _ = run_model(scaled(experiment))
                work = Path(tempfile.mkdtemp(prefix="holdfast-live-"))
                row = row_of(run_live(experiment, work / "run"), model)
                shutil.rmtree(work, ignore_errors=True)
                rows.append(row)
                for line in [] if args.json else lines_of(row):
                    progress.say(line)
    if args.json:
        say(json_line({"ok": all(row["ok"] for row in rows), "runs": rows}))
    return 0 if all(row["ok"] for row in rows) else 1
