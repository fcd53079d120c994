"""Consumers that compete for one queue: what they do at random, whichever kind of queue it is."""

from collections.abc import Iterable
from random import Random

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Modified, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig


class Competing:
    """Random acts at the queue `work` of a node, and what became of its messages."""

    def __init__(self, random: Random, rig: Rig, hub: Node, queue: QueueConfig) -> None:
        self.random = random
        self.rig = rig
        self.hub = hub
        self.queue = queue
        if not queue.durable:
            hub.unwatched.add("work")
        self.clients: list[tuple[Client, Receiver]] = []
        self.accepted: list[int] = []
        self.stored: set[int] = set()
        self.sent = 0

    def leave(self) -> None:
        client, link = self.clients.pop(self.random.randrange(len(self.clients)))
        if self.random.random() < 0.5:
            client.close_transport()
        else:
            link.detach(closed=True)

    def settle_some(self, end: int) -> None:
        """Or gives credit, for fewer than `end`."""
        client, link = self.random.choice(self.clients)
        some, choice = self.random.randrange(1, end), self.random.random()
        if choice < 0.4:
            link.grant(link.credit + some, drain=self.random.random() < 0.2)
        elif choice < 0.7:
            self.took(client, map(int, client.accept(count=some)))
        else:
            outcomes = (Released(), Modified(delivery_failed=True), Modified(undeliverable_here=True))
            client.accept(self.random.choice(outcomes), count=some)

    def took(self, client: Client, numbers: Iterable[int]) -> None:
        """That client has accepted these."""
        self.accepted.extend(numbers)

    def crash(self) -> None:
        self.hub.crash()
        self.clients.clear()
        self.hub.start()

    def dead(self) -> set[int]:
        """Those whose delivery failed too often, or that were too large for several consumers."""
        client = self.rig.client(self.hub)
        client.receiver("$dead-letters", source={"distribution_mode": Symbol("copy")}, snd_settle_mode=1)
        self.rig.settle()
        return set(map(int, client.bodies()))
