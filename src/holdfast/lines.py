"""Lines of output: no control character of foreign text reaches a terminal or a log.

Rules of this file: text of a peer, a store or a configuration is escaped only here, by one rule: each character that is
not printable becomes its escape in JSON, and all others stay. Commands print with `say`; logs, tables and progress bars
use `one_line`. Colours are for terminals alone.
"""

import json
import sys
from typing import Any, Final, TextIO

CLEAR_LINE: Final = "\r\x1b[K"
"""Empties the line that the terminal's cursor is on; what is drawn next stands in its place."""
GREEN: Final = "\x1b[32m"
YELLOW: Final = "\x1b[33m"
RED: Final = "\x1b[31m"
_PLAIN: Final = "\x1b[0m"


class Painted(str):
    """A line that `say` prints in a colour where it goes to a terminal."""

    colour: str


def painted(text: str, colour: str) -> Painted:
    line = Painted(text)
    line.colour = colour
    return line


def one_line(text: str) -> str:
    """`text` with each character that would not print on one line as `\\n`, `\\uXXXX` and their like."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])


def say(*lines: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints each as one line, to standard output or `file`. OSError if that accepts no more; it names the output."""
    try:
        for line in lines:
            shown = one_line(line)
            if isinstance(line, Painted) and (sys.stdout if file is None else file).isatty():
                shown = f"{line.colour}{shown}{_PLAIN}"
            print(shown, file=file, flush=flush)
    except OSError as error:
        if file is None and error.filename is None:
            error.filename = "standard output"
        raise


def json_line(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """`value` as JSON in one line; letters of all alphabets as they are."""
    return one_line(json.dumps(value, ensure_ascii=False, separators=separators, default=str))
