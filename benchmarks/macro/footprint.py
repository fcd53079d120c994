"""Footprint of a node with one session: memory less the store's mapping, CPU at a low rate, bytes to disk.

Each repetition starts every peer anew: idle with a sender and a receiver attached, after `--burst` messages,
at `--rate` messages a second for `--seconds`, then `--messages` at full speed. Prints one JSON object;
progress on standard error. How to read it: benchmarks/README.md.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import _process as process
from _figures import spread
from _load_run import Load, LoadFailed
from _peers import Peer, PeerMissing, make_peers
from _report import begin, emit, progress

FIGURE = "holdfast"
GOALS = {"idle_mb": 45.0, "after_burst_mb": 50.0, "paced_mb": 60.0, "paced_cpu_percent": 3.0}
"""Most of each figure; the paper's bus took 80 MB and 10 % of a core."""
MB = 1_000_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="fresh starts of each peer (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--idle", type=float, default=5.0, help="idle seconds measured (default %(default)s)")
    parser.add_argument("--burst", type=int, default=1000, help="messages of the burst (default %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="at that rate (default %(default)s)")
    parser.add_argument("--messages", type=int, default=20_000, help="at full speed; 0: none (default %(default)s)")
    parser.add_argument("--peers", default="holdfast,rabbitmq,bare", help="in this order (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


class Phase:
    """What a peer's process used between start and `end`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.cpu_s, self.written = process.cpu_s(peer.pid), process.written_bytes(peer.pid)
        self.began = time.monotonic()

    def end(self, name: str, stored_bytes: int, sent_bytes: int, figures: dict[str, float]) -> None:
        """Note memory, CPU share and, where something was stored, bytes written to files for each stored byte.

        `sent_bytes` went to sockets through the same calls, and is taken off.
        """
        seconds = time.monotonic() - self.began
        used = process.memory(self.peer.pid, self.peer.mapping)
        figures[f"{name}_mb"] = used.own / MB
        figures[f"{name}_store_mapping_mb"] = used.store_mapping / MB
        figures[f"{name}_anonymous_mb"] = used.anonymous / MB
        figures[f"{name}_cpu_percent"] = 100 * (process.cpu_s(self.peer.pid) - self.cpu_s) / seconds
        if stored_bytes:
            written = process.written_bytes(self.peer.pid) - self.written - sent_bytes
            figures[f"{name}_written_per_stored_byte"] = max(0, written) / stored_bytes


def measure(peer: Peer, options: argparse.Namespace, directory: Path) -> dict[str, float]:
    """All phases over one pair of links of a peer that serves. Figures by name; MB are 10**6 bytes."""
    figures: dict[str, float] = {}
    with Load(peer, "footprint", directory, size=options.size, credit=200) as load:
        phase = Phase(peer)
        time.sleep(options.idle)
        phase.end("idle", 0, 0, figures)
        paced = int(options.rate * options.seconds)
        steps = (
            ("after_burst", options.burst, None),
            ("paced", paced, options.rate),
            ("full", options.messages, None),
        )
        for name, messages, rate in steps:
            if messages:
                phase = Phase(peer)
                result = load.run(messages, rate=rate, timeout_s=600.0 + options.seconds)
                phase.end(name, messages * options.size, result.read_bytes, figures)
    return figures


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("footprint", options)
    names = options.peers.split(",")
    runs: dict[str, list[dict[str, float]]] = {}
    about: dict[str, dict[str, object]] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        for turn in range(options.repeat):
            try:
                peers = list(make_peers(names))
            except ValueError as wrong:
                print(wrong, file=sys.stderr)
                return 2
            for peer in peers:
                directory = Path(made) / f"{peer.name}-{turn}"
                if peer.name in absent:
                    continue
                try:
                    peer.start(directory)
                    figures = measure(peer, options, directory)
                except (PeerMissing, LoadFailed) as failed:
                    absent[peer.name] = str(failed)
                    progress(f"{peer.name}: left out: {failed}")
                    continue
                finally:
                    peer.stop()
                runs.setdefault(peer.name, []).append(figures)
                about[peer.name] = peer.settings()
                progress(f"{peer.name} {turn}: {figures['idle_mb']:.1f} MB idle")
    results = {name: {key: spread([one[key] for one in rows], 2) for key in rows[0]} for name, rows in runs.items()}
    report["figure"] = {key: results[FIGURE][key]["median"] for key in GOALS} if FIGURE in results else None
    report["goals_at_most"] = GOALS
    report["ratio"] = {
        name: {key: _ratio(results[FIGURE][key], row[key]) for key in GOALS}
        for name, row in results.items()
        if name != FIGURE and FIGURE in results
    }
    report["results"] = {name: {**row, "settings": about[name]} for name, row in results.items()}
    emit(report, options.json_out, absent)
    return 1 if FIGURE in absent else 0


def _ratio(own: dict[str, object], other: dict[str, object]) -> float | None:
    """The figure's median over the peer's; None over nothing."""
    mine, theirs = own["median"], other["median"]
    assert isinstance(mine, float) and isinstance(theirs, float)
    return round(mine / theirs, 2) if theirs else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
