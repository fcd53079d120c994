"""Three brokers in a line over which topics are federated: Holdfast nodes, or RabbitMQ with its federation plug-in.

Rules of this file: each broker is a process of its own, with the settings that its documents tell a user to take. The
messages of a topic go from the first to the last, as far as something is bound there.
"""

import asyncio
import json
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from _connection import Side
from _native import NativeReceiver, short_string
from _peers import Holdfast, Peer, PeerMissing, RabbitMq

from holdfast.client import Connection, Message, Properties, Receiver, connect

TOPIC = "bench"
CONNECTION_SUBSCRIPTIONS = 250
"""Not durable; a node's limit is 256 (`dynamic_nodes_max`)."""
KEYS_MAX = 50_000
"""Subscriptions of a topic, as far as the limit goes; each has a queue in memory."""
CONFIRM_S = 300.0
KNOWN_S_MAX = 600.0
POLL_S = 0.1
HOP_CHECKED = 100
"""About so many of the subjects are published after a hop has confirmed all."""
BIND, BIND_OK = (50, 20), (50, 21)
"""Methods of AMQP 0-9-1 (§1.7.2.3)."""


class Bound(NamedTuple):
    """Seconds until all subjects were bound at their own broker, and until the first knew them."""

    own_s: float
    known_s: float


class Chain(ABC):
    """`brokers`: the first is published at, the last is subscribed at."""

    name: str

    def __init__(self, brokers: Sequence[Peer]) -> None:
        self.brokers = brokers
        self.first, self.last = brokers[0], brokers[-1]

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Start all, so that the topic goes from the first to the last. PeerMissing."""

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    @abstractmethod
    def target(self) -> str:
        """Address at the first broker that publishes."""

    @abstractmethod
    def source(self, word: str) -> str:
        """Address at the last one that subscribes to subjects that begin with `word`."""

    @abstractmethod
    def knows(self, word: str) -> bool:
        """Whether the first broker knows that subscription."""

    @abstractmethod
    def bind(self, words: Sequence[str]) -> Bound:
        """Bind each subject at the last broker, and wait until the first sends messages of all of them."""

    def wait_until_known(self, word: str) -> None:
        self._wait(f"{word} is not known", lambda: self.knows(word))

    def _wait(self, otherwise: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + KNOWN_S_MAX
        while not done():
            if time.monotonic() > deadline:
                raise PeerMissing(f"{self.name}: {otherwise} at the first broker after {KNOWN_S_MAX:g} s")
            time.sleep(POLL_S)


class _Node(Holdfast):
    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node
        self.neighbours = ""

    def start(self, directory: Path, trace: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "node.toml"
        limits = f"[limits]\nqueue_subscriptions_max = {KEYS_MAX}\nqueues_max = {2 * KEYS_MAX}\n"
        file.write_text(f'[node]\nname = "{self._node}"\ncreate_queues = true\n{limits}{self.neighbours}')
        words = ["node", str(file), "--listen", "127.0.0.1:0", "--data", str(directory / "store")]
        self._start_ready([sys.executable, "-m", "holdfast", *words], directory, trace)


class HoldfastChain(Chain):
    """Nodes a, b and c. Each dials the next, and forwards the topic to it with a dynamic entry."""

    name = "holdfast"

    def __init__(self) -> None:
        self._nodes = [_Node(name) for name in "abc"]
        super().__init__(self._nodes)

    def start(self, directory: Path) -> None:
        a, b, c = self._nodes
        c.neighbours = '[[neighbour]]\nname = "b"\n' + _entry("b")
        c.start(directory / "c")
        b.neighbours = f'[[neighbour]]\nname = "a"\n[[neighbour]]\nname = "c"\nremote = "127.0.0.1:{c.port}"\n'
        b.neighbours += _entry("a") + _entry("c")
        b.start(directory / "b")
        a.neighbours = f'[[neighbour]]\nname = "b"\nremote = "127.0.0.1:{b.port}"\n' + _entry("b")
        a.start(directory / "a")

    def target(self) -> str:
        return f"topic/{TOPIC}"

    def source(self, word: str) -> str:
        return f"topic/{TOPIC}/{word}.#"

    def knows(self, word: str) -> bool:
        return f'"{word}.#"' in self._bindings()

    def _bindings(self) -> str:
        """Of the last node, the first 200 that the first node knows."""
        command = [sys.executable, "-m", "holdfast", "federation", "list", "--json", "--url", _url(self.first)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def bind(self, words: Sequence[str]) -> Bound:
        """They end when the connections do; what is bound next is not measured before the first node has forgotten
        them."""
        bound = asyncio.run(self._bind(words))
        prefix = words[0].rpartition(".")[0]
        self._wait(f"{prefix} is still known", lambda: f'"{prefix}.' not in self._bindings())
        return bound

    async def _bind(self, words: Sequence[str]) -> Bound:
        """As subscriptions that are not durable; the last is attached once all nodes know everything."""
        *others, last = (f"topic/{TOPIC}/{word}" for word in words)
        began = time.monotonic()
        connections, receivers = await _subscribe(_url(self.last), others)
        own_s = time.monotonic() - began
        receiver = await connections[-1].receiver(last, credit=1, confirm_s=CONFIRM_S)
        known_s = time.monotonic() - began
        if receiver.confirmation is None or set(receiver.confirmation.confirmed) != {"a", "b"}:
            raise PeerMissing(f"{self.name}: not confirmed: {receiver.confirmation}")
        await asyncio.gather(*(each.close() for each in receivers))
        for connection in connections:
            await connection.close()
        return Bound(own_s, known_s)


def hop_s(directory: Path, words: Sequence[str]) -> float:
    """Seconds from the start of a node until it has confirmed that it knows all subjects that were bound at its
    neighbour before: what the hop alone takes, without the attaches. Some of the subjects are then published there,
    and have to come. PeerMissing."""
    there, here = _Node("there"), _Node("here")
    there.neighbours = '[[neighbour]]\nname = "here"\n'
    try:
        there.start(directory / "there")
        here.neighbours = f'[[neighbour]]\nname = "there"\nremote = "127.0.0.1:{there.port}"\n' + _entry("there")
        return asyncio.run(_hop_s(there, here, directory / "here", words))
    finally:
        here.stop()
        there.stop()


async def _hop_s(there: _Node, here: _Node, directory: Path, words: Sequence[str]) -> float:
    connections, receivers = await _subscribe(_url(there), [f"topic/{TOPIC}/{word}" for word in words])
    began = time.monotonic()
    await asyncio.to_thread(here.start, directory)
    confirmed: tuple[str, ...] = ()
    while "here" not in confirmed:  # a node that is not there yet is not waited for
        if time.monotonic() - began > KNOWN_S_MAX:
            raise PeerMissing(f"holdfast: not confirmed after {KNOWN_S_MAX:g} s")
        receiver = await connections[-1].receiver(f"topic/{TOPIC}/last", credit=1, confirm_s=CONFIRM_S)
        confirmed = () if receiver.confirmation is None else receiver.confirmation.confirmed
        await receiver.close()
        await asyncio.sleep(0 if confirmed else POLL_S)
    took_s = time.monotonic() - began
    async with await connect(_url(here)) as publisher:
        sender = await publisher.sender(f"topic/{TOPIC}")
        for word, receiver in [*zip(words, receivers, strict=True)][:: max(1, len(words) // HOP_CHECKED)]:
            await sender.send(Message(properties=Properties(subject=word), data=[b"x"]))
            if not await receiver.batch(count_max=1, timeout_s=CONFIRM_S):
                raise PeerMissing(f"holdfast: {word} was confirmed, and its message has not come")
    for connection in connections:
        await connection.close()
    return took_s


async def _subscribe(url: str, addresses: Sequence[str]) -> tuple[list[Connection], list[Receiver]]:
    """Subscriptions that are not durable, CONNECTION_SUBSCRIPTIONS on each connection; one receiver for each."""
    connections: list[Connection] = []
    receivers: list[Receiver] = []
    for start in range(0, len(addresses) + 1, CONNECTION_SUBSCRIPTIONS):  # one at least, and room on the last
        connections.append(await connect(url))
        some = addresses[start : start + CONNECTION_SUBSCRIPTIONS]
        receivers += await asyncio.gather(*(connections[-1].receiver(address, credit=1) for address in some))
    return connections, receivers


def _entry(neighbour: str) -> str:
    return f'[[federation]]\ntopic = "{TOPIC}"\nneighbour = "{neighbour}"\n'


def _url(broker: Peer) -> str:
    return f"amqp://{broker.host}:{broker.port}"


class _Federated(RabbitMq):
    plugins = ("rabbitmq_amqp1_0", "rabbitmq_federation")


class RabbitChain(Chain):
    """Its exchange `amq.topic` at each broker but the first has the one before as its upstream."""

    name = "rabbitmq_federation"

    def __init__(self) -> None:
        self._servers = [_Federated() for _ in range(3)]
        super().__init__(self._servers)

    def start(self, directory: Path) -> None:
        for number, server in enumerate(self._servers):
            server.start(directory / f"rabbitmq-{number}")
        for before, server in zip(self._servers, self._servers[1:], strict=False):
            upstream = {"uri": f"amqp://guest:guest@127.0.0.1:{before.port}", "max-hops": len(self._servers)}
            server.control("set_parameter", "federation-upstream", "before", json.dumps(upstream))
            policy = json.dumps({"federation-upstream-set": "all"})
            server.control("set_policy", "--apply-to", "exchanges", "federated", r"^amq\.topic$", policy)

    def target(self) -> str:
        return "/exchange/amq.topic"

    def source(self, word: str) -> str:
        return f"/topic/{word}.#"

    def knows(self, word: str) -> bool:
        return f"{word}.#" in self._bindings()

    def _bindings(self) -> str:
        return self._servers[0].control("list_bindings", "routing_key")

    def bind(self, words: Sequence[str]) -> Bound:
        """By the protocol of its own, whose bindings need no queue each."""
        began, last = time.monotonic(), self.last
        receiver = NativeReceiver(
            Side(
                host=last.host, port=last.port, address="keys", size=1, credit=1, user=last.user, password=last.password
            )
        )
        for word in words:
            arguments = b"\0\0" + short_string("keys") + short_string("amq.topic") + short_string(word) + b"\0"
            receiver.ask(BIND, BIND_OK, arguments + struct.pack(">I", 0))
        own_s = time.monotonic() - began
        deadline = time.monotonic() + KNOWN_S_MAX
        while set(words) - set(self._bindings().split()):
            if time.monotonic() > deadline:
                raise PeerMissing(f"{self.name}: not all keys are known at the first broker after {KNOWN_S_MAX:g} s")
        known_s = time.monotonic() - began
        receiver.close()
        return Bound(own_s, known_s)
