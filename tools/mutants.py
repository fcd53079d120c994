"""Measures how good the checks are: plants mistakes one at a time, and reports whether tests and swarm find them.

    .venv/bin/python tools/mutants.py [--count N] [--seed S] [--swarm-seeds K] [--within PATH]
                                      [--seconds T] [--only TEXT] [--out DIR]

N mistakes are drawn by the seed over the node's logic, routing and storage (`mutation/places.py`), or over the packages
and modules that `--within` names, each by its path in `src/holdfast`. For each the unit tests that reach its line are
run, and apart from them the seeds 1 to K of the swarm that reach it, the quickest first, each until the first failure;
with T no more of either than take so many seconds without a mistake. What is done is kept in DIR: the same command
continues where it was interrupted. Prints a table; equivalent ones are listed in `tools/mutation/equivalent.toml` with
the reason. Exit code 1 where a share is below its goal.
"""

import argparse
import json
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, Final

from mutation.forks import Server
from mutation.operators import Mutant, mutants_of
from mutation.places import LEFT_OUT, MARKS, PACKAGES, ROOT, SOURCES
from mutation.reached import Reached

FOUND_GOAL: Final = 0.95
"""By unit tests and swarm together, of those that are not equivalent."""
SWARM_GOAL: Final = 0.60
"""By the swarm alone, of those that it reaches."""
TESTS: Final = ("-m", "pytest", "-q", "-p", "mutation.tests", "-p", "no:cacheprovider", "-m", MARKS, "tests")
SEEDS: Final = ("-m", "mutation.seeds")
EQUIVALENT: Final = ROOT / "tools" / "mutation" / "equivalent.toml"


def all_mutants(within: Sequence[str] = ()) -> list[Mutant]:
    """Of every module, in the order of paths and places; with `within` of those packages and modules alone."""
    found: list[Mutant] = []
    for package in PACKAGES:
        for path in sorted((SOURCES / package).rglob("*.py")):
            module = path.relative_to(SOURCES)
            wanted = not within or any(module.is_relative_to(place) for place in within)
            if wanted and str(module) not in LEFT_OUT:
                found += mutants_of(str(path.relative_to(ROOT)), path.read_text())
    return found


def draw(mutants: list[Mutant], seed: int, count: int) -> list[Mutant]:
    """So many of them: a kind first, each as likely, then a place of that kind."""
    random = Random(seed)
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_kind.setdefault(mutant.kind, []).append(mutant)
    drawn: dict[Mutant, None] = {}
    while len(drawn) < min(count, len(mutants)):
        drawn[random.choice(by_kind[random.choice(sorted(by_kind))])] = None
    return list(drawn)


def equivalents() -> dict[str, str]:
    """The reason by `Mutant.key`: why nobody could find it."""
    if not EQUIVALENT.exists():
        return {}
    return {item["mutant"]: item["reason"] for item in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])}


class Campaign:
    """Runs what is still to do; each result is one line of a file. Of a mistake's tests and seeds no more are run than
    take `seconds`, if that is not 0.
    """

    def __init__(self, directory: Path, reached: Reached, seconds: float) -> None:
        self._file = directory / "results.ndjson"
        self._lock = threading.Lock()
        self._reached = reached
        self._seconds = seconds
        self.results: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                row = json.loads(line)
                self.results[row["name"]] = row

    def run(self, mutants: Iterable[Mutant], jobs: int) -> None:
        todo = [mutant for mutant in mutants if str(mutant) not in self.results]
        with ThreadPoolExecutor(jobs) as threads:
            for running in [threads.submit(self._lane, todo) for _ in range(jobs)]:
                running.result()

    def _lane(self, todo: list[Mutant]) -> None:
        tests, swarm = Server(TESTS), Server(SEEDS)
        try:
            while True:
                with self._lock:
                    if not todo:
                        return
                    mutant = todo.pop(0)
                self._one(tests, swarm, mutant)
        finally:
            tests.close()
            swarm.close()

    def _one(self, tests: Server, swarm: Server, mutant: Mutant) -> None:
        began_s = time.monotonic()
        coming, seeds = self._reached.tests_of(mutant), self._reached.seeds_of(mutant)
        row: dict[str, Any] = {"name": str(mutant), "key": mutant.key, "mutant": asdict(mutant)}
        row |= {"tests": len(coming), "seeds": len(seeds)}
        row |= {"unit": self._run(tests, mutant, coming), "swarm": self._run(swarm, mutant, seeds)}
        row["seconds"] = round(time.monotonic() - began_s, 1)
        with self._lock:
            self.results[str(mutant)] = row
            with self._file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{len(self.results):4} {_words(row):44} {row['seconds']:6.1f} s  {mutant}", flush=True)

    def _run(self, server: Server, mutant: Mutant, coming: dict[str, float]) -> dict[str, Any] | None:
        """The verdict, with how many were to be run and how many they are without a bound; None where none comes."""
        if not coming:
            return None
        taken: dict[str, float] = {}
        spent_s = 0.0
        for name, seconds in coming.items():
            spent_s += seconds
            if taken and self._seconds and spent_s > self._seconds:
                break
            taken[name] = seconds
        return {**asdict(server.run(mutant, taken)), "run": len(taken)}


def _words(row: dict[str, Any]) -> str:
    unit = "unreached" if row["unit"] is None else "found" if row["unit"]["by"] else "NOT FOUND"
    swarm = "unreached" if row["swarm"] is None else f"seed {row['swarm']['by']}" if row["swarm"]["by"] else "NOT FOUND"
    return f"unit {unit}, swarm {swarm}"


def _found(row: dict[str, Any], by: str) -> bool:
    return row[by] is not None and bool(row[by]["by"])


def _left_out(row: dict[str, Any]) -> bool:
    """Whether nobody found it, and --seconds left out something that reaches it."""
    more = any(
        row[by] is not None and row[by]["run"] < row[what] for by, what in (("unit", "tests"), ("swarm", "seeds"))
    )
    return more and not _found(row, "unit") and not _found(row, "swarm")


def table(rows: list[dict[str, Any]], reasons: dict[str, str]) -> tuple[list[str], bool]:
    """For a person, and whether both goals are met."""
    same = [row for row in rows if row["key"] in reasons]
    judged = [row for row in rows if row["key"] not in reasons]
    reachable = [row for row in judged if row["seeds"]]
    where: Counter[str] = Counter()
    for row in judged:
        where[{(True, True): "both", (True, False): "unit", (False, True): "swarm", (False, False): "none"}[
            _found(row, "unit"), _found(row, "swarm")
        ]] += 1  # fmt: skip
    found = (len(judged) - where["none"]) / max(1, len(judged))
    swarm = sum(_found(row, "swarm") for row in reachable) / max(1, len(reachable))
    lines = ["", f"{'mistakes':10} {len(rows):5}", f"{'equivalent':10} {len(same):5}"]
    lines += [f"{name:10} {where[name]:5}" for name in ("both", "unit", "swarm", "none")]
    bounded = sum(_left_out(row) for row in judged)
    lines += [
        f"found: {found:.1%} of {len(judged)} (goal {FOUND_GOAL:.0%})",
        f"swarm alone: {swarm:.1%} of {len(reachable)} that it reaches (goal {SWARM_GOAL:.0%})",
        f"time: {sum(row['seconds'] for row in rows) / 3600:.1f} hours of one core",
        f"not found by what was run, though there is more that reaches it: {bounded}",
    ]
    lines += [
        f"found by nobody: {row['name']}" for row in judged if not _found(row, "unit") and not _found(row, "swarm")
    ]
    return lines, found >= FOUND_GOAL and swarm >= SWARM_GOAL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mistakes (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default %(default)s)")
    parser.add_argument("--swarm-seeds", type=int, default=300, help="seeds of the swarm (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="of tests, and of seeds, for a mistake (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="lanes beside each other (default %(default)s)")
    parser.add_argument(
        "--within", action="append", default=[], metavar="PATH",
        help="a package or module, as broker/cursors or custody/delays.py; may be given again",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="of those drawn, the ones whose line has this text")
    parser.add_argument("--out", type=Path, default=ROOT / ".checks" / "mutants", help="where results are kept")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    mutants = all_mutants(options.within)
    if not mutants:
        parser.error(f"--within {', '.join(options.within)}: no module of a package that is measured")
    drawn = draw(mutants, options.seed, options.count)
    reached = Reached(options.out / "reached", drawn, options.swarm_seeds, options.jobs)
    if reached.failed:
        print(f"{len(reached.failed)} tests fail without a mistake, and are left out: {', '.join(reached.failed)}")
    drawn = [mutant for mutant in drawn if options.only in str(mutant)]
    campaign = Campaign(options.out, reached, options.seconds)
    campaign.run(drawn, options.jobs)
    lines, well = table([campaign.results[str(mutant)] for mutant in drawn], equivalents())
    print("\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
