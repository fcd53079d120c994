"""Proves that the checks find defects: plants each canary, runs the unit stage, then the swarm.

    .venv/bin/python tools/canaries.py [--swarm-only] [NAME …]

The unit stage must pass with a canary planted, since a canary that it catches says nothing about the swarm; the swarm
must find it by the promised seed. Prints a table; exit code 1 where either failed.
"""

import argparse
import sys
import time

from holdfast_lab.canaries import CANARIES
from holdfast_lab.canaries.find import hunt
from stages import LIMIT_BY_BUDGET, STAGES, run

UNIT = next(stage for stage in STAGES if stage.name == "unit")


def unit_tests(name: str) -> bool:
    """Whether the unit stage passes with that canary in the tests' process."""
    command = [sys.executable, "-m", "pytest", "tests", "-q", "-x", "-m", str(UNIT.marks), "--canary", name]
    return run([*command, "-p", "no:cacheprovider"], float(UNIT.budget_s * LIMIT_BY_BUDGET)) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarm-only", action="store_true", help="leave the unit stage out")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in CANARIES]:
        print(f"no such canary: {', '.join(unknown)}; there are {', '.join(CANARIES)}", file=sys.stderr)
        return 2
    lines = []
    well = True
    for name in options.names or CANARIES:
        canary = CANARIES[name]
        passed = options.swarm_only or unit_tests(name)
        began_s = time.monotonic()
        caught = hunt(canary, last_seed=canary.within)
        took_s = time.monotonic() - began_s
        well = well and passed and bool(caught.seed)
        unit = "left out" if options.swarm_only else "pass" if passed else "FAIL"
        swarm = f"seed {caught.seed}" if caught.seed else "NOT FOUND"
        lines.append(f"{name:28} {unit:9} {swarm:10} of {canary.within:3} {took_s:7.1f} s  {canary.sentence}")
        print(lines[-1], flush=True)
    print(f"\n{'canary':28} {'unit':9} {'swarm':10} {'within':6} {'seconds':>8}\n" + "\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
