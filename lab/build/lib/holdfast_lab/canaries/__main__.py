"""`python -m holdfast_lab.canaries`: lists the canaries, or finds anew the seeds that catch them.

    python -m holdfast_lab.canaries --find >seeds.new && mv seeds.new lab/src/holdfast_lab/canaries/seeds.py

Rules of this file: what is found goes to standard output as the module `seeds.py`, how it went to standard error.
"""

import argparse
import inspect
import sys
import time

from holdfast.errors import ConfigError
from holdfast_lab.canaries import CANARIES, seeds
from holdfast_lab.canaries.find import hunt
from holdfast_lab.canaries.planting import by_name
from holdfast_lab.canaries.seeds import CAUGHT_BY, WITHIN_MAX


def find(names: list[str], jobs: int) -> bool:
    """Hunts each of `names`; what is known of the others stays. False where one was not caught."""
    found = {name: CAUGHT_BY[name] for name in CANARIES if name in CAUGHT_BY and name not in names}
    for name in names:
        began = time.monotonic()
        caught = hunt(CANARIES[name], last_seed=WITHIN_MAX, jobs=jobs)
        seconds = time.monotonic() - began
        if caught.seed:
            found[name] = caught.quickest, caught.within
        how = f"seed {caught.seed}, quickest {caught.quickest}" if caught.seed else f"not by seed {WITHIN_MAX}"
        print(f"{name:28} {how:28} {seconds:6.1f} s  {caught.failure}", file=sys.stderr, flush=True)
    rows = [f'    "{name}": {found[name]},\n' for name in CANARIES if name in found]
    head, _, rest = inspect.getsource(seeds).partition("= {")
    print(f"{head}= {{\n{''.join(rows)}}}{rest[rest.index('}') + 1 :]}", end="")
    return all(name in found for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.canaries", description=__doc__)
    parser.add_argument("--find", action="store_true", help="find the seeds anew, and print seeds.py")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    options = parser.parse_args()
    try:
        names = [by_name(CANARIES, name).name for name in options.names] or list(CANARIES)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if options.find:
        return 0 if find(names, options.jobs) else 1
    for name in names:
        canary = CANARIES[name]
        print(f"{name:28} seed {canary.seed:4}, within {canary.within:4}: {canary.sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
