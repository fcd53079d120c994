"""Text files that people edit: the text of one, or one line that says why it cannot be read or is not TOML."""

import re
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.regular_files import read_any, read_regular

SHOWN_MAX: Final = 60
"""The maximum number of characters of a key in an error."""


def read_text(where: str, file: str, bytes_max: int, *, allow_pipe: bool = False) -> str:
    """As `text_of` for the file that `where` names, a key or an option; both are in a ConfigError."""
    return text_of(Path(file), f"{where} {file!r}", bytes_max, allow_pipe=allow_pipe)


def text_of(
    path: Path, shown: str, bytes_max: int, *, allow_pipe: bool = False, expected: str = "a readable file"
) -> str:
    """The text of a file of at most `bytes_max` bytes in UTF-8, without a byte order mark. Raises ConfigError, which
    calls the file `shown` and says what is `expected`.

    A pipe is refused, and so is a device: a node that starts or reloads must not wait for whoever writes to it, and
    what it reads again must still be there. With `allow_pipe`, for a command whose arguments name the file, as
    `<(COMMAND)` and /dev/stdin do, it waits for the pipe's end, and reads no more than of a file."""
    try:
        data = read_any(path, bytes_max) if allow_pipe else read_regular(path, bytes_max)[0]
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read ({error.strerror}); give {expected}") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{shown} has more than {bytes_max} bytes; give a smaller file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(not_utf8_text(data, shown)) from None


def not_utf8_text(data: bytes, shown: str) -> str:
    """The error for a file, called `shown`, with a byte that is not UTF-8: its line, counted from 1."""
    number = next(number for number, line in enumerate(data.split(b"\n"), 1) if not _is_utf8(line))
    return f"line {number} of {shown} is not in UTF-8; write the file in UTF-8"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


_TWICE: Final = re.compile(r"Cannot declare \((.*?),?\) twice")
_SET: Final = re.compile(r"Cannot overwrite a value|Duplicate inline table key ")
_AT: Final = re.compile(r"\(at line (\d+), column (\d+)\)")
_BEGINS: Final = re.compile(r"""\"{3}|"|'{3}|'|\#|[][{},\n]""")
"""A text, a comment, or what divides entries."""
_ENDS: Final = {
    '"""': re.compile(r'\\.|("{3,5})', re.DOTALL),
    '"': re.compile(r'\\.|(")'),
    "'''": re.compile(r"('{3,5})"),
    "'": re.compile(r"(')"),
    "#": re.compile(r"(?=(\n))"),
}
"""By what they begin with, where texts and comments end: at the first match that has a group."""
_NAME: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\w-]+)"""
_KEY: Final = re.compile(rf"(?:\s|#[^\n]*)*({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)")


def toml_of(text: str, where: str = "") -> dict[str, Any]:
    """The document. ConfigError begins with `where`, if that is given."""
    import tomllib  # who reads no file does not load it

    try:
        return tomllib.loads(text)
    except RecursionError:
        wrong = "the file is not TOML: nested too deep"
    except ValueError as error:  # a number of more digits than Python reads is no TOMLDecodeError
        wrong = _what_is_wrong(text, str(error))
    raise ConfigError(f"{where}: {wrong}" if where else wrong)


def _what_is_wrong(text: str, said: str) -> str:
    """In words of the file, where the parser's are of its inside. No value is told: it may be a password."""
    text = text.replace("\r\n", "\n")  # as the parser counts
    end = len(text)
    if at := _AT.search(said):
        end = sum(len(line) + 1 for line in text.split("\n")[: int(at[1]) - 1]) + int(at[2]) - 1
    if twice := _TWICE.match(said):
        name = twice[1].replace("'", "").replace(", ", ".")
        advice = f"put its keys together, or write [[{name}]] where there may be several"
        return f"line {_line(text, end)}: [{name}] is there already; {advice}"
    if _SET.match(said):
        key = _KEY.match(text, _entry(text, end), end)
        name, start = ("a key", end) if key is None else (key[1][:SHOWN_MAX], key.start(1))
        return f"line {_line(text, start)}: {name} is there already; write it once"
    return f"the file is not TOML: {said}"


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _entry(text: str, end: int) -> int:
    """Where the entry begins that ends there, behind its value: on a line of the file, or in an inline table."""
    begun = [0]
    """The present entry of the file, and of each bracket that is open."""
    at = 0
    while (piece := _BEGINS.search(text, at, end)) is not None:
        at = piece.end()
        match piece[0]:
            case "[" | "{":
                begun.append(at)
            case "]" | "}":
                begun.pop()
            case ",":
                begun[-1] = at
            case "\n":
                begun[0] = at if len(begun) == 1 else begun[0]
            case opening:
                ends = (found.end() for found in _ENDS[opening].finditer(text, at, end) if found[1])
                at = next(ends, end)
    return begun[-1]
