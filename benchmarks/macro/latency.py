"""Latency: durable messages at a rate, each from its write to its arrival, beside RabbitMQ and a bare commit.

One sender and one receiver in one load process, so that both ends are read from one clock. The peers and the bare
commits take turns within each repetition. Prints one JSON object; progress on standard error.
`python benchmarks/macro/latency.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import _process as process
from _commit import file_commits, store_commits
from _figures import spread
from _load_run import LoadFailed, PacedLoad
from _paced import QUANTILES, quantiles
from _peers import Peer, make_peers, start_all
from _report import begin, emit, progress

FIGURE = "holdfast"
COMMIT, STORE_COMMIT = "file_commit", "store_commit"
LIMIT_FACTOR, LIMIT_MS = 2.0, 2.0
"""The goal for p99: this often a bare commit's p99 of the same repetition, plus so much."""
WARM_UP_SHARE = 0.2

Row = dict[str, float]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a repetition (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="the receiver's credit (default %(default)s)")
    parser.add_argument("--peers", default="holdfast,rabbitmq,native,bare", help="in this order (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def measure(peer: Peer, turn: int, options: argparse.Namespace, directory: Path) -> Row:
    """One repetition on a fresh queue, after a short one that is not counted."""
    messages = max(1, int(options.rate * options.seconds))
    with PacedLoad(peer, [f"latency-{peer.name}-{turn}"], directory, size=options.size, credit=options.credit) as load:
        load.run(max(1, int(messages * WARM_UP_SHARE)), options.rate)
        before = process.cpu_s(peer.pid)
        told = load.run(messages, options.rate)
        cpu_s = process.cpu_s(peer.pid) - before
    seconds = messages / told["messages_per_s"]
    row: Row = {name: told["receive"][name] for name in QUANTILES}
    row |= {f"settle_{name}": told["settle"][name] for name in QUANTILES}
    row |= {
        "messages_per_s": told["messages_per_s"],
        "late_p99_ms": told["late"]["p99_ms"],
        "held": told["held"],
        "broker_cores": cpu_s / seconds,
        "load_cores": told["cpu_s"] / seconds,
    }
    return row


def repetitions(
    peers: Sequence[Peer], options: argparse.Namespace, directory: Path, absent: dict[str, str]
) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {name: [] for name in (COMMIT, STORE_COMMIT, *(peer.name for peer in peers))}
    commits: dict[str, Callable[[Path, int, float, float], list[float]]] = {
        COMMIT: file_commits,
        STORE_COMMIT: store_commits,
    }
    for turn in range(options.repeat):
        for name, commit in commits.items():
            rows[name].append(quantiles(commit(directory, options.size, options.rate, options.seconds)))
            progress(f"{name} {turn}: p99 {rows[name][-1]['p99_ms']:.2f} ms")
        for peer in peers:
            if peer.name in absent:
                continue
            try:
                rows[peer.name].append(measure(peer, turn, options, directory))
            except LoadFailed as failed:
                absent[peer.name] = f"failed in repetition {turn}: {failed}"
                progress(f"{peer.name}: {absent[peer.name]}")
                continue
            progress(f"{peer.name} {turn}: p99 {rows[peer.name][-1]['p99_ms']:.2f} ms")
    return {name: found for name, found in rows.items() if found and name not in absent}


def ratios(rows: dict[str, list[Row]]) -> dict[str, object]:
    """The figure's p99 over each peer's, and over the goal's limit, repetition by repetition; the goal is below 1."""
    own = [row["p99_ms"] for row in rows.get(FIGURE, [])]
    others = {name: [row["p99_ms"] for row in found] for name, found in rows.items() if name != FIGURE}
    others["limit"] = [LIMIT_FACTOR * row["p99_ms"] + LIMIT_MS for row in rows[COMMIT]]
    goals = {"limit": 1.0, "rabbitmq_amqp10": 1.0, "rabbitmq_native": 1.0}
    return {
        name: {
            **spread([mine / other for mine, other in zip(own, values, strict=True)], 3),
            "goal_below": goals.get(name),
        }
        for name, values in others.items()
        if own
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        peers = list(make_peers(options.peers.split(",")))
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    base, report = begin("latency", options)
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        directory = Path(made)
        serving: list[Peer] = []
        try:
            serving = start_all(peers, directory, absent, progress)
            rows = repetitions(serving, options, directory, absent)
        finally:
            for peer in serving:
                peer.stop()
    results = {name: {key: spread([row[key] for row in found], 3) for key in found[0]} for name, found in rows.items()}
    report["figure"] = results[FIGURE]["p99_ms"] if FIGURE in results else None
    report["goal"] = f"p99 below {LIMIT_FACTOR:g} times {COMMIT}'s + {LIMIT_MS:g} ms, and below RabbitMQ's"
    report["ratio"] = ratios(rows)
    report["results"] = results
    report["settings_of"] = {peer.name: peer.settings() for peer in serving}
    emit(report, options.json_out, absent)
    return 0 if FIGURE in results else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
