"""`holdfast store`: check, compact, backup and restore (docs/store.md).

Rules of this file: answers go to standard output, the progress bar to standard error if that is a terminal. Errors are
raised; the command line prints one line. Exit 0 done, 1 failed or something was found.
"""

import argparse
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Any, Final

from holdfast.lines import CLEAR_LINE, json_line, say
from holdfast.signals import MEANINGLESS, ending_in_order, ignore
from holdfast.storage.upkeep.backup import backup, restore
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.compaction import compact

BAR_CELLS: Final = 24
BAR_EVERY_S: Final = 0.1


def store(args: argparse.Namespace) -> int:
    """Runs the action that `args` names; its exit code."""
    ignore(MEANINGLESS, lambda text: say(f"holdfast store {args.action}: {text}", file=sys.stderr))
    with ending_in_order(), _Bar() as bar:  # so that temporary files are deleted
        answer, lines, code = _ACTIONS[args.action](args, bar)
    if args.json:
        say(json_line(answer))
    else:
        say(*lines)
    return code


_Told = tuple[dict[str, Any], list[str], int]
"""The answer for a program, its lines for a person, the exit code."""


def _check(args: argparse.Namespace, bar: "_Bar") -> _Told:
    checked = check(Path(args.data), bar)
    answer = {
        "store": None if checked.store is None else str(checked.store),
        "schema": checked.schema,
        "backup": checked.backup,
        "pages": checked.pages,
        "queues": checked.queues,
        "messages": checked.entries - checked.leaving,
        "bytes": checked.bytes,
        "leaving": checked.leaving,
        "found": checked.found,
        "findings": checked.findings,
    }
    lines = list(checked.findings)
    if checked.found > len(checked.findings):
        lines.append(f"and {checked.found - len(checked.findings)} more")
    what = "store" if checked.backup is None else f"backup of {checked.backup}, store"
    name = "unknown" if checked.store is None else checked.store
    held = f"{checked.queues} queues, {answer['messages']} messages of {checked.bytes} bytes, {checked.pages} pages"
    lines.append(f"{what} {name}: schema {checked.schema}, {held}: {checked.found or 'nothing'} found")
    return answer, lines, 1 if checked.found else 0


def _compact(args: argparse.Namespace, bar: "_Bar") -> _Told:
    told = compact(Path(args.data), bar)
    line = f"store {args.data}: {told.before_bytes} bytes on disk before, {told.after_bytes} after"
    return told._asdict(), [line], 0


def _backup(args: argparse.Namespace, bar: "_Bar") -> _Told:
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped backup would keep freed space from the node
    try:
        told = backup(Path(args.data), Path(args.to), bar)
    finally:
        signal.signal(signal.SIGTSTP, before)
    answer = {"store": str(told.store), "messages": told.messages, "bytes": told.bytes, "made": told.made}
    line = f"backup {args.to}: store {told.store} as of {told.made}, {told.messages} messages, {told.bytes} bytes"
    return answer, [line], 0


def _restore(args: argparse.Namespace, bar: "_Bar") -> _Told:
    told = restore(Path(args.source), Path(args.data), bar)
    answer = {
        "store": str(told.store),
        "former": str(told.former),
        "made": told.made,
        "messages": told.messages,
        "bytes": told.bytes,
    }
    as_of = "" if told.made is None else f" as of {told.made}"
    line = f"store {args.data}: {told.store}, was {told.former}{as_of}, {told.messages} messages, {told.bytes} bytes"
    return answer, [line], 0


_ACTIONS: Final = {"check": _check, "compact": _compact, "backup": _backup, "restore": _restore}


class _Bar:
    """A progress bar, only on a terminal. Leaving the block clears the line."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._drawn = False

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def __call__(self, done: int, total: int) -> None:
        if self._terminal and monotonic() >= self._next:
            self._next = monotonic() + BAR_EVERY_S
            filled = BAR_CELLS * min(done, total) // max(1, total)
            share = 100 * min(done, total) // max(1, total)
            sys.stderr.write(f"{CLEAR_LINE}[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {share} %")
            sys.stderr.flush()
            self._drawn = True
