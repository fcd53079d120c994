"""A NodeCore that answers bytes: the user behind the server in the transcripts of whole clients.

Rules of this file: everything follows from the bytes; the store's UUID, chance and time are always the same.
"""

from random import Random
from typing import Any
from uuid import UUID

from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from holdfast.units import MIB

WALL_MS = 1_700_000_000_000
STORE = UUID("01234567-89ab-4def-8123-456789abcdef")


class Player:
    """A node `hub` with the queue `q`, on loopback without users; each `connection` is a number of the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wall_ms = WALL_MS
        limits = Limits(credit=10, message_bytes_max=64 * MIB)  # a default that changes is no habit of a client's
        config = NodeConfig(name="hub", queues=(QueueConfig(name="q"),), limits=limits)
        self.core = NodeCore(config, MemoryStore(mint_from=lambda: STORE), rng=Random(1), wall_ms=WALL_MS, now=self.now)
        self.chunks: dict[int, list[Any]] = {}
        """By connection: what the node wrote and nobody took yet."""
        self.turn()

    def handle(self, event: events.Event) -> bool:
        """Whether it told the node to do anything."""
        commands = self.core.handle(event, self.now)
        for command in commands:
            if isinstance(command, events.SendBytes):
                self.chunks.setdefault(command.connection, []).extend(command.chunks)
            elif isinstance(command, events.Commit):
                self.core.store.commit(command.batch)  # type: ignore[attr-defined]  # it is a MemoryStore
                self.handle(events.Committed(number=command.number, room_bytes=self.core.store.room_bytes()))
        return bool(commands)

    def turn(self) -> None:
        """Until nothing is left to do at this moment."""
        for _ in range(10):
            moved = self.handle(events.TurnEnded(wall_ms=self.wall_ms))
            deadline = self.core.next_deadline()
            if deadline is not None and deadline <= self.now:
                moved = self.handle(events.TimerFired()) or moved
            if not moved:
                return
        raise AssertionError("the node does not come to rest")

    def open(self, connection: int) -> None:
        self.handle(events.ConnectionOpened(connection=connection, peer="client", loopback=True))
        self.turn()

    def hear(self, connection: int, data: bytes, *, cut: int = 0) -> None:
        step = cut or len(data) or 1
        for at in range(0, len(data), step):
            self.handle(events.BytesReceived(connection=connection, data=data[at : at + step]))
        self.turn()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.wall_ms += int(seconds * 1000)
        self.handle(events.TimerFired())
        self.turn()

    def take(self, connection: int) -> bytes:
        return b"".join(self.chunks.pop(connection, []))
