"""Queues that sort, under any order of steps: nothing higher was ready when a message was handed out, and none is lost
(docs/adr/0072)."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from holdfast.amqp.wire.extensions import SELECTOR_CODE
from holdfast.amqp.wire.performatives import Accepted, Header, Properties
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.cursors import halting, looking, priorities
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support import today
from support.competing import Competing
from support.rig import Client, Rig
from support.sorting import Watch

LASTING = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}
SELECTORS = (None, None, "JMSPriority > 4", "JMSType = 'third'")


class Steps(Competing):
    """Random steps on a queue that sorts."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        random = Random(seed)
        self.watch = Watch(patch)
        for name, choices in (
            ("READY_MAX", (3, 20, 10**6)),
            ("MOVED_LEAST", (1, 16, 4_096)),
            ("SCAN_COUNT", (2, 1_024)),
            ("FOR_OTHERS_MAX", (1, 3, 4_096)),
            ("RUN_LEAST", (0, 8)),
        ):
            patch.setattr(looking if hasattr(looking, name) else priorities, name, random.choice(choices))
        full: dict[str, Any] = {"messages_max": 40, "when_full": "drop-oldest"} if random.random() < 0.25 else {}
        most = random.choice((None, None, None, 3))
        durable = random.random() < 0.85
        queue = QueueConfig(name="work", priorities=True, durable=durable, deliveries_max=most, **full)
        self.may_lose = bool(full)
        if random.random() < 0.3 and durable:
            patch.setattr(halting, "FINISHED_MAX", 6)
        limits = Limits(unsettled_max=random.choice((3, 100)))
        rig = Rig(seed)
        super().__init__(random, rig, rig.node("hub", queues=(queue,), limits=limits), queue)
        self.expiring: set[int] = set()
        self.lasting = durable and most is None and random.random() < 0.35
        """Whether a subscription copies all of the queue."""
        if self.lasting:
            operator = self.rig.client(self.hub)
            operator.manage("OPEN", "subscription", "one", queue="work", mode="copy", start="first")
        self.of_subscription: set[Client] = set()
        self.sizes = random.random() < 0.5
        """Whether some are too large for some consumers."""

    def send(self) -> None:
        client = self.rig.client(self.hub)
        link = client.sender("work")
        self.rig.settle()
        for number in range(self.sent, self.sent + self.random.randrange(1, 30)):
            if not link.credit:
                break
            header = Header(durable=True, priority=self.random.choice((0, 3, 4, 4, 9, 200)))
            ttl = self.random.choice((50, 10**8)) if self.random.random() < 0.1 else None
            if ttl is not None:
                header = Header(durable=True, priority=header.priority, ttl=ttl)
            subject = Properties(subject="third" if number % 3 == 0 else "other")
            size = self.random.choice((1, 1, 900)) if self.sizes else 1
            client.send(link, str(number).ljust(size), header=header, properties=subject)
            if ttl == 50:
                self.expiring.add(number)
        self.sent = number + 1
        self.rig.settle()
        self.stored |= {int(body) for body, state in client.outcomes if isinstance(state, Accepted)}

    def attach(self) -> None:
        client = self.rig.client(self.hub)
        selector = self.random.choice(SELECTORS)
        source: dict[str, Any] = {}
        if selector is not None:
            source["filter"] = {Symbol("s"): Described(Ulong(SELECTOR_CODE), selector)}
        options: dict[str, Any] = {}
        if self.lasting and self.random.random() < 0.3:
            self.of_subscription.add(client)
            options["name"] = "one"
            source |= LASTING
        if self.random.random() < (0.4 if self.sizes else 0.15):
            options["max_message_size"] = 600
        link = client.receiver("work", credit=self.random.choice((0, 1, 9)), source=source, **options)
        self.rig.settle()
        self.clients.append((client, link))

    def took(self, client: Client, numbers: Iterable[int]) -> None:
        if client not in self.of_subscription:
            super().took(client, numbers)

    def step(self) -> None:
        random, act = self.random, self.random.random()
        self.clients = [(client, link) for client, link in self.clients if not link.detached]
        if act < 0.25:
            self.send()
        elif act < 0.38 and len(self.clients) < 6:
            self.attach()
        elif act < 0.46 and self.clients:
            self.leave()
        elif act < 0.51:
            self.hub.refuse, self.hub.refuse_all = random.choice((0, 1)), True
        elif act < 0.55 and self.queue.durable:
            self.crash()
        elif act < 0.57:
            self.rig.run(random.choice((0.1, 2.0)))
        elif act < 0.585:
            self.hub.refuse = 0
            self.rig.run(2)
            self.rig.client(self.hub).manage("PURGE", "queue", "work")
            self.may_lose = True
        elif self.clients:
            self.settle_some(9)
        if random.random() < 0.7:
            self.rig.settle()

    def rest(self) -> list[tuple[int, int]]:
        """All that is left, as (priority, number), in the order in which one consumer is given it."""
        self.hub.refuse = 0
        for client, _ in self.clients:
            client.close_transport()
        self.rig.run(2)
        if self.lasting:
            self.drain(name="one", source=LASTING)
        return self.drain()

    def drain(self, **options: Any) -> list[tuple[int, int]]:
        client = self.rig.client(self.hub)
        link = client.receiver("work", credit=0, **options)
        given: list[tuple[int, int]] = []
        while True:
            link.grant(10)
            self.rig.run(1)
            if not client.deliveries:
                return given
            found = [message.header.priority for message in client.messages(link) if message.header is not None]
            given += zip(found, map(int, client.accept()), strict=True)
            self.rig.run(1)


@pytest.mark.parametrize("seed", today.some(range(60), 8))
def test_whatever_happens_the_highest_is_first_and_none_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(seed, monkeypatch)
    for _ in range(150):
        steps.step()
    rest = steps.rest()
    places = [(-min(priority, 9), number) for priority, number in rest]
    assert steps.may_lose or places == sorted(places)
    assert len(rest) == len({number for _, number in rest})
    assert steps.hub.queue("work").messages == 0
    if not steps.may_lose:
        gone = {*steps.accepted, *(number for _, number in rest), *steps.expiring, *steps.dead()}
        assert steps.stored <= gone
    assert steps.watch.seen
