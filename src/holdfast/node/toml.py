"""Reads TOML for nodes and the command line.

Rules of this file: a file that cannot be read, or is not TOML, is a ConfigError of one line, without the file's name.
"""

from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.regular_files import read_any, read_regular
from holdfast.text_files import not_utf8, toml_of
from holdfast.units import MIB

FILE_BYTES_MAX: Final = 16 * MIB


def read_toml(path: Path, *, waits: bool = False) -> dict[str, Any]:
    """The document in `path`. A pipe is refused, because a node must not wait for who writes to it; `waits`: read to
    its end, for a command that was given it in its arguments (`<(COMMAND)`). Raises ConfigError."""
    try:
        content = read_any(path, FILE_BYTES_MAX) if waits else read_regular(path, FILE_BYTES_MAX)[0]
    except OSError as error:
        raise ConfigError(f"the file cannot be read ({error.strerror}); give a TOML file") from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"the file has more than {FILE_BYTES_MAX} bytes; give a smaller one")
    try:
        return toml_of(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigError(not_utf8(content)) from None
