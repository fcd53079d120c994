"""Messages whose time to live is over leave their queue though nobody reads it: depth, age and bounds (ADR 0023)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.stored import records
from holdfast.custody import expiry
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support import today
from support.one_node import fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body, is_clean

WITHIN_S = 3.0


def send(rig: Rig, client: Client, ttls_s: list[float | None], address: str = "work") -> Sender:
    """Messages numbered from 0, each with its time to live in seconds."""
    link = client.sender(address)
    rig.settle()
    for number, ttl_s in enumerate(ttls_s):
        header = Header(ttl=None if ttl_s is None else int(ttl_s * 1000))
        client.send(link, str(number), header=header)
        if number % 500 == 499:
            rig.settle()
    rig.settle()
    return link


def is_told(rig: Rig, node: Node, count: int) -> bool:
    """Whether the queue's depth is what is on its disk, and `count`."""
    queue = node.queue("work")
    found = queue.read(0, count_max=10**6, bytes_max=2**40)
    return queue.messages == len(found) == count and (queue.bytes_held == 0) is (count == 0)


def timed_rows(node: Node) -> list[bytes]:
    """What the store says of where entries with a time to live are."""
    return [value for key, value in node.store.table("node") if key[:1] == records.TIMED]


def count_looked_at(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each turn of the node looks at from now on."""
    looked: list[int] = []
    original = expiry._entries

    def entries(queue: Any, scan: Any) -> Any:
        found = original(queue, scan)
        looked[-1] += len(found[0])
        return found

    tick = expiry.Expiry.tick

    def ticked(self: Any, now: float) -> None:
        looked.append(0)
        tick(self, now)

    monkeypatch.setattr(expiry, "_entries", entries)
    monkeypatch.setattr(expiry.Expiry, "tick", ticked)
    assert node.core is not None
    return looked


# ------------------------------------------------------------------------------------------------ it leaves


@pytest.mark.parametrize("durable", [True, False])
def test_without_a_consumer_it_leaves_depth_age_and_bounds(durable: bool) -> None:
    rig, node, client = world(QueueConfig(name="work", durable=durable, messages_max=2, when_full="refuse"))
    node.unwatched.add("work")
    link = send(rig, client, [1.0, 1.0])
    client.send(link, "full")
    rig.settle()
    assert isinstance(client.outcomes[-1][1], Rejected) and is_told(rig, node, 2)
    rig.run(WITHIN_S)
    assert is_told(rig, node, 0) and node.queue("work").oldest_wall_ms() is None
    assert node.queue("work").expired_total == 2
    client.send(link, "room")
    rig.settle()
    assert isinstance(client.outcomes[-1][1], Accepted) and is_told(rig, node, 1)


def test_a_producer_that_waits_for_room_gets_it() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=3))
    link = send(rig, client, [1.0] * 3)
    assert link.credit == 0
    rig.run(WITHIN_S)
    assert link.credit == 3 and is_told(rig, node, 0)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_among_many_that_stay(place: str) -> None:
    rig, node, client = world()
    ttls: list[float | None] = [None] * 5_000
    ttls[{"first": 0, "middle": 2_500, "last": 4_999}[place]] = 1.0
    send(rig, client, ttls)
    rig.run(WITHIN_S)
    assert is_told(rig, node, 4_999)
    consumer = rig.client(node)
    consumer.receiver("work", credit=5_000)
    rig.settle()
    expected = [str(number) for number, ttl in enumerate(ttls) if ttl is None]
    assert consumer.accept() == expected
    rig.run(1)
    assert is_told(rig, node, 0)


def test_a_deep_backlog_leaves_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    send(rig, client, [1.0] * 6_000)
    looked = count_looked_at(node, monkeypatch)
    rig.run(WITHIN_S)
    assert is_told(rig, node, 0) and node.queue("work").expired_total == 6_000
    assert 0 < max(looked) <= expiry.STEP_COST + 256 and sum(looked) <= 2 * 6_000
    assert len(node.queue("work").hidden) == 0


def test_what_expires_one_after_the_other_is_not_read_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of long and different times to live: each block is read some 64 times at most until it is empty."""
    rig, node, client = world()
    count = 1_000
    send(rig, client, [600 + 600 * number / count for number in range(count)])
    looked = count_looked_at(node, monkeypatch)
    rig.run(1_300)
    assert is_told(rig, node, 0)
    assert sum(looked) <= 80 * count


@pytest.mark.parametrize("seed", today.some(range(6), 2))
def test_random_times_to_live_leave_exactly_what_lasts(seed: int) -> None:
    """Beside consumers that take, give back and hold, and restarts: nothing early, nothing late, no count wrong."""
    rig, node, client = world()
    rig.random.seed(seed)
    random = rig.random
    link = client.sender("work")
    rig.settle()
    ends: dict[str, float] = {}
    done: set[str] = set()
    holder = rig.client(node)
    holding = None
    for number in range(600):
        ttl_s = random.choice([None, 0.5, 1.0, 5.0, 30.0])
        client.send(link, str(number), header=Header(ttl=None if ttl_s is None else int(ttl_s * 1000)))
        ends[str(number)] = float("inf") if ttl_s is None else rig.now + ttl_s
        if random.random() < 0.05:
            rig.run(random.random())
        if random.random() < 0.02:
            if holding is None:
                holding = holder.receiver("work", credit=random.randrange(1, 40))
                rig.settle()
                assert all(ends[text] >= rig.now - 1 for text in holder.bodies())
            else:
                mine = holder.accept(count=random.randrange(0, 10))
                done.update(mine)
                rig.settle()
                holding.detach()
                rig.settle()
                holder.deliveries.clear()
                holding = None
        if random.random() < 0.005:
            rig.run(0.2)
            node.crash()
            node.start()
            client, holder, holding = rig.client(node), rig.client(node), None
            link = client.sender("work")
            rig.settle()
    if holding is not None:
        holding.detach()
    rig.run(1)
    for _ in range(3):
        rig.run(12)
        lasting = [text for text, end in ends.items() if end > rig.now and text not in done]
        over = {text for text, end in ends.items() if end < rig.now - WITHIN_S}
        found = node.bodies("work")
        assert not over.intersection(found) and set(lasting) <= set(found)
        assert node.queue("work").messages == len(found)


# ------------------------------------------------------------------------------------------------ who holds it


def test_what_a_consumer_holds_is_left_to_it_and_goes_when_it_is_given_back() -> None:
    rig, node, client = world()
    send(rig, client, [1.0, None])
    holder = rig.client(node)
    holder.receiver("work", credit=1)
    rig.settle()
    rig.run(WITHIN_S)
    assert is_told(rig, node, 2)
    holder.close_transport()
    rig.run(WITHIN_S)
    assert is_told(rig, node, 1) and node.queue("work").expired_total == 1
    assert node.queue("work").shared.counts == {}


def test_what_was_given_back_and_waits_goes_too() -> None:
    rig, node, client = world()
    send(rig, client, [5.0] * 300)
    holder = rig.client(node)
    holder.receiver("work", credit=200)
    rig.settle()
    holder.close_transport()
    rig.settle()
    assert len(node.queue("work").shared.requeued) == 200
    rig.run(5 + WITHIN_S)
    shared = node.queue("work").shared
    assert is_told(rig, node, 0) and (shared.requeued, shared.counts) == ([], {})


def test_with_a_durable_subscription_nobody_reads() -> None:
    rig, node, client = world()
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    reader = rig.client(node)
    reader.receiver("work", name="mine", source=fields, credit=0)
    rig.settle()
    reader.close_transport()
    send(rig, client, [None, 1.0, None, 1.0])
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept(count=2) == ["0", "1"]
    rig.run(WITHIN_S)
    assert is_told(rig, node, 2 + 1)  # the last is in the consumer's hands
    consumer.close_transport()
    rig.run(WITHIN_S)
    assert is_told(rig, node, 2)
    again = rig.client(node)
    again.receiver("work", name="mine", source=fields)
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert again.accept() == ["0", "2"] and other.accept() == ["2"]
    rig.run(1)
    assert is_told(rig, node, 0)


def test_a_subscription_that_takes_keeps_its_range_until_it_advances() -> None:
    """The same sequences are the same messages, again and again (CUSTODY, "Readers")."""
    rig, node, client = world()
    send(rig, client, [])
    assert client.manage("OPEN", "subscription", "spark", queue="work", mode="take")[0] == 201
    send(rig, client, [1.0] * 3 + [None])
    rig.run(200)
    assert is_told(rig, node, 4)
    reader = rig.client(node)
    reader.reader("work", 1, 5)
    rig.settle()
    assert reader.bodies() == ["0", "1", "2", "3"]


# ------------------------------------------------------------------------------------------------ how it is kept


def test_a_restart_finds_what_an_earlier_life_left() -> None:
    rig, node, client = world()
    send(rig, client, [None] * 600 + [2.0] + [None] * 600 + [60.0])
    node.crash()
    rig.run(5)
    node.start()
    rig.run(WITHIN_S)
    assert is_told(rig, node, 1_201)
    node.crash()
    node.start()
    rig.run(60 + WITHIN_S)
    assert is_told(rig, node, 1_200)


def test_a_store_of_an_earlier_version_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    send(rig, client, [None] * 700 + [2.0])
    node.crash()
    tables = node.store._tables
    queues = dict(node.store.table("queues"))
    for key, value in queues.items():
        fields = records.unpack_map(value)
        del fields["timed"]
        tables["queues", key] = records.pack_map(fields)
    for table, key in [key for key in tables if key[0] == "node" and key[1][:1] == records.TIMED]:
        del tables[table, key]
    node.start()
    looked = count_looked_at(node, monkeypatch)
    rig.run(2 + WITHIN_S)
    assert is_told(rig, node, 700) and sum(looked) >= 701
    assert dict(node.store.table("queues")) == queues
    node.crash()
    node.start()
    looked.clear()
    rig.run(WITHIN_S)
    assert sum(looked) == 0


def test_without_times_to_live_nothing_is_looked_at_and_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    fill(rig, client, 1_000)
    node.crash()
    node.start()
    looked = count_looked_at(node, monkeypatch)
    rig.run(30)
    assert sum(looked) == 0 and not timed_rows(node)


def test_where_nothing_is_left_of_them_the_store_says_so() -> None:
    rig, node, client = world()
    send(rig, client, [1.0] * 10)
    assert timed_rows(node)
    rig.run(WITHIN_S)
    fill(rig, client, 1)
    assert not timed_rows(node)


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_full_disk_takes_nothing_twice(refusals: int) -> None:
    rig, node, client = world()
    link = send(rig, client, [1.0] * 50 + [None] * 50)
    rig.pass_time(1.9)
    node.refuse = refusals
    client.send(link, "refused")
    rig.run(WITHIN_S)
    assert is_told(rig, node, 50) and node.queue("work").hidden == set()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == [str(number) for number in range(50, 100)]
    rig.run(1)
    assert is_told(rig, node, 0)


def test_a_commit_that_takes_longer_than_the_time_to_live() -> None:
    rig, node, client = world()
    send(rig, client, [])
    node.hold_commits = True
    send(rig, client, [1.0] * 10)
    rig.run(5)
    node.hold_commits = False
    rig.run(WITHIN_S)
    assert is_told(rig, node, 0)


def test_a_consumer_that_comes_before_the_commit_sees_none_of_it() -> None:
    rig, node, client = world()
    send(rig, client, [1.0] * 1_000 + [None] * 10)
    node.hold_commits = True
    rig.run(WITHIN_S)
    consumer = rig.client(node)
    consumer.receiver("work", credit=2_000)
    rig.run(0.1)
    node.hold_commits = False
    rig.run(1)
    assert consumer.accept() == [str(number) for number in range(1_000, 1_010)]
    rig.run(1)
    assert is_told(rig, node, 0) and node.queue("work").expired_total == 1_000


def test_a_queue_that_is_deleted_is_forgotten() -> None:
    rig, node, client = world()
    link = send(rig, client, [100.0] * 1_000)
    link.detach()
    dynamic = client.session.attach_sender("d", Source(), Target(dynamic=True))
    rig.settle()
    dynamic.send(Message(header=Header(ttl=100_000), data=[b"x"]).encode(), context=None, settled=True)
    rig.settle()
    assert node.core is not None and node.core.work.wheel.first_s() is not None
    assert client.manage("DELETE", "queue", "work")[0] == 200
    dynamic.detach()
    rig.run(1)
    assert node.core.work.wheel.first_s() is None and not node.core.work.wheel._slots
    assert not timed_rows(node)


def test_a_dynamic_node_makes_room() -> None:
    rig, node, client = world(limits=Limits(dynamic_bytes_max=10_000))
    dynamic = client.session.attach_sender("d", Source(), Target(dynamic=True))
    rig.settle()
    for _ in range(100):
        dynamic.send(Message(header=Header(ttl=1_000), data=[b"x"]).encode(), context=None, settled=True)
    rig.settle()
    assert node.core is not None and node.core.dynamic_nodes.bytes_left < 1_000
    rig.run(WITHIN_S)
    assert node.core.dynamic_nodes.bytes_left == 10_000


def test_a_large_message_leaves_with_its_bytes() -> None:
    rig, node, client = world(limits=Limits(stream_bytes=100 * KIB))
    link = client.sender("work")
    rig.settle()
    link.send(Message(header=Header(ttl=1_000), data=[body(LARGE).encode()]).encode(), context=1)
    rig.settle()
    rig.run(WITHIN_S)
    assert is_told(rig, node, 0) and is_clean(node)


@pytest.mark.parametrize("size", [200, LARGE], ids=["whole", "in parts"])
def test_time_to_live_goes_on_while_a_message_waits_for_room(size: int) -> None:
    """What waits at a full queue is as old as it is: once there is room it has expired."""
    rig = Rig()
    hub = rig.node("hub", queues=(QueueConfig(name="work", messages_max=1, when_full="block"),), limits=LIMITS)
    senders = [rig.client(hub) for _ in range(3)]
    links = [sender.sender("work") for sender in senders]
    rig.settle()
    for number, ttl in enumerate((None, 5_000, 60_000)):
        senders[number].send(links[number], f"{number}".ljust(size, "x"), header=Header(durable=True, ttl=ttl))
        rig.settle()
    rig.run(20)
    reader = rig.client(hub)
    reader.receiver("work", credit=10)
    seen = []
    for _ in range(20):
        rig.run(0.5)
        seen += [(message.body_bytes()[:1], message.header.ttl) for message in reader.messages()]
        reader.accept()
    assert [number for number, _ in seen] == [b"0", b"2"] and 35_000 < seen[1][1] <= 40_000
    assert hub.queue("work").expired_total == 1
