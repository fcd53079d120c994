"""Reads TOML for nodes and the command line.

Rules of this file: a file that cannot be read, or is not TOML, is a ConfigError of one line, without the file's name.
"""

from pathlib import Path
from typing import Any, Final

from holdfast.text_files import text_of, toml_of
from holdfast.units import MIB

FILE_BYTES_MAX: Final = 16 * MIB


def read_toml(path: Path, *, allow_pipe: bool = False) -> dict[str, Any]:
    """The document in `path`. `allow_pipe` as for `text_of`. Raises ConfigError."""
    return toml_of(text_of(path, "the file", FILE_BYTES_MAX, allow_pipe=allow_pipe, expected="a TOML file"))
