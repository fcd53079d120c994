"""Wires in memory between nodes, and between a node and a client, that can be cut at any byte.

Rules of this file: bytes wait in an inbox until somebody delivers them; nothing moves by itself.
"""

from typing import Protocol

import pytest

from holdfast.engine import events
from support.watch import Watch


class WiredNode(Protocol):
    """A node at an end of a wire."""

    ends: "dict[int, End]"
    name: str

    def handle(self, event: events.Event) -> None: ...


class Party(Protocol):
    """Who is at the other end of a node's wire."""

    def receive(self, data: bytes) -> None:
        """Bytes from the node."""

    def lost(self) -> None:
        """The wire is gone."""


class End:
    """One end of a wire: a node's connection, or another party's."""

    def __init__(self, wire: "Wire", node: WiredNode | None, number: int, party: Party | None) -> None:
        self.wire = wire
        self.node = node
        self.number = number
        self.party = party
        self.inbox = bytearray()
        self.alive = True
        self.paused = False
        self.eof = False
        if node is not None:
            self.watch = Watch(node)

    def receive(self, data: bytes) -> None:
        if self.node is not None:
            self.watch.hear(data)
            self.node.handle(events.BytesReceived(connection=self.number, data=data))
        elif self.party is not None:
            self.party.receive(data)

    def lose(self, reason: str) -> None:
        if not self.alive:
            return
        self.alive = False
        if self.node is not None and self.node.ends.pop(self.number, None) is not None:
            self.node.handle(events.ConnectionLost(connection=self.number, reason=reason))
        elif self.party is not None:
            self.party.lost()


class Wire:
    """Bytes both ways, in order. `silent`: whatever is written vanishes, and nobody is told. `stirred` holds it, by its
    place among others, from when there may be something to deliver."""

    def __init__(self, place: int, stirred: "dict[int, Wire]") -> None:
        self.place = place
        self.stirred = stirred
        self.ends: list[End] = []
        self.silent = False

    @property
    def joins(self) -> set[str]:
        """The names of the nodes at its ends; "" for who is none."""
        return {end.node.name if end.node else "" for end in self.ends}

    def other(self, end: End) -> End:
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def write(self, end: End, data: bytes) -> None:
        other = self.other(end)
        if other.alive and not self.silent:
            other.inbox += data
            self.stirred[self.place] = self

    def closing(self, end: End, *, abort: bool) -> None:
        other = self.other(end)
        if abort:
            other.inbox.clear()
        if not self.silent:
            other.eof = True
            self.stirred[self.place] = self
        end.lose("closed by us")

    def cut(self, *, silent: bool = False) -> None:
        """What is under way vanishes."""
        for end in self.ends:
            end.inbox.clear()
        self.silent = True
        if not silent:
            for end in self.ends:
                end.lose("cut")

    @property
    def rests(self) -> bool:
        """Whether there is nothing to deliver, whoever reads."""
        return not any(end.alive and (end.inbox or end.eof) for end in self.ends)

    @property
    def dead(self) -> bool:
        return not (self.ends[0].alive or self.ends[1].alive)


def listen(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], bytearray]:
    """All that nodes write to each other from now on, by (from, to)."""
    heard: dict[tuple[str, str], bytearray] = {}
    write = Wire.write

    def written(wire: Wire, end: End, data: bytes) -> None:
        other = wire.other(end)
        if end.node is not None and other.node is not None:
            heard.setdefault((end.node.name, other.node.name), bytearray()).extend(data)
        write(wire, end, data)

    monkeypatch.setattr(Wire, "write", written)
    return heard
