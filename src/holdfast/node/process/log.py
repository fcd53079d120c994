"""The node's log: lines to standard error, written in a thread.

Rules of this file: standard error may be a file on a disk that hangs, or a pipe that is not read; the node continues.
Lines without room are counted, and a later line has their number.
"""

import logging
import os
import time
from typing import Final

from holdfast.node.process.behind import WriteBehind

FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
WAITING_BYTES_MAX: Final = 1024 * 1024
"""Of lines that have not been written; some ten thousand."""
FULL_S: Final = 0.02
END_S: Final = 1.0
"""What the end of the process waits for the last lines."""


class LineFormatter(logging.Formatter):
    """Formats the time of a line, whatever the clock says: before 1970, or beyond the system's calendar."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        second, fraction = divmod(record.created, 1)
        try:
            moment = time.strftime(self.default_time_format, time.localtime(second))
        except (OverflowError, ValueError, OSError):
            moment = f"{second:.0f} s"
        return f"{moment},{int(fraction * 1000):03d}"


class LogHandler(logging.Handler):
    """Writes each record as lines to the open file `fd`, soon and in order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._left_out = 0
        self._behind = WriteBehind("holdfast-log", self._write, bytes_max=WAITING_BYTES_MAX)
        super().__init__()  # which registers it for the end of the process: not before it is complete
        self.setFormatter(LineFormatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record)
            if self._left_out:
                lines = f"{self._left_out} log lines dropped: standard error did not accept them\n{lines}"
            if self._behind.put(f"{lines}\n".encode(errors="backslashreplace")):
                self._left_out = 0
            else:
                self._left_out += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Waits END_S for what has not been written."""
        self._behind.flush(END_S)

    def _write(self, block: bytes) -> None:
        while block:
            try:
                block = block[os.write(self._fd, block) :]
            except BlockingIOError:  # a pipe that another program made non-blocking
                time.sleep(FULL_S)
            except OSError:  # there is nowhere to report it
                return
