"""Many of everything: connections with a trickle each, queues, and a backlog of millions.

Parts, each on a node of its own: `connections` (beside RabbitMQ), `queues`, `backlog` (a deep queue beside an empty
one). Prints one JSON object; progress on standard error. `python benchmarks/macro/many.py --help`; how to read it:
benchmarks/README.md.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import _process as process
from _figures import spread
from _load_run import Load, LoadFailed, PacedLoad
from _peers import Holdfast, Peer, PeerMissing, make_peers, start_all
from _queues import make_queues, status
from _report import begin, emit, progress

FIGURE = "holdfast"
MB = 1_000_000
FILES_SPARE = 256
PAIR_BUFFER_BYTES = 1 << 16
PAIR_CREDIT = 10
DEEP, EMPTY = "deep", "empty"
GOALS = {"backlog_ratio_at_least": 0.8, "backlog_start_s_below": 2.0}
"""A rate with a deep backlog within 20 % of an empty queue's; a start with it under 2 s."""

Row = dict[str, float]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default="connections,queues,backlog", help="which (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of a timed part (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument(
        "--connections", type=int, default=1000, help="half of them senders, half receivers (default %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second over all (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of such a repetition (default %(default)s)")
    parser.add_argument("--queues", type=int, default=10_000, help="(default %(default)s)")
    parser.add_argument("--backlog", type=int, default=5_000_000, help="messages (default %(default)s)")
    parser.add_argument("--messages", type=int, default=100_000, help="of a repetition beside it (default %(default)s)")
    parser.add_argument("--peers", default="holdfast,rabbitmq,native", help="under `connections` (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def allow_files(count: int) -> None:
    """This process and those it starts may have so many descriptors; SystemExit where the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SystemExit(f"--connections: {count} descriptors are needed, the system allows {hard} (ulimit -n)")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def memory(peer: Peer, name: str) -> Row:
    used = process.memory(peer.pid, peer.mapping)
    return {
        f"{name}_mb": used.own / MB,
        f"{name}_anonymous_mb": used.anonymous / MB,
        f"{name}_store_mapping_mb": used.store_mapping / MB,
    }


def report_rows(rows: Sequence[Row]) -> dict[str, object]:
    return {key: spread([row[key] for row in rows], 3) for key in rows[0]}


# --- connections ----------------------------------------------------------------------------------


class Crowd:
    """The connections to one peer, which stay through all repetitions, and what each of those gave."""

    def __init__(self, peer: Peer, options: argparse.Namespace, directory: Path) -> None:
        self.peer, self.options = peer, options
        names = [f"many-{peer.name}-{number}" for number in range(max(1, options.connections // 2))]
        self.common = memory(peer, "before")
        self.load = PacedLoad(
            peer, names, directory, size=options.size, credit=PAIR_CREDIT, buffer_bytes=PAIR_BUFFER_BYTES
        )
        try:
            self.common |= {"attach_s": self.load.attach_s, **memory(peer, "attached")}
            self.load.run(2 * len(names), options.rate)  # each link has moved something before it counts
        except BaseException:
            self.finish()
            raise
        self.rows: list[Row] = []

    def repeat(self) -> None:
        options = self.options
        cpu_s = process.cpu_s(self.peer.pid)
        told = self.load.run(max(1, int(options.rate * options.seconds)), options.rate)
        cpu_s = process.cpu_s(self.peer.pid) - cpu_s
        seconds = told["messages"] / told["messages_per_s"]
        row = {
            "messages_per_s": told["messages_per_s"],
            "wait_p99_ms": told["receive"]["p99_ms"],
            "wait_max_ms": told["receive"]["max_ms"],
            "settle_max_ms": told["settle"]["max_ms"],
            "late_p99_ms": told["late"]["p99_ms"],
            "broker_cores": cpu_s / seconds,
            "load_cores": told["cpu_s"] / seconds,
        }
        self.rows.append({**row, **self.common, **memory(self.peer, "after")})
        progress(f"{self.peer.name}: {row['messages_per_s']:,.0f}/s, longest wait {row['wait_max_ms']:.1f} ms")

    def finish(self) -> None:
        self.load.finish()


def connections(options: argparse.Namespace, directory: Path) -> dict[str, object]:
    """The peers in turn within each repetition; one that fails is left out from then on."""
    absent: dict[str, str] = {}
    serving: list[Peer] = []
    crowds: list[Crowd] = []
    try:
        serving = start_all(list(make_peers(options.peers.split(","))), directory, absent, progress)
        for turn in range(options.repeat + 1):
            for peer in [peer for peer in serving if peer.name not in absent]:
                try:
                    if not turn:
                        crowds.append(Crowd(peer, options, directory))
                        progress(f"{peer.name}: {options.connections} attached in {crowds[-1].load.attach_s:.1f} s")
                    else:
                        next(crowd for crowd in crowds if crowd.peer is peer).repeat()
                except LoadFailed as failed:
                    absent[peer.name] = str(failed)
                    progress(f"{peer.name}: left out: {failed}")
    finally:
        try:
            for crowd in crowds:
                crowd.finish()
        finally:
            for peer in serving:
                peer.stop()
    found = {crowd.peer.name: crowd.rows for crowd in crowds if crowd.peer.name not in absent}
    waits = {name: [row["wait_max_ms"] for row in rows] for name, rows in found.items()}
    own = waits.pop(FIGURE, None)
    if own is None:
        raise RuntimeError(f"connections: {absent.get(FIGURE, f'{FIGURE} is not among --peers')}")
    return {
        "figure": spread(own, 3),
        "ratio": {
            name: spread([mine / theirs for mine, theirs in zip(own, others, strict=True)], 3)
            for name, others in waits.items()
        },
        "results": {name: report_rows(rows) for name, rows in found.items()},
        "absent": absent,
    }


# --- queues ---------------------------------------------------------------------------------------


def start_timed(peer: Peer, directory: Path) -> float:
    """Seconds from the command to `ready`."""
    began = time.monotonic()
    peer.start(directory)
    return time.monotonic() - began


def queues(options: argparse.Namespace, directory: Path) -> dict[str, object]:
    """Made, asked for, and there again after the node ended in order; RuntimeError where one is missing."""
    peer = Holdfast()
    row: Row = {"empty_start_s": start_timed(peer, directory / "node")}
    try:
        row |= memory(peer, "empty")
        url = f"amqp://{peer.host}:{peer.port}"
        row["make_s"] = make_queues(url, "queue", options.queues, options.size)
        progress(f"{options.queues:,} queues made in {row['make_s']:.1f} s")
        row |= memory(peer, "made")
        row["status_s"] = statistics.median([status(url)[0] for _ in range(options.repeat)])
        row |= memory(peer, "told")
        starts: list[float] = []
        for _ in range(options.repeat):
            peer.stop()
            starts.append(start_timed(peer, directory / "node"))
        row |= memory(peer, "restarted")
        _, there = status(f"amqp://{peer.host}:{peer.port}")
        lacking = [number for number in range(options.queues) if there.get(f"queue-{number}") != 1]
        if lacking:
            raise RuntimeError(f"queue-{lacking[0]} and {len(lacking) - 1} more do not hold their message")
    finally:
        peer.stop()
    figures: dict[str, object] = {key: round(value, 3) for key, value in row.items()}
    return {"figure": spread(starts, 3), "results": {FIGURE: {**figures, "start_s": spread(starts, 3)}}}


# --- backlog --------------------------------------------------------------------------------------


def drop_page_cache(path: Path) -> None:
    """What the kernel caches of `path` is forgotten; a node must not hold it open for writing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Backlog:
    """The deep queue: what lies in it carries the numbers from `first` to `next` - 1."""

    def __init__(self, peer: Peer, options: argparse.Namespace, directory: Path) -> None:
        self.peer, self.directory, self.options = peer, directory, options
        self.first = self.next = 0

    def fill(self) -> Row:
        """Messages a second, and memory after a tenth of them and after all: what the load costs is in both."""
        count = self.options.backlog
        tenth = max(1, count // 10)
        with Load(self.peer, DEEP, self.directory, size=self.options.size, credit=1, receives=False) as load:
            load.run(tenth, timeout_s=count / 1000 + 600)
            row = memory(self.peer, "tenth")
            result = load.run(count - tenth, timeout_s=count / 1000 + 600)
        self.next = count
        progress(f"filled {count:,} at {result.messages_per_s:,.0f}/s")
        return {**row, "fill_messages_per_s": result.messages_per_s, **memory(self.peer, "filled")}

    def rate(self, queue: str, first: int, upcoming: int) -> float:
        """Messages a second, sent to the queue's end while as many are received from its head."""
        with Load(
            self.peer, queue, self.directory, size=self.options.size, credit=2000, exact=True,
            first_number=upcoming, first_awaited=first,
        ) as load:  # fmt: skip
            return load.run(self.options.messages).messages_per_s

    def deep_rate(self) -> float:
        found = self.rate(DEEP, self.first, self.next)
        self.first += self.options.messages
        self.next += self.options.messages
        return found


def backlog(options: argparse.Namespace, directory: Path) -> dict[str, object]:
    peer = Holdfast()
    place = directory / "node"
    rates: dict[str, list[float]] = {EMPTY: [], DEEP: []}
    starts: dict[str, list[float]] = {"start_s": [], "cold_start_s": []}
    row: Row = {"empty_start_s": start_timed(peer, place)}
    try:
        row |= memory(peer, "empty")
        deep = Backlog(peer, options, directory)
        row |= deep.fill()
        for turn in range(options.repeat + 1):
            empty, full = deep.rate(f"empty-{turn}", 0, 0), deep.deep_rate()
            progress(f"empty queue {empty:,.0f}/s, with {deep.next - deep.first:,} waiting {full:,.0f}/s")
            if turn:  # the first is a warm-up
                rates[EMPTY].append(empty)
                rates[DEEP].append(full)
        row |= memory(peer, "after")
        for _ in range(options.repeat):
            for name, took in starts.items():
                peer.stop()
                if name == "cold_start_s":
                    drop_page_cache(place / "store" / "data.mdb")
                took.append(start_timed(peer, place))
                progress(f"{name} {took[-1]:.2f}")
        row |= memory(peer, "restarted")
        _, there = status(f"amqp://{peer.host}:{peer.port}")
        if there.get(f"{DEEP}-0") != options.backlog:
            raise RuntimeError(f"{there.get(f'{DEEP}-0')} messages wait after the restart, not {options.backlog}")
        row["store_bytes_per_message"] = (place / "store" / "data.mdb").stat().st_blocks * 512 / options.backlog
    finally:
        peer.stop()
    return {
        "figure": spread(rates[DEEP]),
        "ratio": {EMPTY: spread([mine / other for mine, other in zip(rates[DEEP], rates[EMPTY], strict=True)], 3)},
        "results": {
            FIGURE: {
                **{key: round(value, 3) for key, value in row.items()},
                **{f"{name}_messages_per_s": spread(found) for name, found in rates.items()},
                **{name: spread(took, 3) for name, took in starts.items()},
            }
        },
    }


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, object]]] = {
    "connections": connections,
    "queues": queues,
    "backlog": backlog,
}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = options.parts.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"invalid value {unknown[0]} for --parts; expected {', '.join(PARTS)}", file=sys.stderr)
        return 2
    allow_files(options.connections + FILES_SPARE)
    base, report = begin("many", options)
    report["goals"] = GOALS
    parts: dict[str, object] = {}
    absent: dict[str, str] = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
            try:
                parts[name] = PARTS[name](options, Path(made))
            except (LoadFailed, PeerMissing, RuntimeError) as failed:
                absent[name] = str(failed)
                progress(f"{name}: {failed}")
    report["parts"] = parts
    emit(report, options.json_out, absent)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
