"""The node's log: lines to standard error or to a file, written in a thread.

Rules of this file: standard error may be a file on a disk that hangs, or a pipe that is not read; the node continues.
Lines without room are counted, and a later line has their number.
"""

import json
import logging
import os
import time
from pathlib import Path
from typing import Final

from holdfast.lines import one_line
from holdfast.node.process.appending import Opened
from holdfast.node.process.behind import WriteBehind

WAITING_BYTES_MAX: Final = 1024 * 1024
"""Of lines that have not been written; some ten thousand."""
FULL_S: Final = 0.02
END_S: Final = 1.0
"""What the end of the process waits for the last lines."""
LINE_CHARACTERS_MAX: Final = 16_000
"""Of one line, with the traceback of a defect; the core's lines are far shorter (engine/log.py)."""


class LineFormatter(logging.Formatter):
    """A line of text: the time in UTC, the node's name, the level, and what happened. Formats the time, whatever the
    clock shows: before 1970, or beyond the calendar."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = one_line(node)

    def format(self, record: logging.LogRecord) -> str:
        return f"{time_of(record)} {self.node} {record.levelname} {self.text_of(record)}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def text_of(self, record: logging.LogRecord) -> str:
        """What happened, with the traceback of a defect; bounded."""
        text = super().format(record)
        return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[:LINE_CHARACTERS_MAX]}…"


class JsonFormatter(LineFormatter):
    """The same as an object of JSON on one line: `t`, `node`, `level`, `text`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return record.message  # JSON escapes it

    def format(self, record: logging.LogRecord) -> str:
        told = {"t": time_of(record), "node": self.node, "level": record.levelname, "text": self.text_of(record)}
        return json.dumps(told)


def time_of(record: logging.LogRecord) -> str:
    """When it was logged, in UTC, as ISO 8601 has it."""
    second, fraction = divmod(record.created, 1)
    try:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    except (OverflowError, ValueError, OSError):
        return f"{second:.0f} s"
    return f"{moment}.{int(fraction * 1000):03d}Z"


class LogHandler(logging.Handler):
    """Writes each record as a line to the open file `fd`, or to the file that `use` names, soon and in order."""

    def __init__(self, fd: int) -> None:
        self._fd = self._target = fd
        self._own: int | None = None
        """Of the file that was named last."""
        self._left_out = 0
        self._behind = WriteBehind("holdfast-log", self._write, bytes_max=WAITING_BYTES_MAX)
        super().__init__()  # which registers it for the end of the process: not before it is complete
        self.setFormatter(LineFormatter("-"))

    def reopen(self, path: Path) -> Opened:
        """Opens a file for the log, to be used. ConfigError if that is not possible. It may be called in any thread."""
        return Opened("log", path, 0o640)

    def use(self, opened: Opened | None) -> None:
        """Writes lines there from now on; None: to where they went at first."""
        if opened is None:
            self._target = self._fd
        elif self._own is None:
            self._target = self._own = opened.fd
        else:
            opened.take_place_of(self._own)
            self._target = self._own

    def shape(self, node: str, *, as_json: bool) -> None:
        """Sets the form of all lines."""
        self.setFormatter((JsonFormatter if as_json else LineFormatter)(node))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record)
            if self._left_out:
                text = f"{self._left_out} log lines dropped: what they are written to did not accept them"
                left_out = logging.LogRecord(record.name, logging.WARNING, "", 0, text, None, None)
                lines = f"{self.format(left_out)}\n{lines}"
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
                block = block[os.write(self._target, block) :]
            except BlockingIOError:  # a pipe that another program made non-blocking
                time.sleep(FULL_S)
            except OSError:  # there is nowhere to report it
                return
