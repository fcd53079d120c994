"""What a turn offers: what changed in it, and no more."""

from collections import Counter
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.runs import RUN_PER_ENTRY
from holdfast.core import offering
from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.producer import ProducerLink
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.hops import names, send
from support.one_node import fill, world
from support.rig import Client, Node, Rig


@pytest.mark.parametrize("bound", [{}, {"messages_max": 100}])
def test_a_turn_that_only_settles_asks_no_cursor_and_gives_credit_only_where_room_came_back(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any]
) -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", **bound),))
    client, consumer = rig.client(node), rig.client(node)
    link = client.sender("work")
    consumer.receiver("work", credit=10)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    asked: list[str] = []
    pump, refill = Cursor.pump, ProducerLink.refill
    monkeypatch.setattr(Cursor, "pump", lambda self, limit: (asked.append("pump"), pump(self, limit))[1])
    monkeypatch.setattr(ProducerLink, "refill", lambda self: (asked.append("refill"), refill(self))[1])
    consumer.accept()
    rig.settle()
    assert node.queue("work").messages == 0
    assert asked == (["refill"] if bound else [])
    client.send(link, "2")
    rig.settle()
    assert asked.count("pump") == 1
    assert consumer.accept() == ["2"]


@pytest.mark.parametrize("size", [1, 200 * KIB], ids=["whole", "in parts"])
def test_of_what_neighbours_bring_only_what_waits_is_asked_again(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    rig = Rig()
    terms: dict[str, Any] = {
        "queues": (QueueConfig(name="work", messages_max=1),), "limits": Limits(stream_bytes=100 * KIB),
    }  # fmt: skip
    hub, waits, _ = rig.graph("hub-waits", "hub-other", hub=terms, waits=terms)
    rig.run(3)
    bodies = [digit * size for digit in "123"]
    send(rig, waits, *bodies, to="hub")
    rig.run(3)
    parked = hub.core.links.parked_receivers
    assert [receiver.neighbour for receiver in parked] == ["waits"]
    client = rig.client(hub)
    link = client.sender("elsewhere")
    rig.settle()
    asked: list[str] = []
    refill = CustodyReceiver.refill
    monkeypatch.setattr(CustodyReceiver, "refill", lambda self: (asked.append(self.neighbour), refill(self))[1])
    client.send(link, "x")
    rig.settle()
    assert set(asked) == {"waits"}
    consumer = rig.client(hub)
    consumer.receiver("work")
    taken: list[str] = []
    for _ in range(6):
        rig.run(0.5)
        taken += consumer.accept()
    assert taken == bodies
    client.send(link, "y")
    rig.settle()
    assert parked == {}


# ------------------------------------------------------------------------------------------------ many of one queue


def attach(client: Client, kind: str, name: str = "sub", credit: int = 1_000) -> Receiver:
    if kind == "browse":
        source: dict[str, Any] = {"distribution_mode": Symbol("copy")}
        return client.receiver("work", source=source, snd_settle_mode=1, credit=credit)
    if kind == "subscription":
        source = {"durable": 2, "expiry_policy": Symbol("never")}
        return client.receiver("work", name=name, source=source, credit=credit)
    return client.receiver("work", credit=credit)


def turns(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Bytes and entries that each turn hands out, and the bytes that it may; filled as the node runs."""
    found: list[tuple[int, int, int]] = []
    core = node.core
    assert core is not None
    end_turn = core._end_turn

    def watched(event: events.TurnEnded) -> None:
        most = core.memory.offered_max
        end_turn(event)
        found.append((core.work.offered_bytes, core.work.offered_count, most))

    monkeypatch.setattr(core, "_end_turn", watched)
    return found


@pytest.mark.parametrize("kind", ["subscription", "browse"])
def test_many_who_read_one_queue_are_handed_no_more_in_a_turn_than_many_of_many_queues(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rig, node, _ = world(QueueConfig(name="work"), limits=Limits(memory_bytes_max=16 * MIB))
    clients = [rig.client(node) for _ in range(60)]
    for number, client in enumerate(clients):
        attach(client, kind, f"s{number}")
    rig.settle()
    sizes = turns(node, monkeypatch)
    producer = rig.client(node)
    link = producer.sender("work")
    rig.settle()
    bodies = [f"{number:<{MIB // 2}}" for number in range(2)]
    for body in bodies:
        producer.send(link, body)
    rig.settle()
    core = node.core
    assert core is not None and not core.memory.dropped
    assert all(client.bodies() == bodies for client in clients)
    assert sum(size for size, _, _ in sizes) >= 60 * MIB
    assert all(size <= most + core.memory.handed_max + MIB // 2 + KIB for size, _, most in sizes)


@pytest.mark.parametrize("kind", ["subscription", "browse"])
def test_a_turn_hands_out_a_bounded_number_of_entries_however_many_read_a_queue(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rig, node, client = world(QueueConfig(name="work"))
    node.core.memory.offered_count_max = 100
    clients = [rig.client(node) for _ in range(12)]
    links = [attach(each, kind, f"s{number}") for number, each in enumerate(clients)]
    rig.settle()
    counts = turns(node, monkeypatch)
    fill(rig, client, 40)
    assert all(each.bodies() == names(1, 40) for each in clients) and len(links) == 12
    assert max(count for _, count, _ in counts) < 100 + 40
    assert not node.due and node.core is not None and not node.core.work.dirty_queues


@pytest.mark.parametrize("durable", [True, False], ids=["stored", "in memory"])
@pytest.mark.parametrize("alone", [True, False], ids=["one connection", "many"])
def test_consumers_subscriptions_and_readers_of_a_queue_have_the_turns_share_by_turns(
    monkeypatch: pytest.MonkeyPatch, alone: bool, durable: bool
) -> None:
    """Nobody waits until another one has had all, whether it is their connection's share that is used up or that of
    all connections."""
    rig, node, client = world(QueueConfig(name="work", durable=durable), limits=Limits(memory_bytes_max=16 * MIB))
    node.unwatched.add("work")
    node.core.memory.offered_count_max = 60
    kinds = [*["shared"] * 2, *["subscription"] * 3, *["browse"] * 3]
    common = rig.client(node)
    clients = [common if alone else rig.client(node) for _ in kinds]
    links: list[Receiver] = []
    for number, (each, kind) in enumerate(zip(clients, kinds, strict=True)):
        links.append(attach(each, kind, f"s{number}", credit=0))
        rig.settle()
    came: list[int] = []
    deliver = Client.receive

    def receive(self: Client, data: bytes) -> None:
        before = len(self.deliveries)
        deliver(self, data)
        came.extend(links.index(item.link) for item in self.deliveries[before:] if item.link in links)

    monkeypatch.setattr(Client, "receive", receive)
    size = 6 * KIB  # one share of a connection is 512 KiB
    link = client.sender("work")
    rig.settle()
    for number in range(300):
        client.send(link, f"{number:<{size}}")
    rig.settle()
    for receiver in links:
        receiver.grant(1_000)
    rig.settle()
    counts = Counter(came)
    assert counts[0] + counts[1] == 300 and all(counts[number] == 300 for number in range(2, 8))
    assert all(came.index(number) < 850 for number in range(8)) and len(came) == 2_100


@pytest.mark.parametrize("last", ["large", "too large"])
def test_what_a_reader_is_handed_before_what_it_cannot_have_at_once_counts_for_the_turn(
    monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    rig, node, client = world(QueueConfig(name="work"), limits=Limits(stream_bytes=100 * KIB))
    link = client.sender("work")
    rig.settle()
    size = 10 * KIB
    for body in ("x" * size, "y" * size, "z" * 30 * size):
        client.send(link, body)
    rig.settle()
    sizes = turns(node, monkeypatch)
    reader = rig.client(node)
    reader.reader("work", 1, max_message_size=2 * size if last == "too large" else None)
    rig.settle()
    assert len(reader.deliveries) == (2 if last == "too large" else 3)
    assert sum(size for size, _, _ in sizes) > 2 * size and sum(count for _, count, _ in sizes) == 2


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("consumers", [1, 2])
def test_entries_that_are_handed_out_one_by_one_count_more_than_those_of_a_run(
    consumers: int, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn hands out more where that goes in runs, which it does from durable queues, however many there are."""
    limit, most, queues, count = 4, 20, 10, 100
    monkeypatch.setattr(offering, "PUMP_LIMIT", limit)
    rig, node, client = world(*(QueueConfig(name=f"q{number}", durable=durable) for number in range(queues)))
    node.unwatched.update(f"q{number}" for number in range(queues) if not durable)
    assert node.core is not None
    node.core.memory.offered_count_max = most
    for number in range(queues):
        fill(rig, client, count, f"q{number}")
    readers = [rig.client(node) for _ in range(consumers)]
    for reader in readers:
        for number in range(queues):
            reader.receiver(f"q{number}", credit=count)
    handed: Counter[int] = Counter()
    take, take_all = ConsumerLink.take, ConsumerLink.take_all

    def one(self: ConsumerLink, *given: Any) -> None:
        handed[node.turns] += 1
        take(self, *given)

    def run(self: ConsumerLink, *given: Any) -> int:
        taken = take_all(self, *given)
        handed[node.turns] += taken
        return taken

    monkeypatch.setattr(ConsumerLink, "take", one)
    monkeypatch.setattr(ConsumerLink, "take_all", run)
    rig.run(1)
    assert handed.total() == queues * count == sum(len(reader.deliveries) for reader in readers)
    if durable:
        assert 4 * (most + limit) < max(handed.values()) <= RUN_PER_ENTRY * (most + limit)
    else:
        assert max(handed.values()) <= most + limit
