"""Commits of the store beside a busy loop: ms a commit, entries/s, bytes written for each stored byte.

The store's thread commits batches of `--entries` entries of `--bytes` and retires the batch `--window` before;
the main thread runs Python without a pause, with the node's switch interval. Beside it in the same run: the same
batches as one write and one fdatasync to a file. Prints one JSON object on standard output.

    .venv/bin/python benchmarks/micro/store.py --json-out store.json
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore

SWITCH_INTERVAL_S = 0.0001


def batches(count: int, entries: int, size: int, window: int, queues: int) -> list[Batch]:
    """Values are made before the clock starts: they come from a socket in a node. Queue 9 keeps one entry."""
    body = os.urandom(size)
    return [
        Batch(
            appends=[(1 + place % queues, number * entries + place, body) for place in range(entries)],
            retires=[(1 + place % queues, (number - window) * entries + place) for place in range(entries)]
            if number >= window
            else [],
            puts={("node", b"number"): b"%d" % number},
        )
        for number in range(count)
    ]


def measure(commit: Callable[[Batch], None], work: list[Batch], *, busy: bool) -> dict[str, float]:
    """One pass over `work` in a thread of its own, the main thread spinning if `busy`."""
    durations: list[float] = []

    def run() -> None:
        for batch in work:
            started = time.perf_counter()
            commit(batch)
            durations.append(time.perf_counter() - started)

    spins = 0
    before_written, before_dirtied = io_bytes("wchar"), io_bytes("write_bytes")
    before_cpu = time.thread_time()
    started = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        while busy and not done.done():
            for _ in range(1_000):
                spins += 1
        done.result()
    elapsed = time.perf_counter() - started
    durations.sort()
    stored = sum(len(value) for batch in work for _, _, value in batch.appends)
    return {
        "entries_per_s": round(sum(len(batch.appends) for batch in work) / elapsed),
        "commit_ms_median": round(statistics.median(durations) * 1_000, 3),
        "commit_ms_p99": round(durations[len(durations) * 99 // 100] * 1_000, 3),
        "main_thread_core": round((time.thread_time() - before_cpu) / elapsed, 2),
        "written_per_stored_byte": round((io_bytes("wchar") - before_written) / stored, 2),
        "dirtied_per_stored_byte": round((io_bytes("write_bytes") - before_dirtied) / stored, 2),
    }


def io_bytes(name: str) -> int:
    """`wchar`: given to the kernel to write. `write_bytes`: marked dirty, by whole folios where these are large."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields[name])


def anonymous_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def file_commit(fd: int) -> Callable[[Batch], None]:
    def commit(batch: Batch) -> None:
        os.write(fd, b"".join([value for _, _, value in batch.appends]))
        os.fdatasync(fd)

    return commit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=5, help="batches that stay before they are retired")
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json-out", type=Path)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    work = batches(options.batches, options.entries, options.bytes, options.window, options.queues)
    runs: dict[str, list[dict[str, float]]] = {"store_busy": [], "store_alone": [], "file_busy": []}
    anonymous = 0
    for _ in range(options.repetitions):
        for name, passes in runs.items():
            with tempfile.TemporaryDirectory(dir=options.data) as directory:
                if name == "file_busy":
                    fd = os.open(Path(directory) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                    passes.append(measure(file_commit(fd), work, busy=True))
                    os.close(fd)
                    continue
                before = anonymous_bytes()
                store = LmdbStore(Path(directory))
                store.commit(Batch(appends=[(9, 1, b"kept")]))
                passes.append(measure(store.commit, work, busy=name == "store_busy"))
                anonymous = max(anonymous, anonymous_bytes() - before)
                store.close()
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    settings = {name: value for name, value in vars(options).items() if name not in ("data", "json_out")}
    report = {
        "benchmark": "micro/store",
        "commit": found.stdout.strip() if found.returncode == 0 else "unknown",
        "seed": None,
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg()[0],
        },
        "settings": {**settings, "switch_interval_s": SWITCH_INTERVAL_S},
        "results": {
            name: {key: statistics.median(run[key] for run in passes) for key in passes[0]}
            for name, passes in runs.items()
        },
        "anonymous_bytes_most": anonymous,
        "runs": runs,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.json_out is not None:
        options.json_out.write_text(text + "\n")


if __name__ == "__main__":
    main()
