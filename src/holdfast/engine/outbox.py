"""The node's commands and telemetry records for its driver, in order."""

from typing import Any

from holdfast.engine import events


class Outbox:
    """The commands of the event that is being handled; `NodeCore.handle` returns them."""

    __slots__ = ("commands",)

    def __init__(self) -> None:
        self.commands: list[events.Command] = []

    def put(self, command: events.Command) -> None:
        self.commands.append(command)

    def record(self, kind: str, fields: dict[str, Any]) -> None:
        """A telemetry record (docs/telemetry.md)."""
        self.commands.append(events.Record(kind=kind, fields=fields))

    def take(self) -> list[events.Command]:
        """All commands, in order; the outbox is empty after it."""
        commands, self.commands = self.commands, []
        return commands
