"""Configuration files of the nodes that a run starts (docs/configuration.md).

Rules of this file: text only; TOML's basic strings are JSON's, so `json.dumps` quotes them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """`remote` HOST:PORT where this node dials; None where the other does. Times in seconds."""

    name: str
    remote: str | None = None
    keepalive_s: float = 0.5
    hold_time_s: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """One node's file. `telemetry` None: off; `telemetry_interval_s` seconds between its samples."""

    name: str
    role: str
    data: Path
    listen: str = "127.0.0.1:0"
    neighbours: Sequence[Neighbour] = ()
    queues: Sequence[str] = ()
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
        for neighbour in self.neighbours:
            lines += ["", "[[neighbour]]", f"name = {json.dumps(neighbour.name)}"]
            if neighbour.remote is not None:
                lines.append(f"remote = {json.dumps(neighbour.remote)}")
            lines += [f"keepalive_s = {neighbour.keepalive_s}", f"hold_time_s = {neighbour.hold_time_s}"]
        for queue in self.queues:
            lines += ["", "[[queue]]", f"name = {json.dumps(queue)}"]
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
