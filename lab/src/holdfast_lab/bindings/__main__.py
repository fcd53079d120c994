"""`python -m holdfast_lab.bindings`: the report on bindings, and with `--page` into docs/results/federation.md.

    python -m holdfast_lab.bindings --seeds 60 --page docs/results/federation.md

Rules of this file: what is typed in and what is printed. Exit code 1 where a run did not end well.
"""

import argparse
import os
import sys
from pathlib import Path

from holdfast.lines import json_line, say
from holdfast.marked_pages import MarkedPage
from holdfast_lab.bindings import report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.bindings", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="runs of the largest part (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="the first seed (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--page", metavar="FILE", help="the document whose marked part gets the tables")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    args = parser.parse_args()
    page = None if args.page is None else MarkedPage(Path(args.page), report.BEGIN, report.END)
    made = report.make(args.first_seed, args.seeds, args.jobs, lambda text: say(text, file=sys.stderr))
    lines = report.page(made, f"by `make federation RUNS={args.seeds}`")
    if page is not None:
        page.fill(lines)
    say(*([json_line(made.as_json())] if args.json else lines))
    return 1 if made.failures else 0


if __name__ == "__main__":
    sys.exit(main())
