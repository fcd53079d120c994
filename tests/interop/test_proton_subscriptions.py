"""Subscriptions of a topic, read by Qpid Proton while connections end and the node is killed (docs/topics.md)."""

import random
import time
from pathlib import Path

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Message, symbol  # noqa: E402
from proton.reactor import DurableSubscription, LinkOption  # noqa: E402

from interop.nodes import Nodes  # noqa: E402
from interop.proton_peer import Arrival, Client, Inflow  # noqa: E402
from support import today  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop

SHARED = "s|global"
EXPIRES_S = 0.2


class Shared(LinkOption):  # type: ignore[misc]
    """A durable subscription that links of all containers share."""

    def apply(self, link: object) -> None:
        DurableSubscription().apply(link)
        link.source.capabilities.put_array(False, proton.Data.SYMBOL)  # type: ignore[attr-defined]
        link.source.capabilities.enter()  # type: ignore[attr-defined]
        for name in ("shared", "global"):
            link.source.capabilities.put_symbol(symbol(name))  # type: ignore[attr-defined]
        link.source.capabilities.exit()  # type: ignore[attr-defined]


class Reader:
    """A link of a subscription, whose connection ends now and then. `got`: what it has accepted."""

    def __init__(self, node: NodeProcess, pattern: str, name: str, *options: LinkOption) -> None:
        self.node, self.address, self.name, self.options = node, f"topic/news/{pattern}", name, options
        self.client: Client | None = None
        self.inflow: Inflow | None = None
        self.got: list[Message] = []

    def attach(self, credit: int) -> None:
        self.client = Client(self.node.port)
        self.inflow = self.client.receiver(self.address, *self.options, name=self.name).flow(credit)

    def accept(self, count: int) -> None:
        """What has come, `count` at most."""
        assert self.client is not None and self.inflow is not None
        self.client.barrier("barrier")
        arrivals = self.inflow.inbox.arrivals
        for _ in range(min(count, len(arrivals))):
            self._take(arrivals.popleft())
            self.inflow.flow(1)
        self.client.barrier("barrier")

    def _take(self, arrival: Arrival) -> None:
        self.got.append(arrival.message)
        arrival.accept()

    def leave(self, *, detaches: bool) -> None:
        """With what it has not accepted: it detaches its link, or only closes its connection."""
        if self.client is not None and self.inflow is not None:
            if detaches:
                self.inflow.detach()
            self.client.connection.close()
        self.client = self.inflow = None

    def drain(self) -> None:
        assert self.inflow is not None
        for arrival in self.inflow.drain():
            self._take(arrival)


@pytest.mark.parametrize("seed", today.some(range(6), 1))
def test_each_subscription_gets_each_message_whatever_ends(nodes: Nodes, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    readers = [
        Reader(node, "#", "all", DurableSubscription()),
        *(Reader(node, "a.*", SHARED if number == 0 else f"{SHARED}{number}", Shared()) for number in range(3)),
    ]
    for reader in readers:
        reader.attach(draw.choice([1, 5, 50]))
    publisher = Client(node.port)
    sent: list[tuple[str, int]] = []
    killed = False
    for _ in range(40):
        act, reader = draw.random(), draw.choice(readers)
        if act < 0.4:
            numbers = range(len(sent), len(sent) + draw.randint(1, 20))
            messages = [(draw.choice("abc") + ".x", number) for number in numbers]
            publisher.send(
                "topic/news",
                *(Message(id=number, subject=subject, body=number, durable=True) for subject, number in messages),
            )
            sent += messages
            if draw.random() < 0.3:  # expires before anybody who is late reads it
                publisher.send("topic/news", Message(subject="a.gone", body=-1, durable=True, ttl=EXPIRES_S))
        elif act < 0.45 and not killed:
            killed = True
            nodes.kill(node)
            nodes.restart(node)
            publisher = Client(node.port)
            for each in readers:
                each.client = each.inflow = None
        elif reader.client is None:
            reader.attach(draw.choice([1, 5, 50]))
        elif act < 0.7:
            reader.leave(detaches=draw.random() < 0.5)
        else:
            reader.accept(draw.randint(1, 30))
    time.sleep(2 * EXPIRES_S)
    for reader in readers:
        if reader.client is None:
            reader.attach(1)
    for _ in range(2):
        for reader in readers:
            reader.drain()
    everything = [message.body for message in readers[0].got if message.body >= 0]
    shared = [message.body for reader in readers[1:] for message in reader.got if message.body >= 0]
    assert set(everything) == {number for _, number in sent}
    assert set(shared) == {number for subject, number in sent if subject[0] == "a"}
    for got in (everything, shared):
        assert killed or len(got) == len(set(got)), "what was accepted comes again after a kill alone"
    assert node.returncode is None and "Traceback" not in node.stderr
