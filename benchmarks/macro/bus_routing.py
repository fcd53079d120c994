"""The bus paper's test on sixteen real nodes of one machine: its table 1, its equations, and convergence in numbers.

esb-dynamic-routing §5, against `holdfast fleet up`. Parts, each on a fleet of its own: `table` (the test's steps and
the first synchronisation), `convergence` (links cut, loudly and silently), `load` (rising load in five classes, with
and without cuts: CPU, memory, loss), `alarms` (links called down though nobody cut them). Prints one JSON object;
`--merge` joins those of several runs. Progress on standard error. How to read it: benchmarks/README.md,
docs/results/bus-routing.md.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import _bus_parts as parts
import _bus_picture
from _bus_network import Network
from _report import begin, emit, progress

from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import cancel_on_signals

FILE = Path(__file__).with_name("bus-routing.toml")
Part = Callable[[Network, Path, argparse.Namespace], Awaitable[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "table": parts.table,
    "convergence": parts.convergence,
    "load": parts.load,
    "alarms": parts.alarms,
}
RATES = "10,20,40,80,120,160,200,250,300"
"""Nine; the last is what two cores just carry beside the load itself."""
QUICK = {"cuts": 1, "rates": "20", "step": 2.0, "alarm": 3.0, "parts": "convergence,load"}
"""What `--quick` puts in place of the defaults: the parts that fit into a minute."""


class Unmergeable(Exception):
    """Reports that are not of one benchmark at one commit; the text says which."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="in this order (default %(default)s)")
    parser.add_argument("--cuts", type=int, default=20, help="of each kind, loud and silent (default %(default)s)")
    parser.add_argument("--rates", default=RATES, help="steps: messages a second in all (default %(default)s)")
    parser.add_argument("--step", type=float, default=6.0, help="seconds of each step (default %(default)s)")
    parser.add_argument("--alarm", type=float, default=15.0, help="seconds of each watch (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one step, one cut of each kind: about a minute")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="JSON", help="reports to join; measures nothing")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw convergence and CPU (needs matplotlib)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    options = parser.parse_args(arguments)
    if options.quick:
        for key, value in QUICK.items():
            setattr(options, key, value)
    options.parts = options.parts.split(",")
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"invalid value {', '.join(unknown)} for --parts; expected {', '.join(PARTS)}")
    try:
        options.rates = [float(rate) for rate in options.rates.split(",")]
    except ValueError:
        parser.error(f"invalid value {options.rates} for --rates; expected numbers with commas between them")
    return options


def merged(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One report with the parts of all; where two have the same, the later one's. Raises Unmergeable."""
    first = reports[0]
    for report in reports:
        if report.get("benchmark") != "bus_routing":
            raise Unmergeable(f"invalid report of {report.get('benchmark')!r}; expected one of bus_routing")
        if report["commit"] != first["commit"]:
            commits = f"{first['commit'][:12]} and {report['commit'][:12]}"
            raise Unmergeable(f"the reports are of commits {commits}; give reports of one")
    results: dict[str, Any] = {}
    for report in reports:
        results.update(report["parts"])
    failed = {name: why for report in reports for name, why in report["failed"].items() if name not in results}
    commands = list(dict.fromkeys(report["command"] for report in reports))
    return {**first, "command": "; ".join(commands), "parts": results,
            "failed": failed, "load_average_after": reports[-1]["load_average_after"]}  # fmt: skip


async def measured(options: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Results by part, and why those failed that did. A signal ends the fleet that runs, too.

    A part fails by what the benchmark finds, by what the fleet's supervisor answers, or by what a client is told.
    """
    cancel_on_signals()
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in options.parts:
        place = directory / name
        place.mkdir()
        progress(f"part {name}")
        try:
            results[name] = await PARTS[name](Network(FILE), place, options)
        except (HoldfastError, ConnectionError, asyncio.CancelledError) as error:
            failed[name] = str(error) or "ended from outside"
            progress(f"part {name}: {failed[name]}")
            if isinstance(error, asyncio.CancelledError):
                break
    return results, failed


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.merge:
        try:
            report = merged([json.loads(file.read_text(encoding="utf-8")) for file in options.merge])
        except (Unmergeable, OSError, ValueError) as error:
            print(f"bus_routing: --merge: {error}", file=sys.stderr)
            return 2
    else:
        base, report = begin("bus_routing", options)
        with tempfile.TemporaryDirectory(prefix="holdfast-bus-", dir=base, ignore_cleanup_errors=True) as made:
            results, failed = asyncio.run(measured(options, Path(made)))
        report |= {"paper": parts.PAPER, "goals": parts.GOALS, "parts": results, "failed": failed}
    emit(report, options.json_out)
    if options.picture is not None:
        missing = [name for name in ("convergence", "load") if name not in report["parts"]]
        if missing:
            print(f"bus_routing: there is no part {missing[0]}; give --picture a report with it", file=sys.stderr)
            return 2
        _bus_picture.draw(report, options.picture)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
