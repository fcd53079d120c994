"""Files that a node appends to for as long as it runs, and opens anew where they were moved away.

Rules of this file: what is opened is used or closed. A file is exchanged under its descriptor, so that a thread that
writes meanwhile writes to the one or the other. A pipe is refused while nobody reads it: opening it would wait.
"""

import os
from pathlib import Path

from holdfast.errors import ConfigError


class Opened:
    """A file that was opened, to be used in another's place, or to be closed. Closing is idempotent."""

    def __init__(self, what: str, path: Path, mode: int) -> None:
        """`what`: of the file, for people. ConfigError if it cannot be opened."""
        try:
            self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, mode)
            os.set_blocking(self.fd, True)
        except OSError as error:
            text = f"{what} file {str(path)!r} cannot be opened ({error.strerror}); give a file that can be written"
            raise ConfigError(text) from None
        self.path = path

    def take_place_of(self, fd: int) -> None:
        """Redirects that descriptor to this file."""
        os.dup2(self.fd, fd, inheritable=False)
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
