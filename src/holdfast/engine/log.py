"""Limits the log of a node: lines with the same cause are limited in rate, and those left out are counted.

Rules of this file: every line of the core passes through here. A cause is a place in the code together with the subject
of the line: a configured neighbour or user, the place of a failure, or the address of another peer, of which there are
at most STRANGERS_MAX. So causes are bounded, whatever peers send. A line is cut at LINE_CHARACTERS_MAX.
"""

import sys
from types import FrameType
from typing import Final

from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.engine.outbox import Outbox
from holdfast.engine.strangers import Strangers

LINE_CHARACTERS_MAX: Final = 1_000
"""Of one line: words of peers may be in it."""

CAUSES_MAX: Final = 10_000
"""Remembered at once; the oldest is forgotten, and may have its lines again."""

STRANGERS_MAX: Final = 100
"""Addresses with lines of their own; further ones share theirs."""

OTHERS: Final = "other addresses"


class Cause:
    """`left`: lines that may be written now; `left_out`: lines left out since the last written one."""

    __slots__ = ("at", "left", "left_out")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at
        self.left_out = 0


class Log:
    """Limits the rate of log lines, cause by cause, and counts those left out."""

    def __init__(self, clock: Clock, outbox: Outbox, lines_per_minute: float) -> None:
        self._clock = clock
        self._outbox = outbox
        self._most = float(lines_per_minute)
        self.causes: dict[tuple[str, int, str, str], Cause] = {}
        self.left_out_total = 0
        self.strangers = Strangers(clock, STRANGERS_MAX)
        """Addresses with lines of their own."""

    def of_stranger(self, address: str) -> str:
        """The subject of a line about an unnamed peer: its address, or OTHERS if there are too many."""
        return f"address {address}" if self.strangers.has_place(address) else OTHERS

    def write(self, level: str, text: str, *, about: str = "") -> None:
        """Logs `text` unless lines with its cause exceed the rate. The cause is the calling line and `about`, a
        configured name."""
        self.write_for(sys._getframe(1), level, about, text)

    def write_for(self, caller: FrameType, level: str, about: str, text: str) -> None:
        """As `write`; `caller` is the frame that logged it."""
        line = self._bounded((caller.f_code.co_filename, caller.f_lineno), level, about, text)
        if line is not None:
            self._outbox.put(events.Log(level=level, text=line))

    def _bounded(self, place: tuple[str, int], level: str, about: str, text: str) -> str | None:
        """The line to write, with the number of lines left out before it; None if it is left out itself."""
        now, most = self._clock.now, self._most
        if len(self.causes) > CAUSES_MAX:
            del self.causes[next(iter(self.causes))]
        cause = self.causes.setdefault((*place, level, about), Cause(most, now))
        cause.left = min(most, cause.left + (now - cause.at) * most / 60)
        cause.at = now
        if cause.left < 1:
            cause.left_out += 1
            self.left_out_total += 1
            return None
        cause.left -= 1
        if len(text) > LINE_CHARACTERS_MAX:
            text = f"{text[:LINE_CHARACTERS_MAX]}…"
        if cause.left_out:
            text += f" ({cause.left_out} lines like this one were left out before it)"
            cause.left_out = 0
        return text
