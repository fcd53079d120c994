"""Signals that have no meaning here and by default would end the process.

Rules of this file: for the main thread of a process, before and beside its loop. What ends a process properly (SIGTERM,
SIGINT, and SIGHUP where a person's terminal is gone) is its own to handle; SIGQUIT stays the one that ends it at once.
"""

import signal
from collections.abc import Callable, Iterable
from typing import Final

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
