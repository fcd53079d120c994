"""Reads TOML for nodes and the command line.

Rules of this file: a file that cannot be read, or is not TOML, is a ConfigError of one line, without the file's name.
"""

from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """The document in `path`. Raises ConfigError."""
    import tomllib  # a node without a file does not load it

    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"the file cannot be read ({error.strerror}); give a TOML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} is not UTF-8; write the file in UTF-8") from None
    except (ValueError, RecursionError) as error:
        # TOMLDecodeError is a ValueError, and a number of more digits than Python reads is one too.
        raise ConfigError(f"the file is not TOML: {error}") from None
