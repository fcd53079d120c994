"""Files of a fleet: replaced atomically, private if they contain a secret, read up to a bound.

Rules of this file: a reader sees the old content or the new one; a change is on disk when the call returns.
"""

from pathlib import Path
from typing import Final

from holdfast.durable import replace_file
from holdfast.errors import ConfigError
from holdfast.regular_files import read_regular

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


def write(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Replaces `path` by a file with this content, which a node that runs as a different user can still read. Raises
    OSError."""
    replace_file(path, data, mode)


def read(path: Path, what: str, bytes_max: int) -> bytes:
    """The content. ConfigError names the file and says what it should be."""
    return _read(path, what, bytes_max)[0]


def read_private(path: Path, what: str, bytes_max: int) -> bytes:
    """As `read`; ConfigError also for a file that users other than its owner may read."""
    data, mode = _read(path, what, bytes_max)
    if mode & 0o077:
        raise ConfigError(f"{path}: others may read {what} (mode {mode:04o}); make it private: chmod 600")
    return data


def _read(path: Path, what: str, bytes_max: int) -> tuple[bytes, int]:
    try:
        data, mode = read_regular(path, bytes_max)
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}); expected a readable file") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{path}: {what} has more than {bytes_max} bytes; expected a smaller file")
    return data, mode
