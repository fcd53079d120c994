"""Progress of long work: lines that say what happens and, on a terminal, a bar below them.

Rules of this file: lines go to standard output, the bar to standard error and only where that is a terminal;
in a pipe there is no bar (docs/client.md).
"""

import sys
from types import TracebackType
from typing import Final, TextIO

from holdfast.lines import CLEAR_LINE, one_line, say

BAR_CELLS: Final = 24


class Progress:
    """`with Progress() as progress`: `say` a line, `show` the bar. Leaving it clears the bar."""

    def __init__(self, lines: TextIO | None = None, bar: TextIO | None = None) -> None:
        self._lines = sys.stdout if lines is None else lines
        self._bar = sys.stderr if bar is None else bar
        self._terminal = self._bar.isatty()
        self._last = ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        self._last = ""

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._clear()
        say(line, file=self._lines, flush=True)
        self._draw()

    def show(self, done: int, total: int, text: str) -> None:
        """Redraws the bar: `done` of `total`, then `text`."""
        if self._terminal:
            filled = BAR_CELLS * min(done, total) // max(1, total)
            self._clear()
            self._last = f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {one_line(text)}"
            self._draw()

    def _clear(self) -> None:
        if self._last:
            self._bar.write(CLEAR_LINE)
            self._bar.flush()

    def _draw(self) -> None:
        if self._last:
            self._bar.write(self._last)
            self._bar.flush()
