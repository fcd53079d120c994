"""Records a store's life and cuts its power at every place.

    python -m holdfast_lab.powerloss --seed S --cuts all --json

Rules of this file: the recording is made anew from the seed, but for the UUIDs; a violation is seen again with
`--log` and the seed, cut and variant that it prints (docs/powerloss.md).
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast_lab.powerloss.calls import read_log
from holdfast_lab.powerloss.disk import SYNCS, VARIANTS
from holdfast_lab.powerloss.record import draw_lives, record
from holdfast_lab.powerloss.replay import Replay


def _cuts(text: str) -> int | None:
    if text == "all":
        return None
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 where every image was right."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast_lab.powerloss", description="Power loss at every point of a store's life."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lives", type=int, default=8, help="processes, one after the other, some killed; default 8")
    parser.add_argument("--steps", type=int, default=30, help="commits in each; default 30")
    parser.add_argument("--cuts", type=_cuts, default=200, help="places drawn, or all; default 200")
    parser.add_argument("--draws", type=int, default=1, help="images of each variant at each cut; default 1")
    parser.add_argument("--cut", type=int, help="this place alone")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="this manner alone; may be repeated")
    parser.add_argument("--ignore", action="append", choices=SYNCS, help="a disk that does not do these syncs")
    parser.add_argument("--work", type=Path, help="an empty or new directory for the recording, which stays")
    parser.add_argument("--log", type=Path, help="the directory of a recording that stayed: replay it")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    args = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="holdfast-powerloss-")) if args.work is None else args.work.resolve()
    began = time.monotonic()
    ok = False
    try:
        if args.log is None:
            records = record(work, args.seed, draw_lives(args.seed, lives=args.lives, steps=args.steps))
        else:
            records = read_log(args.log / "log", (args.log / "root").resolve())
        recorded_s = time.monotonic() - began
        replay = Replay(records, args.seed, frozenset(args.ignore or ()))
        found = replay.run(cuts=args.cuts, variants=args.variant or VARIANTS, draws=args.draws, only=args.cut)
        ok = not found.violations
    except HoldfastError as error:
        print(f"powerloss: {error}", file=sys.stderr)
        return 1
    finally:
        if args.work is None and (ok or args.log is not None):
            shutil.rmtree(work, ignore_errors=True)
        elif not ok:
            print(f"powerloss: the recording is in {args.log or work}", file=sys.stderr)
    report = {
        "seed": args.seed,
        "records": len(records),
        "marks": dict(sorted(replay.history.counts.items())),
        "states": len(replay.history.spans),
        **found.as_dict(),
        "recorded_s": round(recorded_s, 1),
        "wall_s": round(time.monotonic() - began, 1),
    }
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        for key, value in report.items():
            print(f"{key}: {value}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
