"""What a turn looks at and does not hand out is bounded as what it hands out: expired entries that are passed, and
entries that no consumer with credit can have (core/offering.py, endpoints/browser.py)."""

from collections import Counter
from typing import Any

import pytest

from core.test_offering import attach
from holdfast.amqp.wire.performatives import Header
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.queue import Queue
from holdfast.core import offering
from holdfast.custody.expiry import Expiry
from holdfast.peers.limits import memory
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.one_node import world
from support.rig import Client, Node, Rig

MOST = 100
"""Entries that all who read are handed in one turn."""

LIMIT = 40
"""Those of one cursor or reader."""

EXPIRED = 500


class Turns:
    """By turn: entries that had expired and were met, and visits to the store."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: Counter[int] = Counter()
        self.visits = self.read = 0
        expired, read = Queue.expired, Queue.read

        def counting_expired(queue: Queue, value: bytes) -> bool:
            found = expired(queue, value)
            self.passed[node.turns] += found
            return found

        def counting_read(queue: Queue, first: int, **bounds: int) -> list[tuple[int, bytes]]:
            found = read(queue, first, **bounds)
            self.visits += 1
            self.read += len(found)
            return found

        monkeypatch.setattr(Queue, "expired", counting_expired)
        monkeypatch.setattr(Queue, "read", counting_read)


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "OFFERED_COUNT", MOST)
    monkeypatch.setattr(offering, "PUMP_LIMIT", LIMIT)
    monkeypatch.setattr("holdfast.endpoints.browser.BROWSE_LIMIT", LIMIT)
    monkeypatch.setattr(Expiry, "next_deadline", lambda self: None)  # who reads is first
    monkeypatch.setattr(Expiry, "tick", lambda self, now: None)


def expire(rig: Rig, client: Client, count: int = EXPIRED, size: int = 10, fresh: bool = True) -> None:
    """Puts so many that expire, and behind them one that does not."""
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        client.send(link, f"{number:<{size}}", header=Header(ttl=1_000))
        if number % 100 == 99:
            rig.settle()
    if fresh:
        client.send(link, "fresh")
    rig.settle()
    rig.now += 3


@pytest.mark.parametrize("kind", ["subscription", "browse"])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("durable", [True, False])
def test_a_turn_passes_a_bounded_number_of_what_has_expired_however_many_read_a_queue(
    durable: bool, count: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    links = []
    clients = [rig.client(node) for _ in range(count)]
    for number, each in enumerate(clients):
        links.append(attach(each, kind, f"s{number}", credit=0))
    rig.settle()
    expire(rig, client)
    turns = Turns(node, monkeypatch)
    for link, each in zip(links, clients, strict=True):
        link.grant(1)
        each.flush()
    rig.settle()
    assert [each.bodies() for each in clients] == [["fresh"]] * count
    assert turns.passed.total() == count * EXPIRED
    assert max(turns.passed.values()) < MOST + LIMIT
    if kind == "subscription":
        assert turns.visits <= 20 + count * 5
    else:  # each time it begins with one, since it has credit for no more
        assert turns.visits <= count * 10 * EXPIRED / LIMIT and turns.read <= count * 3 * EXPIRED


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("room", [True, False], ids=["read ahead", "no memory to read ahead"])
def test_of_what_consumers_share_a_turn_drops_as_many_and_reads_them_together(
    room: bool, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    expire(rig, client)
    if not room:
        monkeypatch.setattr("holdfast.broker.entries.read_ahead.ReadAhead.has_room", lambda self: False)
    turns = Turns(node, monkeypatch)
    consumer = rig.client(node)
    attach(consumer, "shared", credit=1)
    rig.settle()
    assert consumer.bodies() == ["fresh"] and turns.passed.total() == EXPIRED
    assert max(turns.passed.values()) < MOST + LIMIT
    assert turns.visits <= (10 if room else 10 * EXPIRED / LIMIT)


def test_who_passes_what_has_expired_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions and readers take turns, whether they are handed something or pass it."""
    rig, node, client = world(QueueConfig(name="work"))
    clients = [rig.client(node) for _ in range(8)]
    links = [
        attach(each, "subscription" if number % 2 else "browse", f"s{number}", credit=0)
        for number, each in enumerate(clients)
    ]
    rig.settle()
    expire(rig, client)
    came: dict[Client, int] = {}
    deliver = Client.receive

    def receive(self: Client, data: bytes) -> None:
        deliver(self, data)
        if self.deliveries:
            came.setdefault(self, node.turns)

    monkeypatch.setattr(Client, "receive", receive)
    for link, each in zip(links, clients, strict=True):
        link.grant(1)
        each.flush()
    first = node.turns
    rig.settle()
    assert len(came) == 8
    assert all(turn - first > 0.8 * 8 * EXPIRED / (MOST + LIMIT) for turn in came.values())


@pytest.mark.parametrize("what", ["entries", "bytes", "questions"])
def test_what_is_looked_at_and_set_aside_counts_for_the_turn(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers without credit take it, those with credit do not: of many queues."""
    count, size = 10, 3 * KIB
    names = [f"q{number}" for number in range(count)]
    bounds = {"entries": (200, 10**6, 2), "bytes": (10**6, 200 * size, 2), "questions": (200, 10**6, 40)}
    monkeypatch.setattr(memory, "OFFERED_COUNT", bounds[what][0])
    monkeypatch.setattr(memory, "OFFERED_BYTES", bounds[what][1])
    monkeypatch.setattr(offering, "PUMP_LIMIT", 100)
    monkeypatch.setattr("holdfast.broker.cursors.cursor.LOOKS_PER_ENTRY", 8)
    rig, node, client = world(*(QueueConfig(name=name) for name in names))
    consumers = {name: rig.client(node) for name in names}
    links = []
    for name in names:
        client.receiver(name, credit=0)
        links += [consumers[name].receiver(name, credit=0, max_message_size=1_000) for _ in range(bounds[what][2] - 1)]
    rig.settle()
    for name in names:
        link = client.sender(name)
        rig.settle()
        for number in range(100):
            client.send(link, f"{number:<{size}}")
        client.send(link, name)
        rig.settle()
    looked: Counter[int] = Counter()
    choose = Exclusions.choose

    def counting(self: Exclusions, *args: Any) -> Any:
        looked[node.turns] += 1
        return choose(self, *args)

    monkeypatch.setattr(Exclusions, "choose", counting)
    for link in links:
        link.grant(1)
    for each in consumers.values():
        each.flush()
    rig.settle()
    assert [each.bodies() for each in consumers.values()] == [[name] for name in names]
    assert looked.total() >= count * 100
    assert max(looked.values()) <= (100 if what == "questions" else 200) + 10
