"""Frames instead of bytes between whole nodes: they ask for the same, in the same order, in either form (direct.py)."""

from random import Random
from typing import Any
from uuid import UUID

from amqp.joined import NOW
from amqp.spelling import spelt
from holdfast.amqp.connection import Connection, Outcomes, Settings
from holdfast.amqp.message import Message
from holdfast.amqp.performatives import (
    Source,
    Target,
)
from holdfast.core import events
from holdfast.core.config import NeighbourConfig, NodeConfig, QueueConfig
from holdfast.core.node import NodeCore
from holdfast.storage.memory import MemoryStore


class Nodes:
    """jfk, which dials hub, and a client at jfk; `log` is all that the cores asked for, with sizes for chunks."""

    def __init__(self, *, decoded: bool) -> None:
        self.decoded = decoded
        self.now = NOW
        self.log: list[Any] = []
        random = Random(7)
        queues = (QueueConfig(name="work"),)
        self.stores = {
            name: MemoryStore(mint_from=lambda: UUID(int=random.getrandbits(128), version=4)) for name in ("jfk", "hub")
        }
        self.cores = {
            name: NodeCore(
                NodeConfig(name=name, neighbours=(NeighbourConfig(name=other, remote=remote),), queues=queues),
                self.stores[name], rng=Random(3), wall_ms=1_700_000_000_000, now=NOW,
            )
            for name, other, remote in (("jfk", "hub", "127.0.0.1:1"), ("hub", "jfk", None))
        }  # fmt: skip
        self.client = Connection(Settings(container_id="c", decoded=decoded), server=False, now=NOW)
        self.flights: list[tuple[str, int, list[Any]]] = []
        self.outcomes = 0
        self.open("jfk", 9, None)

    def open(self, name: str, number: int, neighbour: str | None) -> None:
        self.handle(
            name,
            events.ConnectionOpened(
                connection=number, peer="x", loopback=True, neighbour=neighbour, decoded=self.decoded
            ),
        )

    def handle(self, name: str, event: events.Event) -> None:
        for command in self.cores[name].handle(event, self.now):
            if isinstance(command, events.SendBytes):
                self.log.append((self.now, name, command.connection, sum(map(len, command.chunks))))
                there = "client" if command.connection == 9 else "hub" if name == "jfk" else "jfk"
                self.flights.append((there, command.connection, command.chunks))
            elif isinstance(command, events.Connect):
                self.open("jfk", 1, "hub")
                self.open("hub", 1, None)
            elif isinstance(command, events.Commit):
                self.log.append((self.now, name, command.batch.appends, command.batch.retires, command.batch.puts))
                self.stores[name].commit(command.batch)
                self.handle(
                    name, events.Committed(number=command.number, room_bytes=self.stores[name].room_bytes())
                )  # fmt: skip
            else:
                assert not isinstance(command, events.CloseConnection)
                self.log.append((self.now, name, repr(command)))

    def deliver(self, there: str, number: int, chunks: list[Any]) -> None:
        data = b"" if self.decoded else b"".join(chunks)
        if there == "client":
            told = self.client.receive_frames(chunks, self.now) if self.decoded else self.client.receive(data, self.now)
            self.outcomes += sum(len(event.contexts) for event in told if isinstance(event, Outcomes))
            self.log += map(spelt, told)
        elif self.decoded:
            self.handle(there, events.FramesReceived(connection=number, frames=chunks, size=sum(map(len, chunks))))
        else:
            self.handle(there, events.BytesReceived(connection=number, data=data))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.01
            if chunks := self.client.take_output(self.now):
                self.flights.append(("jfk", 9, chunks))
            flights, self.flights = self.flights, []
            for flight in flights:
                self.deliver(*flight)
            for name, core in self.cores.items():
                deadline = core.next_deadline()
                if deadline is not None and deadline <= self.now:
                    self.handle(name, events.TimerFired())
                self.handle(name, events.TurnEnded(wall_ms=int(1_700_000_000_000 + self.now * 1000)))


def test_nodes_hand_custody_over_in_either_form() -> None:
    logs = []
    for decoded in (False, True):
        nodes = Nodes(decoded=decoded)
        sender = nodes.client.begin().attach_sender("to", Source(), Target(address="work@hub"))
        nodes.run(8)
        for number in range(40):
            body = bytes([number]) * (number * number * 90)
            sender.send(Message(data=[body]).encode(), context=number)
            nodes.run(0.05)
        nodes.run(5)
        assert nodes.outcomes == 40
        assert nodes.cores["hub"].catalog.queues["work"].messages == 40
        logs.append(nodes.log)
    assert logs[0] == logs[1]
