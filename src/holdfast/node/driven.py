"""The interfaces of the driver: the core that it drives, and the function that formats a telemetry record.

Rules of this file: types alone.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from holdfast.engine.events import Command, Event


class Core(Protocol):
    """The core that is driven: `holdfast.core.NodeCore`."""

    def handle(self, event: Event, now: float) -> Iterable[Command]: ...
    def next_deadline(self) -> float | None: ...


RecordLine = Callable[[str, dict[str, object], int, float], bytes]
"""(kind, fields, wall ms, uptime s) to an NDJSON line."""
