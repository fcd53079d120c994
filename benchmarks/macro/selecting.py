"""Selectors of consumers: messages with five properties and a subject, past no selector, one, and hundreds.

Each repetition sends to a fresh queue while receivers take what they select; messages that nobody selects stay. The
cases take turns within a repetition, and each rate is compared with the same repetition's without a selector. Prints
one JSON object; progress on standard error. `python benchmarks/macro/selecting.py --help`; how to read it:
benchmarks/README.md.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import _process as process
from _connection import CONNECTIONS_MAX
from _fan import Fan, Taker
from _figures import spread
from _load_run import LoadFailed
from _peers import Holdfast, PeerMissing
from _report import begin, emit, progress

FIGURE = "all"
AGAINST = "none"
CASES = "plain,none,all,half,hundredth,nonex4,allx4,nonex200,allx200,eachx200"
KINDS = {"plain": 0, "none": 1, "all": 1, "half": 2, "hundredth": 100}
"""Kinds of message that the sender sends in turn; 0: messages without properties. `each`: as many as consumers."""
BASE = "a = 'x' AND d > 1"
"""True of every message with properties."""
CREDIT_LEAST = 50
_CASE = re.compile(r"(?P<selects>[a-z]+)(x(?P<consumers>[1-9]\d{0,3}))?")


@dataclass(frozen=True, slots=True)
class Case:
    """`consumers` of one queue, all with one selector or none, or each with its own (`each`)."""

    name: str
    selects: str
    consumers: int

    @property
    def kinds(self) -> int:
        return self.consumers if self.selects == "each" else KINDS[self.selects]

    @property
    def selectors(self) -> int:
        """How many different ones: each looks at every message."""
        return {"plain": 0, "none": 0, "each": self.consumers}.get(self.selects, 1)

    def delivered(self, messages: int) -> int:
        """Of so many messages, a multiple of `kinds`."""
        return messages // self.kinds if self.selects in ("half", "hundredth") else messages

    def takers(self, queue: str) -> list[Taker]:
        """The last of the kinds is selected, so that the last message that counts is the last that is sent."""
        if self.selects == "each":
            return [
                Taker(address=queue, selector=f"{BASE} AND e = {kind}", stride=self.kinds, first_number=kind)
                for kind in range(self.kinds)
            ]
        last = max(0, self.kinds - 1)
        selector = None
        if self.selectors:
            selector = BASE if self.kinds == 1 else f"{BASE} AND e = {last}"
        shared = self.consumers > 1
        one = Taker(address=queue, selector=selector, stride=max(1, self.kinds), first_number=last, shared=shared)
        return [one] * self.consumers


def parse_case(text: str) -> Case:
    """SELECTION or SELECTIONxCONSUMERS; ValueError."""
    found = _CASE.fullmatch(text)
    if found is None or found["selects"] not in (*KINDS, "each"):
        raise ValueError(
            f"invalid value {text} for --cases; expected {', '.join(KINDS)} or each, and xCONSUMERS where there are "
            "several"
        )
    consumers = int(found["consumers"] or 1)
    if consumers > CONNECTIONS_MAX:
        raise ValueError(f"invalid value {text} for --cases; expected 1 to {CONNECTIONS_MAX} consumers")
    return Case(text, found["selects"], consumers)


class Runs:
    """The repetitions of one case, in order."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.messages = self.delivered = 0
        self.rate: list[float] = []
        self.deliveries: list[float] = []
        self.broker_cpu: list[float] = []
        self.load_cpu: list[float] = []

    def report(self) -> dict[str, object]:
        case = self.case
        return {
            "consumers": case.consumers,
            "selectors": case.selectors,
            "example": case.takers("")[0].selector,
            "messages": self.messages,
            "delivered": self.delivered,
            "messages_per_s": spread(self.rate),
            "deliveries_per_s": spread(self.deliveries),
            "looked_at_per_s": spread([rate * case.selectors for rate in self.rate]) if case.selectors else None,
            "broker_cores": spread(self.broker_cpu, 2),
            "load_cores": spread(self.load_cpu, 2),
        }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cases",
        default=CASES,
        help="SELECTION or SELECTIONxCONSUMERS, SELECTION one of plain (no properties, no selector), none, all, half, "
        "hundredth, each (its own for each consumer) (default %(default)s)",
    )
    parser.add_argument("--messages", type=int, default=50_000, help="of a repetition (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="of all receivers together (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def repeat_once(
    peer: Holdfast, case: Case, turn: int, options: argparse.Namespace, directory: Path, runs: Runs | None
) -> None:
    """One repetition on a fresh queue; noted in `runs` unless it is the warm-up (None)."""
    queue = f"selecting-{case.name}-{turn}"
    kinds = max(1, case.kinds)
    messages = max(kinds, (options.messages if runs else options.messages // 5) // kinds * kinds)
    credit = max(CREDIT_LEAST, options.credit // case.consumers)
    with Fan(peer, queue, case.takers(queue), directory, size=options.size, credit=credit, kinds=case.kinds) as load:
        before = process.cpu_s(peer.pid)
        result = load.run(messages, case.delivered(messages))
        broker_cpu_s = process.cpu_s(peer.pid) - before
    if runs is not None:
        runs.messages, runs.delivered = result.published, result.delivered
        runs.rate.append(result.published / result.seconds)
        runs.deliveries.append(result.delivered / result.seconds)
        runs.broker_cpu.append(broker_cpu_s / result.seconds)
        runs.load_cpu.append(result.load_cpu_s / result.seconds)
    progress(f"{queue}: {result.published:,} at {result.published / result.seconds:,.0f}/s")


def measure(
    cases: Sequence[Case], options: argparse.Namespace, directory: Path, absent: dict[str, str]
) -> dict[str, Runs]:
    """All repetitions on one node, the cases in turn within each; one that fails is left out."""
    peer = Holdfast()
    found = {case.name: Runs(case) for case in cases}
    peer.start(directory / "node")
    try:
        for turn in range(options.repeat + 1):
            for case in cases:
                if case.name in absent:
                    continue
                try:
                    repeat_once(peer, case, turn, options, directory, found[case.name] if turn else None)
                except LoadFailed as failed:
                    absent[case.name] = f"failed in repetition {turn}: {failed}"
                    progress(f"{case.name}: {absent[case.name]}")
    finally:
        peer.stop()
    return {name: runs for name, runs in found.items() if name not in absent}


def ratios(found: dict[str, Runs]) -> dict[str, object]:
    """Messages a second of each case over those of AGAINST, repetition by repetition."""
    base = found[AGAINST].rate if AGAINST in found else []
    return {
        name: spread([mine / other for mine, other in zip(runs.rate, base, strict=True)], 2)
        for name, runs in found.items()
        if base and name != AGAINST
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        cases = [parse_case(text) for text in options.cases.split(",")]
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    base, report = begin("selecting", options)
    absent: dict[str, str] = {}
    found: dict[str, Runs] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        try:
            found = measure(cases, options, Path(made), absent)
        except PeerMissing as missing:
            absent["holdfast"] = str(missing)
    report["figure"] = spread(found[FIGURE].rate) if FIGURE in found else None
    report["ratio"] = ratios(found)
    report["cases"] = {name: runs.report() for name, runs in found.items()}
    emit(report, options.json_out, absent)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
