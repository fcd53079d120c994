"""The telemetry file: NDJSON lines, gathered through a turn, appended at its end.

Rules of this file: telemetry never stops a node and never holds it up; what cannot be written is dropped and
said once. The lines themselves are `holdfast.telemetry`'s.
"""

import logging
import os
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

BUFFER_BYTES_MAX: Final = 256 * 1024
"""Lines gathered before they are written within a turn."""

_log = logging.getLogger(__name__)


class TelemetryFile:
    """One file, opened for appending. Raises ConfigError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._bytes = 0
        self._broken_line = False
        self._complained = False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(
                f"telemetry file: cannot open {str(path)!r} ({error.strerror}), accepted is a file that can be written"
            ) from None

    def add(self, line: bytes) -> None:
        """Gathers one line, which ends with a newline."""
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= BUFFER_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Writes what is gathered; drops it where the file takes none."""
        if not self._lines:
            return
        block = b"".join(self._lines)
        self._lines.clear()
        self._bytes = 0
        if self._broken_line:
            block = b"\n" + block
        try:
            while block:
                written = os.write(self._fd, block)
                self._broken_line = not block[:written].endswith(b"\n")
                block = block[written:]
        except OSError as error:
            if not self._complained:
                self._complained = True
                _log.warning("telemetry file %s: %s; its records are dropped", self._path, error.strerror)

    def close(self) -> None:
        """Writes what is left. Idempotent."""
        if self._fd >= 0:
            self.flush()
            os.close(self._fd)
            self._fd = -1
