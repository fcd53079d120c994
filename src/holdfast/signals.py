"""Signals that have no meaning here and by default would end the process.

Rules of this file: for the main thread of a process, before and beside its loop. What ends a process properly (SIGTERM,
SIGINT, and SIGHUP where a person's terminal is gone) is its own to handle; SIGQUIT stays the one that ends it at once.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def ignore(numbers: Iterable[signal.Signals], tell: Callable[[str], None]) -> None:
    """Ignores these signals; `tell` gets one line for the first of each. A signal that is ignored already stays so."""
    known: set[int] = set()

    def ignored(number: int, frame: object) -> None:
        if number not in known:
            known.add(number)
            tell(f"{signal.Signals(number).name} ignored: it has no meaning here")

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ignored)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM, and SIGHUP unless it is ignored, raise SystemExit inside, so that what was begun is undone. As Ctrl-C,
    without a word."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
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
