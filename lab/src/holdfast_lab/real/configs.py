"""Configuration files of the nodes that a run starts (docs/configuration.md).

Rules of this file: text only; TOML's basic strings are JSON's.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.harness import HARNESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """`remote` HOST:PORT where this node dials; None where the other does. Times in seconds; None: the node's own."""

    name: str
    remote: str | None = None
    keepalive_s: float | None = 0.5
    hold_time_s: float | None = 1.5
    probe_s: float | None = None
    hosts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """One node's file. `role` None: as the topology says. `topology`: the file of the network.

    `queues` by name alone or with all their settings; `routes` are (destination, neighbour that it goes to next). The
    file has the virtual hosts of its neighbours and of its queues.
    """

    name: str
    role: str | None
    data: Path
    listen: str = "127.0.0.1:0"
    neighbours: Sequence[Neighbour] = ()
    queues: Sequence[str | QueueConfig] = ()
    routes: Sequence[tuple[str, str]] = ()
    create_queues: bool = False
    limits: Limits | None = None
    topology: Path | None = None

    def text(self) -> str:
        """The TOML."""
        lines = [
            "[node]",
            f"name = {_quoted(self.name)}",
            f"data = {_quoted(str(self.data))}",
            f"listen = [{_quoted(self.listen)}]",
        ]
        if self.role is not None:
            lines.append(f"roles = [{_quoted(self.role)}]")
        hosts = dict.fromkeys(host for neighbour in self.neighbours for host in neighbour.hosts)
        hosts |= dict.fromkeys(queue.vhost for queue in self.queues if isinstance(queue, QueueConfig) and queue.vhost)
        if hosts:
            lines.append(f"hostnames = [{_quoted(HARNESS)}]")
        if self.create_queues:
            lines.append("create_queues = true")
        for neighbour in self.neighbours:
            lines += ["", "[[neighbour]]", f"name = {_quoted(neighbour.name)}"]
            if neighbour.remote is not None:
                lines.append(f"remote = {_quoted(neighbour.remote)}")
            for key in ("keepalive_s", "hold_time_s", "probe_s"):
                if (value := getattr(neighbour, key)) is not None:
                    lines.append(f"{key} = {value}")
            if neighbour.hosts:
                lines.append(f"hosts = [{', '.join(map(_quoted, neighbour.hosts))}]")
        for host in hosts:
            lines += ["", "[[vhost]]", f"name = {_quoted(host)}"]
        for queue in self.queues:
            lines += ["", "[[queue]]", *_settings(QueueConfig(name=queue) if isinstance(queue, str) else queue)]
        for destination, via in self.routes:
            lines += ["", "[[route]]", f"destination = {_quoted(destination)}", f"via = {_quoted(via)}"]
        if self.limits is not None and (limits := _settings(self.limits)):
            lines += ["", "[limits]", *limits]
        if self.topology is not None:
            lines += ["", "[topology]", f"file = {_quoted(str(self.topology))}"]
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> Path:
        """Writes `NAME.toml` into `directory`; its path."""
        path = directory / f"{self.name}.toml"
        path.write_text(self.text(), encoding="utf-8")
        return path


def _quoted(text: str) -> str:
    """Not in ASCII: JSON would write what is beyond 16 bits as two halves, which TOML does not take."""
    return json.dumps(text, ensure_ascii=False)


def _settings(config: QueueConfig | Limits) -> list[str]:
    """The fields that are not at their default, a TOML line each."""
    values = [(item.name, getattr(config, item.name), item.default) for item in fields(config)]
    return [f"{name} = {json.dumps(value)}" for name, value, default in values if value != default]
