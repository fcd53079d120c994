"""What a node writes about itself: telemetry and audit records, where there are files for them.

Rules of this file: a record never costs a message; one that violates its schema is left out and reported once.
"""

import logging
import time

from holdfast.errors import LocalProtocolError
from holdfast.node.process.telemetry import AuditFile, TelemetryFile

_log = logging.getLogger(__name__)


class Records:
    """`name`: the node's."""

    def __init__(self, name: str, telemetry: TelemetryFile | None, audit: AuditFile | None) -> None:
        self._name = name
        self._telemetry = telemetry
        self._audit = audit
        self._bad_kinds: set[str] = set()
        self._started_at = time.monotonic()

    def tell(self, kind: str, fields: dict[str, object]) -> None:
        """Adds a telemetry record."""
        if self._telemetry is None:
            return
        try:
            self._telemetry.record(
                kind,
                fields,
                node=self._name,
                wall_ms=time.time_ns() // 1_000_000,
                uptime_s=time.monotonic() - self._started_at,
            )
        except LocalProtocolError as error:  # a defect
            if kind not in self._bad_kinds:
                self._bad_kinds.add(kind)
                _log.error("telemetry: %s; such records are left out, all else is served; please report this", error)

    def audit(self, fields: dict[str, object]) -> None:
        """Adds an audit record."""
        if self._audit is not None:
            self._audit.record(fields, node=self._name, wall_ms=time.time_ns() // 1_000_000)

    def flush(self) -> None:
        """Writes the collected records to the files."""
        if self._telemetry is not None:
            self._telemetry.flush()
        if self._audit is not None:
            self._audit.flush()

    def close(self) -> None:
        for file in (self._telemetry, self._audit):
            if file is not None:
                file.close()
