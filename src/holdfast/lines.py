"""Lines that people and programs read, on a terminal perhaps: nothing in them moves its cursor or turns its text round.

Rules of this file: text that came from a peer, a store or a configuration is escaped here and nowhere else. What prints
it goes through `say`, `json_line` or `columns.table`; a log takes `one_line`.
"""

import json
from typing import Any, TextIO


def one_line(text: str) -> str:
    """`text` as it is, or with what would not print on one line escaped; parts of it may come from a peer."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def say(*lines: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints each as one line, to standard output or `file`. OSError where that takes no more."""
    for line in lines:
        print(one_line(line), file=file, flush=flush)


def json_line(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """`value` as JSON in one line, letters of all alphabets as they are, and what would not print as `\\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False, separators=separators, default=str)
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])
