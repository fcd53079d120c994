"""How soon the routes of a network of 200 nodes are right again after a link went dark, in simulated time.

Runs the scenario convergence-200 once for each seed, each of which draws another network. What is measured is virtual,
so neither the machine nor its load is in it. Prints one JSON object; progress on standard error.
`python benchmarks/macro/convergence_200.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _figures import spread
from _report import emit, frame, progress

from holdfast_lab.plan import scenario_file
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute

SCENARIO = "convergence-200"
GOAL_S = 1.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="each another network (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="(default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default %(default)s)")
    parser.add_argument("--json-out", type=Path, help="also write the report there")
    return parser.parse_args(arguments)


def run(seed: int) -> Result:
    logging.disable(logging.CRITICAL)
    return execute(scenario_file.load(SCENARIO, seed), seed)


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    settings: dict[str, object] = {key: getattr(args, key) for key in ("seeds", "first_seed")}
    report = frame("convergence-200", Path(tempfile.gettempdir()), settings, args.first_seed)
    plan = scenario_file.load(SCENARIO, args.first_seed)
    tables_s: list[float] = []
    messages_s: list[float] = []
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for result in pool.imap(run, range(args.first_seed, args.first_seed + args.seeds)):
            found = result.metrics
            if not result.ok or "tables_right_s" not in found or "convergence_s" not in found:
                print(f"seed {result.seed}: {result.failure or 'no cut moved a message'}", file=sys.stderr)
                return 1
            tables_s.append(found["tables_right_s"])
            messages_s.append(found["convergence_s"])
            progress(f"seed {result.seed}: tables right after {tables_s[-1]} s, a message after {messages_s[-1]} s")
    report |= {
        "nodes": len(plan.topology.nodes),
        "probe_s": plan.topology.keepalive_s,
        "cuts": len(plan.faults),
        "goal_below_s": GOAL_S,
        "tables_right_s": spread(tables_s, 3),
        "first_message_s": spread(messages_s, 3),
    }
    emit(report, args.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
