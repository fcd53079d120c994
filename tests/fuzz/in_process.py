"""The fuzzer without sockets: hostile clients by the ten thousand against a NodeCore in memory, its limits drawn too.

    python tests/fuzz/in_process.py --streams 100000 --seed 7
    python tests/fuzz/in_process.py --seed 7 --batch 31 --verbose       what batch 31 of that seed said, act by act

A batch is one node with drawn limits and STREAMS hostile connections, up to three at a time; an honest client beside
them must get each message back. A node that dies is a finding: its stream is printed with the command that runs the
batch again, and the node starts anew on its store. CPU time is measured for each turn. JSON on standard output.
"""

import argparse
import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.findings import Report
from fuzz.world import World

STREAMS = 50
"""Of one batch."""


def run_batch(seed: int, batch: int, *, tell: Callable[[str], None] | None = None) -> Report:
    """One batch in this process."""
    report = Report()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection in the middle of a turn would be taken for its work
    try:
        World(seed, batch, report, tell=tell).run(STREAMS)
    finally:
        if collecting:
            gc.enable()
    return report


def _work(told: tuple[int, int]) -> Report:
    return run_batch(*told)


def fuzz(seed: int, streams: int, jobs: int, *, first: int = 0) -> Report:
    """So many streams, rounded up to whole batches."""
    whole = Report()
    batches = [(seed, first + batch) for batch in range(-(-streams // STREAMS))]
    if jobs == 1:
        for told in batches:
            whole.merge(_work(told))
        return whole
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=200) as pool:
        for done, report in enumerate(pool.imap_unordered(_work, batches), 1):
            whole.merge(report)
            if done % 100 == 0:
                print(f"{whole.streams:,} streams, {whole.deaths} deaths", file=sys.stderr, flush=True)
    return whole


def told(report: Report, seed: int, seconds: float) -> dict[str, Any]:
    """The report as JSON has it."""
    findings = [
        {**asdict(finding), "count": report.counts[signature]}
        for signature, finding in sorted(report.findings.items(), key=lambda item: -report.counts[item[0]])
    ]
    return {
        "seed": seed, "streams": report.streams, "turns": report.turns, "deaths": report.deaths,
        "seconds": round(seconds, 1), "longest_turn_ms": round(report.longest_s * 1_000, 2),
        "longest_turn": report.longest, "turns_by_cpu_time": dict(report.histogram), "acts": dict(report.acts),
        "findings": findings,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Hostile streams against a node in memory; exit code 1 on a finding.")
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0, help="0: drawn, and printed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, help="that batch of the seed alone")
    parser.add_argument("--verbose", action="store_true", help="with --batch: every act, and the traceback")
    options = parser.parse_args()
    seed = options.seed or Random().randrange(1, 2**32)
    began = time.perf_counter()
    if options.batch is not None:
        report = run_batch(seed, options.batch, tell=print if options.verbose else None)
    else:
        report = fuzz(seed, options.streams, options.jobs)
    print(json.dumps(told(report, seed, time.perf_counter() - began), indent=1))
    for signature, finding in report.findings.items():
        print(f"{report.counts[signature]} x {signature}\n  {finding.replay}", file=sys.stderr)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
