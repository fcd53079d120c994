"""Seeds of the swarm: which of them come to which mistakes, and with a mistake, which fail.

    python -m mutation.seeds                      serves forks (`forks.py`)
    python -m mutation.seeds --hits FILE SEED …   where the sources are a copy with probes

FILE says what each seed came to, what it took and how it ended: `{seed: {"hits": [number, …], "seconds": …,
"failure": …}}`.
"""

import argparse
import json
import logging
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from mutation import forks, probes


def failure_of(seed: str) -> str:
    """One line, empty where the seed ends as it must; whatever the drawing raises is one too."""
    try:
        return execute(draw_plan(int(seed)), int(seed)).failure
    except Exception as error:  # a planted mistake may raise anything
        return f"{type(error).__name__}: {error}"


def _measured(seeds: list[str]) -> dict[str, dict[str, Any]]:
    hits: set[int] = import_module(probes.MODULE).hits  # there is none beside sources without probes
    found = {}
    for seed in seeds:
        hits.clear()
        began_s = time.process_time()
        failure = failure_of(seed)
        seconds = round(time.process_time() - began_s, 2)
        found[seed] = {"hits": sorted(hits), "seconds": seconds, "failure": failure}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hits", type=Path, help="write what each seed came to to this file")
    parser.add_argument("seeds", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    if options.hits:
        options.hits.write_text(json.dumps(_measured(options.seeds)))
        return
    execute(draw_plan(1), 1)  # what is loaded at first use is loaded before the forks
    forks.serve(failure_of)


if __name__ == "__main__":
    main()
