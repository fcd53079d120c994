"""Signals that have no meaning here but would end the process by default.

Rules of this file: for the main thread of a process, before and during its loop. Signals that end a process properly
(SIGTERM, SIGINT, and SIGHUP if the terminal is closed) are handled by the process itself; SIGQUIT still ends it at
once.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def ignore(numbers: Iterable[signal.Signals], tell: Callable[[str], None]) -> None:
    """Ignores these signals; `tell` is called with a line for the first of each. A signal that is ignored already stays
    so."""
    known: set[int] = set()

    def ignored(number: int, frame: object) -> None:
        if number not in known:
            known.add(number)
            tell(f"{signal.Signals(number).name} ignored: it has no meaning here")

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ignored)


@contextmanager
def ending_in_order(numbers: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGHUP)) -> Iterator[None]:
    """Within the block each of these signals, unless it is ignored, raises SystemExit, so that unfinished work is
    undone. Like Ctrl-C, they print nothing."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
