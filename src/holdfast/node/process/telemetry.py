"""The files of telemetry and of the audit log: NDJSON lines, collected during a turn, appended by a thread.

Rules of this file: neither stops nor delays a node, whatever happens to the file's disk; lines that cannot be written
are dropped, which is logged, at most once a minute; the audit file gets their number once it can be written again. The
lines themselves are `holdfast.telemetry`'s.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.node.process.appending import Opened
from holdfast.node.process.behind import WriteBehind
from holdfast.units import iso8601

BUFFER_BYTES_MAX: Final = 256 * 1024
"""Lines gathered before they are handed over within a turn."""
WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""What may wait for the file; more is dropped."""
GATHER_S: Final = 0.02
"""Lines of so long are written together: each writing takes the interpreter from the loop."""
COMPLAINT_S: Final = 60.0
"""A file that fails again and again is logged so often, until it is opened anew."""
END_S: Final = 0.5
"""What the node's end waits for the last lines."""

_log = logging.getLogger(__name__)


class RecordFile:
    """One file, opened for appending. Raises ConfigError if it cannot be opened."""

    what: str
    mode: int

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._bytes = 0
        self._broken_line = self._closed = False
        self._refused = self._failed = 0
        """Lines that were dropped, because too much waited and because they could not be written; each counted by one
        thread alone."""
        self._told = 0
        """Of these lines, those whose number was written."""
        self._complained_at: float | None = None
        """When it was logged last that lines are dropped; None: not of this file."""
        self._fd = Opened(self.what, path, self.mode).fd
        self._behind = WriteBehind(f"holdfast-{self.what}", self._write, bytes_max=WAITING_BYTES_MAX, gather_s=GATHER_S)

    def reopen(self, path: Path) -> Opened:
        """Opens the file anew, perhaps after it was moved away, or another one; `use` has lines go there. ConfigError
        if that is not possible. It may be called in any thread."""
        return Opened(self.what, path, self.mode)

    def use(self, opened: Opened) -> None:
        """Writes lines there from now on; none is lost."""
        self._path, self._complained_at = opened.path, None
        opened.take_place_of(self._fd)

    def add(self, line: bytes) -> None:
        """Collects one line, which ends with a newline."""
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= BUFFER_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Hands over the collected lines; drops them if too much waits for the file already."""
        if not self._lines:
            return
        block, count = b"".join(self._lines), len(self._lines)
        self._lines.clear()
        self._bytes = 0
        if not self._behind.put(block):
            self._refused += count
            self._complain("it does not accept writes")

    def _write(self, block: bytes) -> None:
        """Writes the block, behind the number of lines that were dropped before it. In the thread."""
        dropped = self._refused + self._failed - self._told
        head = b"\n" if self._broken_line else b""
        if self._append(head + self.gap(dropped) if dropped else head):
            self._failed += block.count(b"\n")
            return
        self._told += dropped
        self._failed += self._append(block).count(b"\n")

    def _append(self, block: bytes) -> bytes:
        """Writes the block; returns what could not be written of it."""
        try:
            while block:
                written = os.write(self._fd, block)
                self._broken_line = not block[:written].endswith(b"\n")
                block = block[written:]
        except OSError as error:
            self._complain(error.strerror)
        return block

    def gap(self, dropped: int) -> bytes:
        """A line that says how many lines were dropped before it; b"" where files of this kind have none."""
        return b""

    def _complain(self, reason: str | None) -> None:
        now = time.monotonic()
        if self._complained_at is None or now - self._complained_at >= COMPLAINT_S:
            self._complained_at = now
            _log.warning("%s file %s: %s; its records are dropped", self.what, self._path, reason)

    def close(self) -> None:
        """Writes the rest, for at most END_S. Idempotent."""
        if not self._closed:
            self._closed = True
            self.flush()
            if self._behind.close(END_S):
                os.close(self._fd)


class TelemetryFile(RecordFile):
    """The file of telemetry."""

    what = "telemetry"
    mode = 0o644

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # The records' shapes take a megabyte, which a node without such a file saves.
        from holdfast.telemetry.writer import line

        self._line = line

    def record(self, kind: str, fields: Mapping[str, object], *, node: str, wall_ms: int, uptime_s: float) -> None:
        """Collects one record. Raises LocalProtocolError if it violates the schema of its kind."""
        self.add(self._line(kind, fields, node=node, wall_ms=wall_ms, uptime_s=uptime_s))


class AuditFile(RecordFile):
    """The file of the audit log, which only its owner may read."""

    what = "audit"
    mode = 0o600

    def __init__(self, path: Path) -> None:
        self._node = ""
        super().__init__(path)

    def record(self, fields: Mapping[str, object], *, node: str, wall_ms: int) -> None:
        """Collects one record as a line of JSON."""
        self._node = node
        self.add(_line(fields, node, wall_ms))

    def gap(self, dropped: int) -> bytes:
        return _line({"kind": "gap", "left_out": dropped}, self._node, time.time_ns() // 1_000_000)


def _line(fields: Mapping[str, object], node: str, wall_ms: int) -> bytes:
    told = {"v": 1, "t": iso8601(wall_ms), "node": node, **fields}
    return json.dumps(told).encode() + b"\n"
