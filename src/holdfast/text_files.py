"""A text file that a person named: its text, or one line that says why it cannot be read."""

from pathlib import Path

from holdfast.errors import ConfigError


def read_text(where: str, file: str, bytes_max: int) -> str:
    """The text of a file of at most `bytes_max` bytes in UTF-8. ConfigError names `where`, the key or option."""
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{where} {file!r} cannot be read ({reason}); give a readable file") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{where} {file!r} has more than {bytes_max} bytes; give a smaller file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{where} {file!r} is not in UTF-8; write it in UTF-8") from None
