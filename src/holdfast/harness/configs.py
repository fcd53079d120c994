"""Configuration files of the nodes that a run starts (docs/configuration.md).

Rules of this file: text only; TOML's basic strings are JSON's, so `json.dumps` quotes them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from holdfast.core.config import Limits, QueueConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """`remote` HOST:PORT where this node dials; None where the other does. Times in seconds."""

    name: str
    remote: str | None = None
    keepalive_s: float = 0.5
    hold_time_s: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """One node's file. `telemetry` None: off; `telemetry_interval_s` seconds between its samples.

    `queues` by name alone or with all their settings; `routes` are (destination, neighbour that it goes to next).
    """

    name: str
    role: str
    data: Path
    listen: str = "127.0.0.1:0"
    neighbours: Sequence[Neighbour] = ()
    queues: Sequence[str | QueueConfig] = ()
    routes: Sequence[tuple[str, str]] = ()
    create_queues: bool = False
    limits: Limits | None = None
    telemetry: Path | None = None
    telemetry_interval_s: float = 0.25

    def text(self) -> str:
        """The TOML."""
        lines = [
            "[node]",
            f"name = {json.dumps(self.name)}",
            f"data = {json.dumps(str(self.data))}",
            f"listen = [{json.dumps(self.listen)}]",
            f"roles = [{json.dumps(self.role)}]",
        ]
        if self.create_queues:
            lines.append("create_queues = true")
        for neighbour in self.neighbours:
            lines += ["", "[[neighbour]]", f"name = {json.dumps(neighbour.name)}"]
            if neighbour.remote is not None:
                lines.append(f"remote = {json.dumps(neighbour.remote)}")
            lines += [f"keepalive_s = {neighbour.keepalive_s}", f"hold_time_s = {neighbour.hold_time_s}"]
        for queue in self.queues:
            lines += ["", "[[queue]]", *_settings(QueueConfig(name=queue) if isinstance(queue, str) else queue)]
        for destination, via in self.routes:
            lines += ["", "[[route]]", f"destination = {json.dumps(destination)}", f"via = {json.dumps(via)}"]
        if self.limits is not None and (limits := _settings(self.limits)):
            lines += ["", "[limits]", *limits]
        if self.telemetry is not None:
            lines += [
                "",
                "[telemetry]",
                f"file = {json.dumps(str(self.telemetry))}",
                f"interval_s = {self.telemetry_interval_s}",
            ]
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> Path:
        """Writes `NAME.toml` into `directory`; its path."""
        path = directory / f"{self.name}.toml"
        path.write_text(self.text(), encoding="utf-8")
        return path


def _settings(config: QueueConfig | Limits) -> list[str]:
    """The fields that are not at their default, a TOML line each."""
    values = [(item.name, getattr(config, item.name), item.default) for item in fields(config)]
    return [f"{name} = {json.dumps(value)}" for name, value, default in values if value != default]
