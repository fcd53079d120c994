"""Queues that sort by priority, beside one that does not: messages a second, live and from a backlog.

Each repetition sends to fresh queues: to one that hands out what came first, with one priority (`uniform`) and with
priorities drawn from 0 to 9 (`drawn`), and to one that sorts, with the same (`sorts-uniform`, `sorts-drawn`). `live`: a
receiver takes what a sender sends; `backlog`: what was sent before is taken. The cases take turns within a repetition,
and each rate is compared with the same repetition's of `uniform`. Prints one JSON object; progress on standard error.
`python benchmarks/macro/sorting.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import _process as process
from _figures import spread
from _load_run import Load, LoadFailed
from _peers import Holdfast, PeerMissing
from _report import begin, emit, progress

from holdfast.client import connect

AGAINST = "uniform"
FIGURE = "sorts-drawn"
PHASES = ("live", "backlog")


class Case(NamedTuple):
    sorts: bool
    drawn: bool


CASES = {
    "uniform": Case(sorts=False, drawn=False),
    "drawn": Case(sorts=False, drawn=True),
    "sorts-uniform": Case(sorts=True, drawn=False),
    "sorts-drawn": Case(sorts=True, drawn=True),
}

Rates = dict[str, list[float]]
"""By `CASE PHASE`, one for each repetition: messages a second, or microseconds of the node's processor time for one."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=60_000, help="of a phase (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="of the receiver (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


async def _create(url: str, name: str, sorts: bool) -> None:
    async with await connect(url) as connection:
        await connection.manage("CREATE", "holdfast:queue", name, {"priorities": sorts})


def repeat_once(
    peer: Holdfast, name: str, phase: str, turn: int, options: argparse.Namespace, directory: Path
) -> tuple[float, float]:
    """One repetition on a fresh queue: messages a second, and microseconds of the node's processor time for each."""
    case = CASES[name]
    queue = f"sorting-{name}-{phase}-{turn}"
    messages = options.messages if turn else max(1, options.messages // 5)
    asyncio.run(_create(f"amqp://{peer.host}:{peer.port}", queue, case.sorts))

    def load(**halves: bool) -> Load:
        return Load(
            peer, queue, directory, size=options.size, credit=options.credit, shared=True, priorities=case.drawn,
            unordered=case.sorts, **halves,
        )  # fmt: skip

    if phase == "backlog":
        with load(receives=False) as first:
            first.run(messages)
    with load(sends=phase == "live") as one:
        before = process.cpu_s(peer.pid)
        result = one.run(messages)
        cpu_us = (process.cpu_s(peer.pid) - before) / result.messages * 1e6
    progress(f"{queue}: {messages:,} at {result.messages_per_s:,.0f}/s, {cpu_us:.1f} us of the node for each")
    return result.messages_per_s, cpu_us


def measure(peer: Holdfast, options: argparse.Namespace, directory: Path, rates: Rates, cpu: Rates) -> None:
    """All repetitions on one node, the cases in turn within each; the first of them is a warm-up."""
    for turn in range(options.repeat + 1):
        for phase in PHASES:
            for name in CASES:
                rate, cpu_us = repeat_once(peer, name, phase, turn, options, directory)
                if turn:
                    rates.setdefault(f"{name} {phase}", []).append(rate)
                    cpu.setdefault(f"{name} {phase}", []).append(cpu_us)


def ratios(rates: Rates) -> dict[str, object]:
    """Messages a second over those of AGAINST in the same phase, repetition by repetition."""
    found: dict[str, object] = {}
    for key, mine in rates.items():
        name, _, phase = key.partition(" ")
        if name != AGAINST:
            base = rates[f"{AGAINST} {phase}"]
            found[key] = spread([one / other for one, other in zip(mine, base, strict=True)], 2)
    return found


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("sorting", options)
    absent: dict[str, str] = {}
    rates: Rates = {}
    cpu: Rates = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        peer = Holdfast()
        try:
            peer.start(Path(made) / "node")
            measure(peer, options, Path(made), rates, cpu)
        except (PeerMissing, LoadFailed) as failed:
            absent["holdfast"] = str(failed)
            rates = {}
        finally:
            peer.stop()
    report["figure"] = spread(rates[f"{FIGURE} live"]) if rates else None
    report["ratio"] = ratios(rates)
    report["messages_per_s"] = {key: spread(found) for key, found in rates.items()}
    report["cpu_us_per_message"] = {key: spread(found, 1) for key, found in cpu.items()} if rates else {}
    emit(report, options.json_out, absent)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
