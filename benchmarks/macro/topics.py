"""Topics: messages that are published once and go to one, ten or a hundred subscriptions, or to few of a hundred.

Each repetition publishes to a fresh topic, from one sender; each subscription has a connection of its own. The cases,
and Holdfast, RabbitMQ (topic exchange, AMQP 1.0 plug-in) and ActiveMQ (STOMP), take turns within a repetition. Prints
one JSON object; progress on standard error. `python benchmarks/macro/topics.py --help`; how to read it:
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
from _activemq import ActiveMq
from _connection import CONNECTIONS_MAX
from _fan import Fan, FanResult, Taker
from _figures import spread
from _load_run import LoadFailed
from _marked import digits
from _peers import Peer, make_peers, start_all
from _report import begin, emit, progress

FIGURE = "holdfast"
CASES = "durable1,durable10,durable100,patterns100,memory1,memory100"
CREDIT_LEAST = 100
BURST = 400
"""Messages at once to subscriptions that are not durable. A node keeps 1,000 messages or 1 MiB for one of them; so
many, and as many from before that are about to be settled, are within both."""
BURST_SIZE_MAX = 1100
"""Bytes of a body for which that holds: twice BURST of them, with 170 B of properties each, are below 1 MiB."""
_CASE = re.compile(r"(?P<kind>durable|patterns|memory)(?P<count>[1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Case:
    """`count` subscriptions: each wants everything (`durable`, or not durable: `memory`), or each an equal share by a
    pattern (`patterns`, durable)."""

    name: str
    kind: str
    count: int

    @property
    def kinds(self) -> int:
        return self.count if self.kind == "patterns" else 1

    @property
    def copies(self) -> int:
        """Deliveries of each message."""
        return 1 if self.kind == "patterns" else self.count

    @property
    def durable(self) -> bool:
        return self.kind != "memory"

    def messages(self, options: argparse.Namespace) -> int:
        """Of a repetition: a multiple of `kinds`, and of BURST where they go by bursts."""
        wanted = min(options.messages, options.deliveries // self.copies)
        step = self.kinds if self.durable else BURST
        return max(step, wanted // step * step)

    def takers(self, peer: Peer, topic: str) -> list[Taker]:
        return [
            Taker(
                address=peer.subscription(topic, f"*.{digits(index)}" if self.kinds > 1 else "#"),
                subscribes=True, durable=self.durable, stride=self.kinds, first_number=index % self.kinds,
            )
            for index in range(self.count)
        ]  # fmt: skip


def parse_case(text: str) -> Case:
    """KIND and a number of subscriptions; ValueError."""
    found = _CASE.fullmatch(text)
    if found is None or int(found["count"]) > CONNECTIONS_MAX:
        raise ValueError(
            f"invalid value {text} for --cases; expected durable, patterns or memory and 1 to {CONNECTIONS_MAX} "
            "subscriptions, as durable10"
        )
    return Case(text, found["kind"], int(found["count"]))


class Runs:
    """The repetitions of one case with one peer, in order."""

    def __init__(self) -> None:
        self.messages = self.delivered = 0
        self.published: list[float] = []
        self.deliveries: list[float] = []
        self.written: list[float] = []
        self.broker_cpu: list[float] = []
        self.load_cpu: list[float] = []

    def note(self, result: FanResult, written_bytes: int, broker_cpu_s: float) -> None:
        self.messages, self.delivered = result.published, result.delivered
        self.published.append(result.published / result.seconds)
        self.deliveries.append(result.delivered / result.seconds)
        self.written.append(max(0, written_bytes) / result.published)
        self.broker_cpu.append(broker_cpu_s / result.seconds)
        self.load_cpu.append(result.load_cpu_s / result.seconds)

    def report(self, peer: Peer) -> dict[str, object]:
        return {
            "messages": self.messages,
            "delivered": self.delivered,
            "deliveries_per_s": spread(self.deliveries),
            "messages_per_s": spread(self.published),
            "written_bytes_per_message": spread(self.written),
            "broker_cores": spread(self.broker_cpu, 2),
            "load_cores": spread(self.load_cpu, 2),
            "settings": {**peer.settings(), "queue": "of the subscription"},
        }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cases",
        default=CASES,
        help="durableN: N durable subscriptions to everything; patternsN: N durable ones, each to one Nth; memoryN: N "
        "to everything that are not durable (default %(default)s)",
    )
    parser.add_argument("--messages", type=int, default=20_000, help="of a repetition, at most (default %(default)s)")
    parser.add_argument(
        "--deliveries", type=int, default=200_000, help="of a repetition, at most (default %(default)s)"
    )
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="of all subscriptions together (default %(default)s)")
    parser.add_argument("--peers", default="holdfast,rabbitmq,activemq", help="in this order (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def load(fan: Fan, case: Case, messages: int) -> FanResult:
    """All at once where subscriptions are durable; else burst by burst, each when the former has come everywhere."""
    if case.durable:
        return fan.run(messages, messages * case.copies)
    bursts = [fan.run(BURST, BURST * case.copies) for _ in range(messages // BURST)]
    return FanResult(
        published=messages,
        delivered=messages * case.copies,
        seconds=sum(one.seconds for one in bursts),
        load_cpu_s=sum(one.load_cpu_s for one in bursts),
        read_bytes=sum(one.read_bytes for one in bursts),
    )


def repeat_once(
    peer: Peer, case: Case, turn: int, options: argparse.Namespace, directory: Path, runs: Runs | None
) -> None:
    """One repetition on a fresh topic; noted in `runs` unless it is the warm-up (None)."""
    topic = f"{case.name}-{turn}"
    credit = max(CREDIT_LEAST, options.credit // case.count)
    if not case.durable:
        credit = max(credit, 2 * BURST)
    with Fan(
        peer, peer.topic(topic), case.takers(peer, topic), directory, size=options.size, credit=credit,
        kinds=case.kinds, words=topic,
    ) as fan:  # fmt: skip
        cpu_s, written = process.cpu_s(peer.pid), process.written_bytes(peer.pid)
        result = load(fan, case, case.messages(options))
        written = process.written_bytes(peer.pid) - written - result.read_bytes
        cpu_s = process.cpu_s(peer.pid) - cpu_s
    if runs is not None:
        runs.note(result, written, cpu_s)
    rate = result.delivered / result.seconds
    progress(f"{peer.name} {topic}: {result.published:,} published, {result.delivered:,} delivered at {rate:,.0f}/s")


def run_case(
    case: Case, turns: Sequence[int], peers: Sequence[Peer], options: argparse.Namespace, directory: Path
) -> dict[str, object]:
    """The part of the report that is one case's: the peers in turn within each repetition."""
    found = {peer.name: Runs() for peer in peers}
    absent: dict[str, str] = {}
    for turn in turns:
        for peer in peers:
            if peer.name in absent:
                continue
            try:
                repeat_once(peer, case, turn, options, directory, found[peer.name] if turn else None)
            except LoadFailed as failed:
                absent[peer.name] = f"failed in repetition {turn}: {failed}"
                progress(f"{case.name} {peer.name}: {absent[peer.name]}")
    results = {peer.name: found[peer.name] for peer in peers if peer.name not in absent}
    own = results[FIGURE].deliveries if FIGURE in results else []
    return {
        "subscriptions": case.count,
        "durable": case.durable,
        "wanted_by_each_percent": round(100 / case.kinds, 2),
        "figure": spread(own) if own else None,
        "ratio": {
            name: spread([mine / theirs for mine, theirs in zip(own, runs.deliveries, strict=True)], 2)
            for name, runs in results.items()
            if own and name != FIGURE
        },
        "results": {peer.name: results[peer.name].report(peer) for peer in peers if peer.name in results},
        "absent": absent,
    }


def _peers(text: str) -> list[Peer]:
    """Those of `--peers`. ValueError."""
    names = text.split(",")
    if unknown := [name for name in names if name not in ("holdfast", "rabbitmq", "activemq")]:
        raise ValueError(f"invalid value {unknown[0]} for --peers; expected holdfast, rabbitmq, activemq")
    return [ActiveMq() if name == "activemq" else next(make_peers([name])) for name in names]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        peers = _peers(options.peers)
        cases = [parse_case(text) for text in options.cases.split(",")]
        if options.size > BURST_SIZE_MAX and not all(case.durable for case in cases):
            raise ValueError(f"invalid value {options.size} for --size; expected at most {BURST_SIZE_MAX} with memoryN")
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    base, report = begin("topics", options)
    absent: dict[str, str] = {}
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        directory = Path(made)
        serving: list[Peer] = []
        try:
            serving = start_all(peers, directory, absent, progress)
            for case in cases:
                found[case.name] = run_case(case, range(options.repeat + 1), serving, options, directory)
        finally:
            for peer in serving:
                peer.stop()
    report["figure"], report["ratio"] = (found[cases[0].name][key] for key in ("figure", "ratio"))
    report["cases"] = found
    emit(report, options.json_out, absent)
    return 0 if all(case["figure"] is not None for case in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
