"""Reads TOML for nodes and the command line.

Rules of this file: a file that cannot be read, or is not TOML, is a ConfigError of one line, without the file's name.
"""

from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.text_files import not_utf8, toml_of


def read_toml(path: Path) -> dict[str, Any]:
    """The document in `path`. Raises ConfigError."""
    try:
        content = path.read_bytes()
        return toml_of(content.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the file cannot be read ({error.strerror}); give a TOML file") from None
    except UnicodeDecodeError:
        raise ConfigError(not_utf8(content)) from None
