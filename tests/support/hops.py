"""What tests of several hops share: programs that send, what breaks under way, and how exact the end must be."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.engine import events
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support.rig import Client, Node, Rig

STRICT = {"queues": (QueueConfig(name="work", order="strict"),)}


def send(rig: Rig, node: Node, *bodies: str, to: str = "d", queue: str = "work", **parts: Any) -> Client:
    client = rig.client(node)
    link = client.sender(f"{queue}@{to}")
    rig.settle()
    for body in bodies:
        if not link.sendable:
            rig.settle()
        client.send(link, body, **parts)
    rig.settle()
    return client


def replaced_disk() -> tuple[Rig, Node, Node]:
    """jfk and the hub, whose disk was replaced after it had taken 1 to 4 of jfk's; it has 5 and 6 on the new one."""
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(1)
    send(rig, jfk, *names(1, 4), to="hub")
    rig.run(3)
    hub.crash()
    hub.store = MemoryStore(mint_from=rig.uuid)
    hub.start()
    rig.run(8)
    send(rig, jfk, *names(5, 6), to="hub")
    return rig, jfk, hub


def names(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def snapshot(node: Node) -> MemoryStore:
    store = MemoryStore(mint_from=node.rig.uuid)
    store.uuid = node.store.uuid
    store._queues, store._tables = copy.deepcopy(node.store._queues), dict(node.store._tables)
    store._blobs = copy.deepcopy(node.store._blobs)
    return store


def reroute(rig: Rig, node: Node, **table: str) -> None:
    """A new table, in the node's file too: it has it after its next start."""
    node.config = replace(node.config, forwarding=tuple(table.items()))
    node.handle(events.ForwardingChanged(table=table))
    rig.settle()


def is_empty(*nodes: Node) -> bool:
    """Whether nothing is in transit, nor waits."""
    return all(
        not queue.messages
        for node in nodes
        if node.core is not None
        for name, queue in node.core.catalog.queues.items()
        if name.startswith(("@", "$waiting"))
    )


def held(node: Node, destination: str = "d") -> int:
    assert node.core is not None
    return node.core.forwarding.sent_back.held(destination)


def apart(rig: Rig, one: str, two: str, *, silent: bool = False) -> None:
    for wire in rig.between(one, two):
        wire.cut(silent=silent)


def toggle(node: Node) -> None:
    """Starts it, or crashes it."""
    if node.core is None:
        node.start()
    else:
        node.crash()


def cut_any(rig: Rig) -> None:
    """Cuts one of the connections between nodes, loudly or silently."""
    wires = [wire for wire in rig.wires if not wire.dead and all(end.node for end in wire.ends)]
    if wires:
        rig.random.choice(wires).cut(silent=rig.random.random() < 0.5)


class Source:
    """A named producer's program at a node: sends 1, 2, 3 … in bursts, and goes on from what is stored."""

    def __init__(self, rig: Rig, node: Node, to: str, messages: int) -> None:
        self.rig, self.node, self.messages = rig, node, messages
        self.address = f"work@{to}"
        self.client: Client | None = None
        self.link: Any = None
        self.sent = -1
        self.done = False

    def act(self) -> None:
        if self.node.core is None or self.done:
            return
        if self.client is None or self.client.over or self.link.detached:
            self.client = self.rig.client(self.node)
            self.link = self.client.sender(self.address, properties={"holdfast:producer": "p"})
            self.sent = -1
            return
        if not self.link.attached:
            return
        told = {str(key): value for key, value in (self.link.remote_attach.properties or {}).items()}
        if self.sent < 0:
            missing = told["holdfast:missing"]
            self.sent = missing[0][0] - 1 if missing else told["holdfast:last-number"]
        if any(type(state).__name__ != "Accepted" for _, state in self.client.outcomes):
            self.client.close_transport()
            return
        self.client.outcomes.clear()
        for _ in range(self.rig.random.randint(1, 60)):
            if self.sent < self.messages and self.link.sendable:
                self.sent += 1
                self.client.send(self.link, f"{self.node.name}-{self.sent}", number=self.sent)
        if self.sent >= self.messages and not self.link.unsettled:
            self.done = True


def check_exact(origin: Node, destination: Node, messages: int) -> None:
    """All is there once, and in the order in which the origin numbered it."""
    given = [Message.decode(origin.given[number]).body_bytes().decode() for number in sorted(origin.given)]
    assert sorted(given) == sorted(f"{origin.name}-{number}" for number in range(1, messages + 1))
    assert destination.bodies("work") == given
    assert origin.core is not None and not origin.core.losses


def until_done(rig: Rig, sources: Iterable[Source], nodes: Iterable[Node], rounds: int) -> None:
    """Lets the programs send the rest, until nothing is in transit; at most so many rounds of 0.3 s."""
    for _ in range(rounds):
        rig.run(0.3)
        for source in sources:
            source.act()
        if all(source.done for source in sources) and is_empty(*nodes):
            return


def diamond(rig: Rig, **fields: Any) -> list[Node]:
    """a to d by b, or by c."""
    routes = {"a": {"d": "b"}, "d": {"a": "b"}}
    return rig.graph("a-b", "a-c", "b-d", "c-d", routes=routes, d=STRICT, **fields)
