"""The simulator's speed: hops a second on one core, all checkers on, at the depth of frames and at that of bytes.

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

from holdfast.core.config import QueueConfig
from holdfast.harness.plan import Plan
from holdfast.harness.sim.run import Result, execute
from holdfast.harness.topology import Link, LinkShape, Topology

GOAL_HOPS_PER_S = 100_000
LEAST_HOPS_PER_S = 30_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=16, help="in a line (default %(default)s)")
    parser.add_argument("--messages", type=int, default=10_000, help="in each run (default %(default)s)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs at each depth (default %(default)s)")
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


class Depth:
    """The runs at one depth."""

    def __init__(self) -> None:
        self.hops = 0
        self.digests: set[str] = set()
        self.hops_per_s: list[float] = []
        self.hops_per_cpu_s: list[float] = []
        self.virtual_s = 0.0

    def add(self, result: Result, cpu_s: float) -> None:
        self.hops = result.hops
        self.virtual_s = result.virtual_s
        self.digests.add(result.digest)
        self.hops_per_s.append(result.hops / result.wall_s)
        self.hops_per_cpu_s.append(result.hops / cpu_s)

    def report(self) -> dict[str, object]:
        return {
            "hops": self.hops,
            "virtual_s": round(self.virtual_s, 3),
            "hops_per_s": spread(self.hops_per_s),
            "hops_per_cpu_s": spread(self.hops_per_cpu_s),
        }


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    logging.disable(logging.CRITICAL)
    plan = plan_of(args.nodes, args.messages, args.size)
    depths = {"frames": Depth(), "bytes": Depth()}
    settings: dict[str, object] = {
        key: getattr(args, key) for key in ("nodes", "messages", "size", "repeat", "seed")
    } | {"checkers": True, "cores": 1}
    report = frame("simulator", Path(tempfile.gettempdir()), settings, args.seed)
    for number in range(args.repeat):
        for depth, runs in depths.items():
            began = process_time()
            result = execute(plan, args.seed, depth=depth)
            if not result.ok:
                print(f"simulator: {result.failure}", file=sys.stderr)
                return 1
            runs.add(result, process_time() - began)
            progress(f"run {number + 1} {depth}: {runs.hops_per_s[-1]:,.0f} hops/s of {result.hops:,}")
    digests = set().union(*(runs.digests for runs in depths.values()))
    report |= {depth: runs.report() for depth, runs in depths.items()}
    # The depths run the very same history, so do two runs of one seed.
    report |= {
        "goal_hops_per_s": GOAL_HOPS_PER_S,
        "least_hops_per_s": LEAST_HOPS_PER_S,
        "one_history": len(digests) == 1,
    }
    emit(report, args.json_out)
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
