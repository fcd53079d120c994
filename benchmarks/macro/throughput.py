"""Durable throughput: Holdfast beside RabbitMQ and a bare Python loop, in one run, interleaved.

Messages are durable and unsettled; a message counts when its sender has the acknowledgement and its receiver the
message. Cases differ in the body's size and in how many pairs of sender and receiver there are, on a queue each or
all on one. Prints one JSON object; progress on standard error. `python benchmarks/macro/throughput.py --help`; how
to read it: benchmarks/README.md.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import _process as process
from _connection import CONNECTIONS_MAX
from _figures import spread
from _load_run import Load, LoadFailed
from _peers import Peer, PeerMissing, make_peers, start_all
from _report import begin, emit, progress
from _syncs import count_syncs
from _tls import NO_IDENTITY, TlsMissing, cipher_of, make_identity
from _wire import BODY_BYTES_LEAST, BODY_BYTES_MAX

FIGURE = "holdfast"
BARE = "bare"
BARE_CASE = "1024"
"""The bare loop takes one pair and bodies of one frame; it is the measure of this case alone."""
PLAIN = "holdfast_plain"
GOALS = {"rabbitmq_amqp10": 6.0, "rabbitmq_native": 1.0, BARE: 0.5, PLAIN: 0.6}
"""Least ratio of the figure to each peer's, in the case of BARE_CASE; in the others it is reported. Of PLAIN, with
--tls: a node over TLS to one without."""
CASES = "1024,1024p,100,65536,1024x4,1024x4one"
SYNC_SIZE = 1024
LEAST_BYTES = 50_000_000
"""A repetition needs no more than this, whatever --messages says: 50,000 of 1 KB, 763 of 64 KB."""
CREDIT_BYTES_MAX = 16 << 20
"""A receiver's credit is not worth more than this in bodies."""
_CASE = re.compile(r"(?P<size>\d+)(?P<drawn>p)?(x(?P<pairs>\d+)(?P<one>one)?)?")


@dataclass(frozen=True, slots=True)
class Case:
    """`pairs` senders and as many receivers, on a queue for each pair or on one (`shared`); bodies of `size` bytes.
    `priorities`: they are drawn."""

    name: str
    size: int
    pairs: int
    shared: bool
    priorities: bool = False

    def least_messages(self, wanted: int) -> int:
        return max(1, min(wanted, LEAST_BYTES // self.size))

    def credit(self, wanted: int) -> int:
        return max(2, min(wanted, CREDIT_BYTES_MAX // self.size))


def parse_case(text: str) -> Case:
    """SIZE or SIZEp, alone or followed by xPAIRS or xPAIRSone; ValueError."""
    found = _CASE.fullmatch(text)
    if found is None or not BODY_BYTES_LEAST <= int(found["size"]) <= BODY_BYTES_MAX:
        raise ValueError(
            f"invalid value {text} for --cases; expected SIZE, SIZEp (drawn priorities), either with xPAIRS (a queue "
            f"for each pair) or xPAIRSone (one for all), SIZE from {BODY_BYTES_LEAST} to {BODY_BYTES_MAX} bytes"
        )
    pairs = int(found["pairs"] or 1)
    if not 1 <= pairs <= CONNECTIONS_MAX:
        raise ValueError(f"invalid value {text} for --cases; expected 1 to {CONNECTIONS_MAX} pairs")
    return Case(text, int(found["size"]), pairs, found["one"] is not None, found["drawn"] is not None)


class Runs:
    """The repetitions of one peer, in order: what they moved and what it cost."""

    def __init__(self) -> None:
        self.messages = 0
        self.rate: list[float] = []
        self.settled: list[float] = []
        self.broker_cpu: list[float] = []
        self.load_cpu: list[float] = []

    def report(self, peer: Peer) -> dict[str, object]:
        return {
            "messages": self.messages,
            "messages_per_s": spread(self.rate),
            "settled_per_s": spread(self.settled),
            "broker_cores": spread(self.broker_cpu, 2),
            "load_cores": spread(self.load_cpu, 2),
            "settings": peer.settings(),
        }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cases",
        default=CASES,
        help="SIZE, SIZEp (drawn priorities), SIZExPAIRS, SIZExPAIRSone (all on one queue) (default %(default)s)",
    )
    parser.add_argument(
        "--messages", type=int, default=50_000, help="least of a repetition, 50 MB at most (default %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="a fast peer gets more messages, to last this long by its warm-up's rate (default %(default)s)",
    )
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="a receiver's credit (default %(default)s)")
    parser.add_argument("--peers", default="holdfast,rabbitmq,native,bare", help="in this order (default %(default)s)")
    parser.add_argument(
        "--tls",
        action="store_true",
        help="over TLS, with a certificate made for the run (ECDSA, P-256); `plain` in --peers is a node without it, "
        "which is added where it is missing; the bare loop knows no TLS and is left out",
    )
    parser.add_argument("--sync-messages", type=int, default=20_000, help="in the counting pass; 0: no such pass")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def repeat_once(
    peer: Peer, case: Case, turn: int, messages: int, options: argparse.Namespace, directory: Path, runs: Runs | None
) -> float:
    """One repetition on fresh queues, messages a second; noted in `runs` unless it is the warm-up (None)."""
    queue = f"bench-{peer.name}-{case.name}-{turn}"
    credit = case.credit(options.credit)
    with Load(
        peer,
        queue,
        directory,
        size=case.size,
        credit=credit,
        connections=case.pairs,
        shared=case.shared,
        priorities=case.priorities,
    ) as load:
        before = process.cpu_s(peer.pid)
        result = load.run(messages)
        broker_cpu_s = process.cpu_s(peer.pid) - before
    if runs is not None:
        runs.messages = result.messages
        runs.rate.append(result.messages_per_s)
        runs.settled.append(result.messages / result.settle_seconds)
        runs.broker_cpu.append(broker_cpu_s / result.seconds)
        runs.load_cpu.append(result.load_cpu_s / result.seconds)
    progress(f"{peer.name} {queue}: {result.messages:,} at {result.messages_per_s:,.0f}/s")
    return result.messages_per_s


def timed_passes(
    peers: Sequence[Peer], case: Case, options: argparse.Namespace, directory: Path, absent: dict[str, str]
) -> dict[str, Runs]:
    """All repetitions of a case, the peers in turn within each; one that fails is left out of the case."""
    results = {peer.name: Runs() for peer in peers}
    messages: dict[str, int] = {}
    least = case.least_messages(options.messages)
    for turn in range(options.repeat + 1):
        for peer in peers:
            name, count = peer.name, messages.get(peer.name, max(case.pairs, least // 5))
            if name in absent:
                continue
            try:
                rate = repeat_once(peer, case, turn, count, options, directory, results[name] if turn else None)
            except LoadFailed as failed:
                absent[name] = f"failed in repetition {turn}: {failed}"
                progress(f"{case.name} {name}: {absent[name]}")
                continue
            if not turn:
                messages[name] = max(least, int(rate * options.seconds))
    return {name: runs for name, runs in results.items() if name not in absent}


def run_case(peers: Sequence[Peer], case: Case, options: argparse.Namespace, directory: Path) -> dict[str, object]:
    """The part of the report that is one case's."""
    absent: dict[str, str] = {}
    fit = [peer for peer in peers if peer.name != BARE or case.name == BARE_CASE]
    results = timed_passes(fit, case, options, directory, absent)
    return {
        "size": case.size,
        "pairs": case.pairs,
        "queues": 1 if case.shared else case.pairs,
        "figure": spread(results[FIGURE].rate) if FIGURE in results else None,
        "ratio": ratios(results, goals=case.name == BARE_CASE),
        "results": {peer.name: results[peer.name].report(peer) for peer in fit if peer.name in results},
        "absent": absent,
    }


def counting_pass(peer: Peer, server: Peer, options: argparse.Namespace, directory: Path) -> dict[str, object]:
    """Start `server` anew under strace, load `peer`, count the syncs of the load's time. Slow: not timed."""
    place, log = directory / f"{peer.name}-traced", directory / f"{peer.name}.strace"
    server.start(place, log)
    try:
        if peer is not server:
            peer.start(place)
        with Load(peer, "bench-sync", directory, size=SYNC_SIZE, credit=options.credit) as load:
            result = load.run(options.sync_messages)
    finally:
        server.stop()
    with log.open(errors="replace") as lines:
        counts = count_syncs(lines, result.wall_first, result.wall_last)
    total = sum(counts.values())
    progress(f"{peer.name}: {total} syncs for {result.messages} messages")
    return {
        **counts,
        "messages": result.messages,
        "messages_per_sync": round(result.messages / total, 1) if total else None,
    }


def counting_passes(peers: Sequence[Peer], options: argparse.Namespace, directory: Path) -> dict[str, object]:
    if not options.sync_messages:
        return {}
    if shutil.which("strace") is None:
        return {"absent": "strace is not installed: apt-get install strace"}
    found: dict[str, object] = {}
    for peer in peers:
        try:
            found[peer.name] = counting_pass(peer, getattr(peer, "server", peer), options, directory)
        except (PeerMissing, LoadFailed) as failed:
            found[peer.name] = {"absent": str(failed)}
            progress(f"{peer.name}: not counted: {failed}")
    return found


def ratios(results: dict[str, Runs], *, goals: bool) -> dict[str, object]:
    """The figure over each peer's, repetition by repetition: median and spread, beside the goal where it has one."""
    own = results[FIGURE].rate if FIGURE in results else []
    found: dict[str, object] = {}
    for name, runs in results.items():
        pairs = [mine / theirs for mine, theirs in zip(own, runs.rate, strict=False)]
        if name != FIGURE and pairs:
            found[name] = {**spread(pairs, 2), "goal": GOALS[name] if goals else None}
    return found


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = options.peers.split(",")
    if options.tls:
        names = [name for name in names if name != BARE]
        names += [] if "plain" in names else ["plain"]
    try:
        cases = [parse_case(text) for text in options.cases.split(",")]
        list(make_peers(names, NO_IDENTITY if options.tls else None))
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    base, report = begin("throughput", options)
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        directory = Path(made)
        try:
            identity = make_identity(directory / "tls") if options.tls else None
        except TlsMissing as missing:
            print(missing, file=sys.stderr)
            return 1
        peers = list(make_peers(names, identity))
        serving: list[Peer] = []
        try:
            serving = start_all(peers, directory, absent, progress)
            report["tls"] = {peer.name: cipher_of(peer.host, peer.port, peer.ca_file) for peer in serving}
            report["cases"] = found = {case.name: run_case(serving, case, options, directory) for case in cases}
        finally:
            for peer in serving:
                peer.stop()
        syncs = counting_passes(serving, options, directory)
    first = found[cases[0].name]
    report["figure"], report["ratio"] = first["figure"], first["ratio"]
    report["syncs"] = syncs
    emit(report, options.json_out, absent)
    return 0 if all(case["figure"] is not None for case in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
