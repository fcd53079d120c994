"""The interfaces of the driver: the core that it drives, its admin port, and the function that formats a telemetry
record.

Rules of this file: types alone.
"""

from collections.abc import Iterable
from typing import Protocol

from holdfast.engine.events import Command, Event
from holdfast.names import HostPort


class Core(Protocol):
    """The core that is driven: `holdfast.core.NodeCore`."""

    def handle(self, event: Event, now: float) -> Iterable[Command]: ...
    def next_deadline(self) -> float | None: ...


class CountsCommits(Protocol):
    def note(self, seconds: float) -> None: ...


class AdminTarget(Protocol):
    """The admin port: `holdfast.node.admin.port.AdminPort`, which is imported where there is one alone."""

    @property
    def commits(self) -> CountsCommits: ...
    def told(self, fields: dict[str, object]) -> None: ...
    async def listen(self, where: HostPort) -> str: ...
    def close(self) -> None: ...
