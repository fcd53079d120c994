"""Runs seeds of the swarm one after the other in this process; ends at the first that fails.

    python -m mutation.seeds [--hits FILE] SEED …

A line for each: `SEED ok` or `SEED failed FAILURE`. With `--hits`, where the sources are a copy with probes, none
ends it, and the file says which seed came to which mistakes: `{seed: [number, …]}`.
"""

import argparse
import json
import logging
from importlib import import_module
from pathlib import Path

from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from mutation import probes


def failure_of(seed: int) -> str:
    """One line, empty where the seed ends as it must; whatever the drawing raises is one too."""
    try:
        return execute(draw_plan(seed), seed).failure
    except Exception as error:  # a planted mistake may raise anything
        return f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hits", type=Path, help="write which seed came to which mistakes to this file")
    parser.add_argument("seeds", nargs="+", type=int)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    hits: set[int] = set()
    if options.hits:
        hits = import_module(probes.MODULE).hits  # there is none beside sources without probes
    found: dict[int, list[int]] = {}
    for seed in options.seeds:
        hits.clear()
        failure = failure_of(seed)
        found[seed] = sorted(hits)
        print(f"{seed} failed {failure}" if failure else f"{seed} ok", flush=True)
        if failure and not options.hits:
            return 1
    if options.hits:
        options.hits.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
