"""What running nodes report, read from their telemetry files while these grow.

Rules of this file: reads only; a line that is not whole yet waits for its end, one that is not JSON is
skipped (a kill may have cut it). Source of the records: holdfast.telemetry.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Tail:
    """Records appended to one NDJSON file since the last call of `read`. The file need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._place)
                data = file.read()
        except FileNotFoundError:
            return []
        self._place += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        records = []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append(record)
        return records


@dataclass(slots=True)
class QueueState:
    """Of one queue as last reported: messages in it, and how many it ever took."""

    messages: int = 0
    taken: int = 0


@dataclass(slots=True)
class NodeWatch:
    """The queues of one node by name, as its telemetry last said."""

    tail: Tail
    queues: dict[str, QueueState] = field(default_factory=dict)

    def refresh(self) -> None:
        """Takes in what was written since the last call."""
        for record in self.tail.read():
            if record.get("kind") == "queue":
                state = self.queues.setdefault(str(record["name"]), QueueState())
                state.messages = int(record["messages"])
                state.taken = int(record["next_sequence"]) - 1

    def queue(self, name: str) -> QueueState:
        """The queue's state; empty where nothing was reported of it."""
        return self.queues.get(name, QueueState())
