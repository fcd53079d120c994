"""Named moments of a node's life, counted, for the tests that kill it at one of them.

Rules of this file: used only where the hidden options of `holdfast node` ask for it; everywhere else the
driver holds None and spends one comparison. A name is passed by one thread only, so counting needs no lock.
"""

import json
import os
import signal
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

POINTS: Final = ("before-append", "append", "committing", "committed", "settled", "retiring", "retired")
"""In the order of one message's life: batch gathered; handed to the store; inside the transaction, before its
sync; after the sync, before the core hears of it; settlements given to the socket; a batch with retirements
handed to the store; that batch on disk."""


def parse_crash_point(text: str) -> tuple[str, int]:
    """`NAME:COUNT` as (name, count from 1); ConfigError."""
    name, _, count = text.partition(":")
    if name not in POINTS or not (count.isascii() and count.isdigit() and int(count) > 0):
        raise ConfigError(
            f"--crash-point: found {text!r}, accepted is NAME:COUNT, COUNT from 1, NAME one of {', '.join(POINTS)}"
        )
    return name, int(count)


class Points:
    """Counts the passings of each name; ends the process with SIGKILL at the COUNT-th of the crash point."""

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
