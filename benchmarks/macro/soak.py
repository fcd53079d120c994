"""Soak: an honest load at a third of full speed beside hostile clients of every kind, for an hour, on one real node.

Full speed is measured first; then the honest load is alone and beside them by turns, so that a disk or machine that is
slower for some minutes is so for both. Goals: the honest load loses nothing and its p99 stays within twice its value
alone, the node's own memory stays within 10 MB after a warm-up, the node lives.
Prints one JSON object; progress on standard error; exit code 1 where a goal is missed.
`python benchmarks/macro/soak.py --minutes 2` is its short form.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _process as process
from _figures import spread
from _hostile import OWN
from _load_run import LoadFailed, LoadProcess, PacedLoad
from _peers import Holdfast, Peer, PeerMissing
from _report import begin, emit, progress

P99_FACTOR, MEMORY_MB = 2.0, 10.0
MB = 1_000_000
SLICE_S = 10.0
"""A slice of the honest load: one p99, and one sample of memory behind it."""
ALONE_SLICES_MIN, WARM_UP_SLICES_MIN = 3, 3
ALONE_SHARE, WARM_UP_SHARE = 0.1, 0.2
"""Of the time asked for: how long the honest load is alone besides, and how long memory may still grow."""
ROUNDS_MAX, ROUND_SLICES_MIN = 10, 6
"""How often the honest load is alone, and how many slices beside hostile clients follow each time."""
FULL_MESSAGES = 20_000
UNPACED = 1e6
SHARE = 1 / 3
CONFIG = f"""
[node]
name = "bench"
create_queues = true

[limits]
queues_max = 200
subscriptions_max = 200
producers_max = 500
resume_links_max = 200
resume_tags_max = 1_000
dynamic_bytes_max = 4_000_000
passed_max = 500

{"".join(f'[[queue]]{chr(10)}name = "{name}"{chr(10)}messages_max = 1_000{chr(10)}' for name in OWN)}"""
"""Tables that a year would fill are full after minutes."""


class Bounded(Holdfast):
    """The node with a configuration whose tables fill early."""

    def start(self, directory: Path, trace: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "node.toml"
        config.write_text(CONFIG)
        words = ["node", str(config), "--listen", "127.0.0.1:0", "--data", str(directory / "store")]
        self._start_ready([sys.executable, "-m", "holdfast", *words], directory, trace)

    def settings(self) -> dict[str, object]:
        return {"command": "python -m holdfast node CONFIG --listen 127.0.0.1:0 --data DIR", "config": CONFIG}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="beside hostile clients (default %(default)s)")
    parser.add_argument("--clients", type=int, default=20, help="hostile connections at a time (default %(default)s)")
    parser.add_argument("--pause", type=float, default=0.2, help="a client's mean seconds between acts (%(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of an honest body (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="the honest receiver's credit (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the hostile clients (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def own_mb(peer: Peer) -> float:
    return process.memory(peer.pid, peer.mapping).own / MB


def slices(load: PacedLoad, peer: Peer, rate: float, seconds: float) -> list[dict[str, float]]:
    """The honest load for so long, slice by slice. Raises LoadFailed where a message is lost or late without end."""
    found = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        told = load.run(max(1, int(rate * SLICE_S)), rate)
        row = {"p50_ms": told["receive"]["p50_ms"], "p99_ms": told["receive"]["p99_ms"], "own_mb": own_mb(peer)}
        row["late_p99_ms"], row["messages_per_s"] = told["late"]["p99_ms"], told["messages_per_s"]
        found.append(row)
        progress(f"p99 {row['p99_ms']:.2f} ms, {row['messages_per_s']:.0f} messages/s, {row['own_mb']:.1f} MB")
    return found


def soak(peer: Peer, options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """All phases; what was measured."""
    seconds = options.minutes * 60.0
    with PacedLoad(peer, ["honest"], directory, size=options.size, credit=options.credit) as load:
        load.run(FULL_MESSAGES // 5, UNPACED)
        full = float(load.run(FULL_MESSAGES, UNPACED)["messages_per_s"])
        rate = full * SHARE
        progress(f"full speed {full:.0f} messages/s, from now on {rate:.0f}")
        rounds = max(1, min(ROUNDS_MAX, int(seconds / (ROUND_SLICES_MIN * SLICE_S))))
        alone_s = max(ALONE_SLICES_MIN * SLICE_S, seconds * ALONE_SHARE) / rounds
        alone = slices(load, peer, rate, alone_s)
        told = {
            "host": peer.host, "port": peer.port, "seed": options.seed, "clients": options.clients,
            "pause_s": options.pause,
        }  # fmt: skip
        hostile = LoadProcess("_hostile.py", "hostile", told, directory / "hostile")
        try:
            hostile.answer(60.0)
            beside: list[dict[str, float]] = []
            cores = []
            for number in range(rounds):
                if number:
                    _order(hostile, {"rest": True})
                    alone += slices(load, peer, rate, alone_s)
                    _order(hostile, {"rest": False})
                before, began = process.cpu_s(peer.pid), time.monotonic()
                beside += slices(load, peer, rate, seconds / rounds)
                cores.append((process.cpu_s(peer.pid) - before) / (time.monotonic() - began))
            done = _order(hostile, {"tell": True})
        finally:
            hostile.finish()
    return {
        "full_per_s": full, "rate": rate, "alone": alone, "beside": beside, "node_cores": statistics.mean(cores),
        "hostile": done,
    }  # fmt: skip


def _order(hostile: LoadProcess, told: dict[str, object]) -> dict[str, Any]:
    hostile.order(told)
    return hostile.answer(60.0)


def judged(found: dict[str, Any], log: str) -> dict[str, Any]:
    """The figures that the goals are about, and whether each is met."""
    alone, beside = found["alone"], found["beside"]
    warm = min(len(beside) - 1, max(WARM_UP_SLICES_MIN, int(len(beside) * WARM_UP_SHARE)))
    memory = [row["own_mb"] for row in beside[warm:]]
    p99_alone = statistics.median(row["p99_ms"] for row in alone)
    p99_beside = statistics.median(row["p99_ms"] for row in beside)
    quarter = max(1, len(memory) // 4)
    growth = statistics.median(memory[-quarter:]) - statistics.median(memory[:quarter])
    figures = {
        "p99_alone_ms": round(p99_alone, 3),
        "p99_beside_ms": round(p99_beside, 3),
        "p99_ratio": round(p99_beside / p99_alone, 3),
        "memory_mb": spread(memory, 1),
        "memory_spread_mb": round(max(memory) - min(memory), 1),
        "memory_growth_mb": round(growth, 1),
        "warm_up_slices": warm,
        "node_errors": [line for line in log.splitlines() if " ERROR " in line or "Traceback" in line][:20],
    }
    met = {
        f"p99 within {P99_FACTOR:g} times its value alone": p99_beside <= P99_FACTOR * p99_alone,
        f"memory within {MEMORY_MB:g} MB after the warm-up": max(memory) - min(memory) <= MEMORY_MB,
        "no error in the node's log": not figures["node_errors"],
    }
    return {"figures": figures, "goals_met": met}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("soak", options)
    report["seed"] = options.seed
    failure = ""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made:
        peer = Bounded()
        log = Path(made) / "node" / "log"
        try:
            peer.start(Path(made) / "node")
            found = soak(peer, options, Path(made))
            report |= judged(found, log.read_text()) | {"slices": found}
        except (PeerMissing, LoadFailed) as failed:
            failure = str(failed)
        finally:
            code = None if peer.process is None else peer.process.poll()
            peer.stop()
        if code is not None:
            failure = f"the node ended with {code}: {log.read_text()[-2_000:]}"
    report["settings_of"] = peer.settings()
    report["failure"] = failure
    emit(report, options.json_out)
    return 0 if not failure and all(report["goals_met"].values()) else 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
