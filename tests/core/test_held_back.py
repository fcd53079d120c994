"""Consumers that had their share of a turn, beside others that cannot have what is next (endpoints/consumer.py)."""

from collections import Counter
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Modified
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import WAIT_TURNS
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.one_node import world
from support.rig import Client, Node, Rig

COUNT = 200
SIZE = 200 * KIB
SMALL = 1_000
NOT_HERE = Modified(undeliverable_here=True)


class Reads:
    """What queues were asked for: bytes by turn, and how often each entry."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: Counter[int] = Counter()
        self.times: Counter[int] = Counter()
        read, value = Queue.read, Queue.value

        def counting_read(queue: Queue, first: int, **bounds: int) -> list[tuple[int, bytes]]:
            found = read(queue, first, **bounds)
            self.bytes[node.turns] += sum(len(item) for _, item in found)
            self.times.update(sequence for sequence, _ in found)
            return found

        def counting_value(queue: Queue, sequence: int) -> bytes | None:
            found = value(queue, sequence)
            self.bytes[node.turns] += len(found or b"")
            self.times[sequence] += 1
            return found

        monkeypatch.setattr(Queue, "read", counting_read)
        monkeypatch.setattr(Queue, "value", counting_value)


def put(rig: Rig, node: Node, count: int = COUNT, size: int = SIZE) -> None:
    node.unwatched.add("work")
    producer = rig.client(node)
    link = producer.sender("work")
    rig.settle()
    for number in range(count):
        while not link.sendable:
            rig.settle()
        producer.send(link, f"{number:<{size}}")
    rig.settle()
    producer.close_transport()
    rig.settle()


def numbers(client: Client, link: Any = None) -> list[int]:
    return [int(body) for body in client.bodies(link)]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("why", ["too large", "undeliverable"])
@pytest.mark.parametrize("durable", [True, False])
def test_what_is_for_another_that_goes_on_keeps_its_place(
    durable: bool, why: str, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was set aside and offered anew turn by turn, hundreds of large messages for each one handed out."""
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    put(rig, node)
    if why == "undeliverable":
        first = client.receiver("work", credit=COUNT)
        rig.settle()
        client.accept(NOT_HERE, link=first)
        rig.settle()
        first.grant(1)
    else:
        client.receiver("work", credit=0)  # some other takes it, now or later
        client.receiver("work", credit=1, max_message_size=SMALL)
    reads = Reads(node, monkeypatch)
    other = client if together else rig.client(node)
    link = other.receiver("work", credit=1_000)
    rig.settle()
    assert numbers(other, link) == list(range(COUNT))
    if durable:  # what is in memory is copied for nobody
        assert max(reads.bytes.values()) <= 8 * MIB
        assert max(reads.times.values()) <= 3 and reads.times.total() <= 2.5 * COUNT


def test_what_only_one_without_credit_can_have_is_looked_at_a_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    put(rig, node)
    reads = Reads(node, monkeypatch)
    large = client.receiver("work", credit=0)
    small = client.receiver("work", credit=1, max_message_size=SMALL)
    rig.settle()
    assert len(node.queue("work").shared.exclusions.aside) == COUNT
    assert max(reads.bytes.values()) <= 6 * MIB and max(reads.times.values()) <= 2
    put(rig, node, 1, 10)
    assert numbers(client, small) == [0]
    large.grant(1_000)
    rig.settle()
    assert numbers(client, large) == list(range(COUNT))


@pytest.mark.parametrize("end", ["lost", "detached", "no credit", "dropped at the turn's end"])
def test_who_is_waited_for_may_end(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the others go on, though it had all of its share and gives nothing back."""
    rig, node, client = world()
    put(rig, node, 50)
    put(rig, node, 1, 10)
    client.receiver("work", credit=0)
    small = client.receiver("work", credit=1, max_message_size=SMALL)
    other = rig.client(node)
    link = other.receiver("work", credit=1_000, snd_settle_mode=1)
    other.flush()
    core, written = node.core, Peer.written
    assert core is not None

    def dropped(peer: Peer) -> None:
        if peer.deferred:
            core.connections.drop(peer, "no room for what it was handed")
        written(peer)

    if end == "dropped at the turn's end":
        monkeypatch.setattr(Peer, "written", dropped)
    while not other.deliveries and not other.over:
        rig.move()
    assert len(other.deliveries) < 10
    if end == "lost":
        other.close_transport()
    elif other.over:
        assert end == "dropped at the turn's end"
    elif end == "detached":
        link.detach()
    else:
        link.grant(0)
    rig.run(1)
    assert numbers(client, small) == [0]


def test_drains_beside_it() -> None:
    """Who can have what is next drains all of it; who cannot is answered, and does not wait until that is done."""
    rig, node, client = world()
    put(rig, node)
    large, small = rig.client(node), client.receiver("work", credit=0, max_message_size=SMALL)
    link = large.receiver("work", credit=0)
    rig.settle()
    link.grant(1_000, drain=True)
    small.grant(5, drain=True)
    large.flush()
    client.flush()
    while small.credit:
        rig.move()
    assert len(large.deliveries) < COUNT
    rig.settle()
    assert numbers(large) == list(range(COUNT)) and link.credit == 0


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("durable", [True, False])
def test_a_drain_waits_for_who_goes_on_next_turn_since_what_it_can_have_may_lie_behind(
    durable: bool, together: bool
) -> None:
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    put(rig, node, 30)
    put(rig, node, 2, 10)
    large = client if together else rig.client(node)
    small = client.receiver("work", credit=0, max_message_size=SMALL)
    link = large.receiver("work", credit=0)
    rig.settle()
    link.grant(30)
    small.grant(5, drain=True)
    large.flush()
    client.flush()
    rig.settle()
    assert numbers(client, small) == [0, 1] and small.credit == 0
    assert numbers(large, link) == list(range(30))


@pytest.mark.parametrize("together", [False, True])
def test_a_drain_waits_for_it_a_bounded_number_of_turns_each_time(together: bool) -> None:
    rig, node, client = world()
    put(rig, node, 500, 4 * KIB)
    assert node.core is not None
    node.core.memory.handed_max = 15 * KIB
    large = client if together else rig.client(node)
    small = client.receiver("work", credit=0, max_message_size=SMALL)
    link = large.receiver("work", credit=0)
    rig.settle()
    link.grant(1_000)
    large.flush()
    for _ in range(2):
        small.grant(5, drain=True)
        client.flush()
        first = node.turns
        while small.credit:
            assert rig.move()
        assert WAIT_TURNS <= node.turns - first <= WAIT_TURNS + 4
    assert len(numbers(large, link)) < 500
    rig.settle()
    assert numbers(large, link) == list(range(500))


@pytest.mark.parametrize("large", [250 * KIB, 2 * MIB])
def test_a_large_message_keeps_its_place_only_for_who_takes_its_size(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is a reference of few bytes."""
    rig, node, client = world(limits=Limits(stream_bytes=220 * KIB))
    put(rig, node, 6)
    put(rig, node, 1, 10)
    put(rig, node, 1, large)
    put(rig, node, 1, 10)
    client.receiver("work", credit=0)
    small = client.receiver("work", credit=2, max_message_size=SMALL)
    pumps: list[int] = []
    pump = Cursor.pump

    def watched(cursor: Cursor, limit: int) -> int:
        given = pump(cursor, limit)
        pumps.append(given)
        return given

    monkeypatch.setattr(Cursor, "pump", watched)
    other = rig.client(node)
    link = other.receiver("work", credit=1_000, max_message_size=MIB)
    rig.settle()
    taken = large < MIB  # six are the other one's share of a turn
    assert (7 if taken else 8) in pumps
    assert numbers(client, small) == [0, 0]
    assert numbers(other, link) == [*range(6), *([0] if taken else [])]
