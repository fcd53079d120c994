"""The simulator's speed: hops a second on one core, all checkers on.

A hop is a message retired from a transmission queue because the next node has it on its disk; the load is a line of
nodes with a producer at one end and a consumer at the other. Prints one JSON object; progress on standard error.
`python benchmarks/macro/simulator.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time

from _figures import spread
from _report import emit, frame, progress

from holdfast.settings.queues import QueueConfig
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute

GOAL_HOPS_PER_S = 100_000
LEAST_HOPS_PER_S = 30_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=16, help="in a line (default %(default)s)")
    parser.add_argument("--messages", type=int, default=10_000, help="in each run (default %(default)s)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of the seed (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json-out", type=Path, help="also write the report there")
    return parser.parse_args(arguments)


def plan_of(nodes: int, messages: int, size: int) -> Plan:
    names = tuple(f"n{number:02}" for number in range(1, nodes + 1))
    last = names[-1]
    return Plan(
        name="line",
        topology=Topology(
            nodes=names,
            links=tuple(Link(one=one, other=other, there=LinkShape()) for one, other in pairwise(names)),
            queues={last: (QueueConfig(name="work", order="strict"),)},
        ),
        workloads=(
            {"kind": "publish", "node": names[0], "address": f"work@{last}", "messages": messages, "size": size,
             "in_doubt": 1_000},
            {"kind": "consume", "node": last, "queue": "work", "credit": 1_000},
        ),
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    logging.disable(logging.CRITICAL)
    plan = plan_of(args.nodes, args.messages, args.size)
    settings: dict[str, object] = {
        key: getattr(args, key) for key in ("nodes", "messages", "size", "repeat", "seed")
    } | {"checkers": True, "cores": 1}
    report = frame("simulator", Path(tempfile.gettempdir()), settings, args.seed)
    runs: list[Result] = []
    hops_per_cpu_s: list[float] = []
    for number in range(args.repeat):
        began = process_time()
        result = execute(plan, args.seed)
        if not result.ok:
            print(f"simulator: {result.failure}", file=sys.stderr)
            return 1
        runs.append(result)
        hops_per_cpu_s.append(result.hops / (process_time() - began))
        progress(f"run {number + 1}: {result.hops / result.wall_s:,.0f} hops/s of {result.hops:,}")
    one_history = len({result.digest for result in runs}) == 1
    report |= {
        "hops": runs[0].hops,
        "virtual_s": round(runs[0].virtual_s, 3),
        "hops_per_s": spread([result.hops / result.wall_s for result in runs]),
        "hops_per_cpu_s": spread(hops_per_cpu_s),
        "goal_hops_per_s": GOAL_HOPS_PER_S,
        "least_hops_per_s": LEAST_HOPS_PER_S,
        "one_history": one_history,
    }
    emit(report, args.json_out)
    return 0 if one_history else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
