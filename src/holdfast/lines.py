"""Lines of output: no control character of foreign text reaches a terminal or a log.

Rules of this file: text of a peer, a store or a configuration is escaped only here, by one rule: each character that is
not printable becomes its escape in JSON, and all others stay. Commands print with `say`; logs, tables and progress bars
use `one_line`.
"""

import json
from typing import Any, Final, TextIO

CLEAR_LINE: Final = "\r\x1b[K"
"""Empties the line that the terminal's cursor is on; what is drawn next stands in its place."""


def one_line(text: str) -> str:
    """`text` with each character that would not print on one line as `\\n`, `\\uXXXX` and their like."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])


def say(*lines: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints each as one line, to standard output or `file`. OSError if that accepts no more; it names the output."""
    try:
        for line in lines:
            print(one_line(line), file=file, flush=flush)
    except OSError as error:
        if file is None and error.filename is None:
            error.filename = "standard output"
        raise


def json_line(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """`value` as JSON in one line; letters of all alphabets as they are."""
    return one_line(json.dumps(value, ensure_ascii=False, separators=separators, default=str))
