"""`holdfast node` that counts named moments of its life, and kills itself at one of them.

    python -m holdfast_lab.real.killed_node --crash-point append:3 [--points-file FILE] -- [ARGUMENTS OF holdfast node]

Rules of this file: the node is the product's own, with its command line; only who is told of the moments is ours
(`holdfast.node.process.points`). A name is passed by one thread only, so counting needs no lock.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.serving import add_node
from holdfast.node.command import run_node
from holdfast.node.process.points import POINTS


class Moments:
    """Counts the passings of each moment; ends the process with SIGKILL at the COUNT-th of the crash point."""

    def __init__(self, crash: tuple[str, int] | None, file: Path | None) -> None:
        self.counts: dict[str, int] = dict.fromkeys(POINTS, 0)
        self._crash = crash
        self._file = file

    def passed(self, name: str) -> None:
        """One more passing of `name`, one of POINTS."""
        count = self.counts[name] + 1
        self.counts[name] = count
        if (name, count) == self._crash:
            self.write()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self) -> None:
        """The counts as one JSON object, name to count, where a file was named; OSError."""
        if self._file is not None:
            self._file.write_text(json.dumps(self.counts) + "\n")


def crash_point(text: str) -> tuple[str, int]:
    """`NAME:COUNT` as (name, count from 1); an argparse type."""
    name, _, count = text.partition(":")
    if name not in POINTS or not (count.isascii() and count.isdigit() and int(count) > 0):
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}; expected NAME:COUNT, COUNT from 1, NAME one of {', '.join(POINTS)}"
        )
    return name, int(count)


def killed_node_command(point: str, *arguments: str | Path) -> list[str]:
    """The command line of a node that dies at `point`, NAME:COUNT, with the interpreter that runs us."""
    return [sys.executable, "-m", "holdfast_lab.real.killed_node", "--crash-point", point, "--", *map(str, arguments)]


def main(argv: Sequence[str] | None = None) -> int:
    """The node's exit code; 2 for usage."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.real.killed_node", description=__doc__)
    parser.add_argument("--crash-point", type=crash_point, metavar="NAME:COUNT", help="where it kills itself")
    parser.add_argument("--points-file", type=Path, metavar="FILE", help="where it counts what it passed, JSON")
    parser.add_argument("arguments", nargs="*", help="of `holdfast node`, after --")
    args = parser.parse_args(argv)
    moments = Moments(args.crash_point, args.points_file)
    product = argparse.ArgumentParser(prog="holdfast")
    add_node(product.add_subparsers())
    code = run_node(product.parse_args(["node", *args.arguments]), moments)
    moments.write()
    return code


if __name__ == "__main__":
    sys.exit(main())
