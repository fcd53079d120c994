"""Passwords that a person keeps in files.

Rules of this file: an error says where the password came from and how long it is, and nothing else of it.
"""

from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError
from holdfast.regular_files import read_any, read_regular

PASSWORD_BYTES_MAX: Final = 1024


def password_in(where: str, file: str) -> str:
    """The first line of `file`, without its end. ConfigError names the option or table `where`."""
    is_option = where.startswith("--")
    key = where if is_option else f"{where} password_file"
    try:
        # A node that reloads must not wait for who writes to a pipe; a command may.
        bytes_max = PASSWORD_BYTES_MAX + 1
        first = read_any(Path(file), bytes_max) if is_option else read_regular(Path(file), bytes_max)[0]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{key} {file!r} cannot be read ({reason}); give a readable file") from None
    return check_password(f"{key} {file!r}", first)


def check_password(source: str, data: bytes) -> str:
    """The first line of `data`, which came from that source; ConfigError where it cannot be a password."""
    first = data.split(b"\n", 1)[0].removesuffix(b"\r")
    if not first or len(first) > PASSWORD_BYTES_MAX or b"\0" in first:
        raise ConfigError(
            f"invalid first line of {len(first)} bytes in {source}; expected a password of 1 to "
            f"{PASSWORD_BYTES_MAX} bytes without NUL"
        )
    try:
        return first.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{source} is not in UTF-8; write it in UTF-8") from None
