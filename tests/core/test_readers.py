"""Subscriptions, browsers and what they leave to others at one node, over AMQP (CUSTODY, "Readers")."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.cursors import cursor, exclusions, halting
from holdfast.broker.queue import Queue
from holdfast.endpoints import browser as browsers
from holdfast.endpoints import consumer
from holdfast.endpoints.browser import ReaderLink
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support import streams
from support.hops import names
from support.memory import check_accounts
from support.one_node import fill, world
from support.rig import Client, Node, Rig


def open_subscription(client: Client, mode: str = "take", name: str = "sub", **more: Any) -> dict[str, Any]:
    status, body, text = client.manage("OPEN", "subscription", name, queue="work", mode=mode, **more)
    assert status in (200, 201), text
    return body


def held(body: dict[str, Any]) -> dict[str, Any]:
    return {"queue": "work", "queue_uuid": body["queue_uuid"], "lease_epoch": body["lease_epoch"]}


def test_one_cursor() -> None:
    """A taking subscription reads alone, by sequence; consumers are refused meanwhile, and may come after."""
    rig, node, client = world()
    fill(rig, client, 5)
    body = open_subscription(client)
    assert (body["head"], body["tail"], body["advanced"]) == (1, 6, 1)
    refused = client.receiver("work")
    rig.settle()
    assert refused.refused
    assert client.detached[-1].error.condition == "amqp:resource-locked"
    assert client.detached[-1].error.description.endswith("--queue work` ends it")
    for _ in range(2):  # replayable until it advances
        link = client.reader("work", 1, 4)
        rig.settle()
        assert client.bodies(link) == names(1, 3) and link.detached
    for sequence, advanced in ((4, 4), (2, 4), (4, 4)):
        answer = client.manage("ADVANCE", "subscription", "sub", sequence=sequence, **held(body))[1]
        assert answer["advanced"] == advanced
    rig.settle()
    assert node.bodies("work") == names(4, 5)
    assert client.manage("ADVANCE", "subscription", "sub", sequence=99, **held(body))[0] == 400
    assert client.manage("DELETE", "subscription", "sub", queue="work")[0] == 200
    client.deliveries.clear()
    client.receiver("work")
    rig.settle()
    assert client.bodies() == names(4, 5)


def test_copies_and_consumers_both() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    body = open_subscription(client, "copy")
    link = client.receiver("work")
    rig.settle()
    assert client.accept(link=link) == names(1, 3)
    rig.settle()
    assert node.bodies("work") == names(1, 3)
    node.crash()
    node.start()
    client = rig.client(node)
    link = client.receiver("work")
    rig.settle()
    assert client.bodies(link) == []
    before, body = body, open_subscription(client, "copy")
    assert body["lease_epoch"] == before["lease_epoch"] + 1
    client.manage("ADVANCE", "subscription", "sub", sequence=3, **held(body))
    rig.settle()
    assert node.bodies("work") == ["3"]
    assert client.manage("DELETE", "subscription", "sub", queue="work")[0] == 200
    assert node.bodies("work") == [] and node.queue("work").messages == 0


def test_what_a_removed_copy_still_needed_does_not_come_back() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    open_subscription(client, "copy")
    link = client.receiver("work")
    rig.settle()
    client.accept(link=link)
    rig.settle()
    client.manage("DELETE", "subscription", "sub", queue="work")
    node.crash()
    node.start()
    client = rig.client(node)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == [] and node.queue("work").messages == 0


def test_recreated_queue() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    body = open_subscription(client)
    assert client.manage("DELETE", "queue", "work")[0] == 409
    client.manage("DELETE", "subscription", "sub", queue="work")
    for link in list(node.core.links.producers_of(node.queue("work"))):
        link.link.detach()
    client.close_transport()
    rig.settle()
    client = rig.client(node)
    assert client.manage("DELETE", "queue", "work")[0] == 200
    fill(rig, client, 1)
    again = open_subscription(client)
    assert again["queue_uuid"] != body["queue_uuid"]
    status, _, text = client.manage("ADVANCE", "subscription", "sub", sequence=2, **held(body))
    assert status == 412 and "deleted and created again" in text
    filters = {"s": Described(Symbol("holdfast:subscription:list"), ["sub", body["queue_uuid"], Ulong(1)])}
    refused = client.reader("work", 1, 2, filters=filters)
    rig.settle()
    assert refused.refused and node.core.links.readers_of(node.queue("work")) == {}


def test_a_newer_lease_fences_the_older() -> None:
    _, _, client = world()
    first = open_subscription(client)
    open_subscription(client)
    for operation, place in (("ADVANCE", "sequence"), ("PEEK", "start")):
        status, _, text = client.manage(operation, "subscription", "sub", **{place: 0}, **held(first))
        assert status == 409 and "newer holder" in text


def test_a_browser_moves_nothing_and_goes_on() -> None:
    rig, node, client = world()
    fill(rig, client, 2)
    link = client.receiver("work", source={"distribution_mode": Symbol("copy")})
    rig.settle()
    fill(rig, client, 1, first=3)
    assert client.bodies(link) == names(1, 3) and node.bodies("work") == names(1, 3)


def test_a_browser_is_shown_nothing_that_has_expired() -> None:
    """By sequence a range is the same messages for as long as they are there (CUSTODY, "Readers")."""
    rig, _, client = world()
    sender = client.sender("work")
    rig.settle()
    client.send(sender, "brief", header=Header(ttl=500))
    client.send(sender, "lasting")
    rig.settle()
    rig.run(0.6)
    link = client.receiver("work", source={"distribution_mode": Symbol("copy")})
    rig.settle()
    assert client.bodies(link) == ["lasting"]
    link = client.reader("work", 1, 3)
    rig.settle()
    assert client.bodies(link) == ["brief", "lasting"]


@pytest.mark.parametrize("size", [1_000, 60_000])
def test_one_turn_hands_out_so_many_bytes_and_no_more(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Whether the socket takes it is known only behind the turn; the rest comes in the next ones."""
    monkeypatch.setattr(cursor, "PUMP_BYTES", 100_000)
    handed: list[int] = []
    pump = cursor.Cursor.pump

    def counted(self: cursor.Cursor, limit: int) -> int:
        given = pump(self, limit)
        handed.append(given * size)
        return given

    rig, _, client = world()
    sender = client.sender("work")
    rig.settle()
    for number in range(600 if size == 1_000 else 10):
        client.send(sender, f"{number:0{size}}")
    rig.settle()
    monkeypatch.setattr(cursor.Cursor, "pump", counted)
    client.receiver("work")
    rig.settle()
    assert [int(body[-6:]) for body in client.bodies()] == list(range(600 if size == 1_000 else 10))
    assert max(handed) <= 100_000 + size


def test_a_drain_is_answered_while_a_cursor_holds_too_many_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halting, "FINISHED_MAX", 2)
    rig, _, client = world()
    link = client.receiver("work", name="sub", source={"durable": 2, "expiry_policy": Symbol("never")}, credit=6)
    rig.settle()
    fill(rig, client, 8)
    for position in (1, 3, 5):
        delivery = client.deliveries[position]
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    rig.settle()
    link.grant(10, drain=True)
    rig.settle()
    assert (client.bodies(link), link.credit) == (names(1, 6), 0)


def test_a_durable_subscription_by_link() -> None:
    rig, node, client = world()
    source = {"durable": 2, "expiry_policy": Symbol("never")}
    client.receiver("work", name="sub", source=source)
    rig.settle()
    client.close_transport()
    other = rig.client(node)
    fill(rig, other, 2)
    node.crash()
    node.start()
    client = rig.client(node)
    client.receiver("work", name="sub", source=source)
    rig.settle()
    assert client.accept() == names(1, 2)
    rig.settle()
    assert node.bodies("work") == names(1, 2)  # the queue's own consumers have not had them


@pytest.mark.parametrize("reading", [False, True])
def test_a_message_larger_than_a_link_takes_ends_that_link_alone(reading: bool) -> None:
    rig, node, client = world()
    fill(rig, client, 1)
    small = rig.client(node)
    link = small.reader("work", 1, max_message_size=4) if reading else small.receiver("work", max_message_size=4)
    rig.settle()
    assert small.detached[0].error.condition == "amqp:link:message-size-exceeded" and link.detached
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["1"]
    assert Message.decode(client.deliveries[0].payload).data == [b"1"]


def test_steady_time_never_goes_back_over_a_crash() -> None:
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    client.send(link, "1", header=Header(ttl=10_000))
    rig.settle()
    node.crash()
    rig.now += 1
    rig.wall_ms -= 86_400_000
    node.start()
    rig.run(11)
    client = rig.client(node)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == []


def test_a_retirement_alone_waits_for_a_commit_to_share() -> None:
    rig, node, client = world()
    fill(rig, client, 2)
    client.receiver("work")
    rig.settle()
    commits = node.core.turns.number
    client.accept(count=1)
    rig.settle()
    assert node.core.turns.number == commits and node.bodies("work") == ["1", "2"]
    rig.run(0.1)
    assert node.core.turns.number == commits + 1 and node.bodies("work") == ["2"]


def test_a_subscription_begins_behind_what_is_leaving() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    client.receiver("work")
    rig.settle()
    client.accept(count=2)
    rig.settle()
    client.close_transport()
    other = rig.client(node)
    status, body, text = other.manage("OPEN", "subscription", "spark", queue="work", mode="take")
    assert status == 201, text
    assert body["advanced"] == 3
    reader = other.reader("work", body["advanced"], 4)
    rig.settle()
    assert other.bodies(reader) == ["3"]


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_a_browser_passes_a_bounded_part_of_what_has_expired_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """A subscription keeps them; what is behind them comes in later turns, and a drain is answered after it."""
    monkeypatch.setattr(browsers, *(("BROWSE_LIMIT", 10) if bound == "entries" else ("PUMP_BYTES", 1_000)))
    rig, _, client = world()
    open_subscription(client)
    link = client.sender("work")
    rig.settle()
    for number in range(100):
        client.send(link, "x" * 100 + str(number), header=Header(ttl=1_000))
    client.send(link, "last")
    rig.settle()
    rig.pass_time(3)
    looked = [0]
    expired, pump = Queue.expired, ReaderLink.pump

    def looking(queue: Queue, value: bytes) -> bool:
        looked[-1] += 1
        return expired(queue, value)

    def pumping(reader: ReaderLink) -> None:
        looked.append(0)
        pump(reader)

    monkeypatch.setattr(Queue, "expired", looking)
    monkeypatch.setattr(ReaderLink, "pump", pumping)
    browser = client.receiver("work", credit=0, source={"distribution_mode": Symbol("copy")})
    rig.settle()
    browser.grant(10, drain=True)
    rig.settle()
    assert client.bodies(browser) == ["last"] and browser.credit == 0
    assert sum(looked) == 101 and max(looked) <= 10


# ------------------------------------------------------------------------------------------------ what ADVANCE forgets


def test_advance_forgets_what_is_known_of_what_came_back_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link of the subscription had it, was ended by a contained failure, and could have been resumed."""
    rig, node, client = world()
    core = node.core
    assert core is not None
    fill(rig, client, 1)
    lost = rig.client(node)
    lost.receiver("work", name="sub", source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    fill(rig, client, 99, first=2)
    assert len(lost.deliveries) == 99, "it begins with what comes after it"
    with monkeypatch.context() as patch:
        patch.setattr(consumer.ConsumerLink, "outcomes", failing)
        lost.accept(count=1)
        rig.settle()
    assert lost.over and core.containment.peers_ended == 1
    subscription, account = node.queue("work").named["sub"], core.memory.withheld.given_back
    assert subscription.counts == {2: 0} and list(subscription.acquired) == list(range(3, 101))
    lease = held(open_subscription(client, "copy"))
    for sequence, left in ((50, range(50, 101)), (101, range(0))):
        assert client.manage("ADVANCE", "subscription", "sub", sequence=sequence, **lease)[0] == 200
        assert subscription.counts == dict.fromkeys(left, 1) and sorted(subscription.requeued) == list(left)
        rig.settle()
        assert account.held == len(left) * exclusions.GIVEN_BACK_BYTES
    check_accounts(core)


def test_the_end_of_a_taking_subscription_forgets_what_consumers_gave_back_before_it() -> None:
    rig, node, client = world()
    core = node.core
    assert core is not None
    fill(rig, client, 10)
    lost = rig.client(node)
    lost.receiver("work", credit=6)
    rig.settle()
    lost.close_transport()
    rig.settle()
    shared, account = node.queue("work").shared, core.memory.withheld.given_back
    lease = held(open_subscription(client))
    client.manage("ADVANCE", "subscription", "sub", sequence=5, **lease)
    assert client.manage("DELETE", "subscription", "sub", queue="work")[0] == 200
    rig.settle()
    assert shared.counts == {5: 1, 6: 1} and account.held == 2 * exclusions.GIVEN_BACK_BYTES
    check_accounts(core)


def failing(*_: Any) -> Any:
    raise RuntimeError("for once")


# ------------------------------------------------------------------------------------------------ what is read


def bytes_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of the store; filled as the node runs, whose checks read all of it."""
    node.checks = False
    found: list[int] = []
    read = node.store.read

    def watched(queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        items = read(queue_id, first, count_max=count_max, bytes_max=bytes_max)
        found.append(sum(len(value) for _, value in items))
        return items

    monkeypatch.setattr(node.store, "read", watched)
    return found


def test_readers_that_may_be_sent_nothing_cost_no_read_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the range of one is over is looked at once for each of its positions, in one entry."""
    rig, node, client = world(QueueConfig(name="work"))
    link = client.sender("work")
    rig.settle()
    for number in range(30):
        client.send(link, f"{number:<{20 * KIB}}")
    rig.settle()
    reader = rig.client(node)
    found = bytes_read(node, monkeypatch)
    links = [reader.reader("work", 1, 20, credit=0) for _ in range(50)]
    rig.settle()
    assert sum(found) < 51 * 21 * KIB
    found.clear()
    client.send(link, "new")
    rig.settle()
    assert sum(found) < 64 * KIB
    for each in links:
        each.grant(19)
    rig.settle()
    assert all(each.detached and len(reader.bodies(each)) == 19 for each in links)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("size", [20 * KIB, 700 * KIB])
def test_a_lone_reader_reads_each_message_once(monkeypatch: pytest.MonkeyPatch, size: int, ends: bool) -> None:
    count = 10 * MIB // size
    rig, node, client = world(QueueConfig(name="work"))
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        client.send(link, f"{number:<{size}}")
        rig.settle()
    reader = rig.client(node)
    found = bytes_read(node, monkeypatch)
    range_link = reader.reader("work", 1, count + 1 if ends else None, credit=2 * count)
    rig.settle()
    assert len(reader.bodies()) == count and range_link.detached == ends
    assert sum(found) < count * size + MIB


@pytest.mark.parametrize("what", ["credit", "window", "unsettled"])
def test_who_takes_one_message_at_a_time_has_no_more_read_for_it(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    size = 20 * KIB
    rig, node, client = world(QueueConfig(name="work"), limits=Limits(unsettled_max=1 if what == "unsettled" else 100))
    link = client.sender("work")
    rig.settle()
    for number in range(40):
        client.send(link, f"{number:<{size}}")
    rig.settle()
    reader = rig.client(node, **({"incoming_window": 2} if what == "window" else {}))
    found = bytes_read(node, monkeypatch)
    source = {"distribution_mode": Symbol("copy")}
    mode = 0 if what == "unsettled" else 1
    given = reader.receiver("work", source=source, snd_settle_mode=mode, credit=0 if what == "credit" else 100)
    for number in range(40):
        if what == "credit":
            given.grant(1)
        rig.settle()
        assert len(reader.bodies()) == number + 1 or what == "window"
        if what == "unsettled":
            item = reader.deliveries[-1]
            given.settle(item.delivery_id, item.delivery_id, Accepted())
    rig.settle()
    assert len(reader.bodies()) == 40
    assert sum(found) < 42 * (size + KIB)


def test_a_reader_without_credit_whose_range_was_emptied_is_told_its_end_with_its_next_credit() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 10)
    reader, consumer = rig.client(node), rig.client(node)
    link = reader.reader("work", 1, 8, credit=3)
    rig.settle()
    assert reader.bodies() == names(1, 3) and not link.detached
    consumer.receiver("work")
    rig.settle()
    consumer.accept()
    rig.run(1)
    assert node.queue("work").messages == 0
    link.grant(10)
    rig.settle()
    assert reader.bodies() == names(1, 3) and link.detached


@pytest.mark.parametrize(
    ("field", "most"), [("sent", browsers.BROWSE_LIMIT), ("passed", browsers.BROWSE_LIMIT), ("size", cursor.PUMP_BYTES)]
)
def test_what_a_reader_comes_by_at_once_is_bounded_in_entries_and_bytes(field: str, most: int) -> None:
    assert [browsers.Looked(**{field: most + more}).is_all for more in (-1, 0, 1)] == [False, True, True]


@pytest.mark.parametrize("settled", [False, True])
def test_behind_a_large_message_a_reader_goes_on(settled: bool) -> None:
    rig = Rig()
    node = streams.start(rig)
    sender, link = streams.sending(rig, node)
    sent = [streams.body(streams.LARGE, "a"), "small", streams.body(streams.LARGE, "b"), "the last"]
    for text in sent:
        sender.send(link, text)
    rig.settle()
    client = rig.client(node)
    reader = client.reader("work", 1)
    reader.grant(10)
    rig.settle()
    if not settled:
        client.accept()
        rig.settle()
    assert client.bodies() == sent if settled else not client.bodies()


def test_what_is_read_ahead_is_counted_once_however_often_it_is_read() -> None:
    """Of a consumer whose messages are told of in the records, each of them is looked at."""
    rig, node, client = world(QueueConfig(name="work"), telemetry_messages=True)
    count = 3_000
    for first in range(1, count, 500):
        fill(rig, client, 500, first=first)
    queue = node.queue("work")
    shared, most = queue.shared, 0
    stored = sum(len(value) for _, value in queue.read(0, count_max=count, bytes_max=MIB))
    client.receiver("work", credit=count)
    while rig.move():
        most = max(most, shared.read_ahead_bytes)
        assert shared.read_ahead_bytes <= stored / 2
    assert most and client.bodies() == names(1, count) and not shared.read_ahead_bytes


@pytest.mark.parametrize("restarted", [False, True])
def test_a_subscription_that_is_deleted_and_opened_again_fences_the_reader_from_before(restarted: bool) -> None:
    """Under the same name and queue, at once or after a restart: it would let go what the new one has not read."""
    rig, node, client = world()
    fill(rig, client, 5)
    old = open_subscription(client)
    for _ in range(3):
        old = open_subscription(client)
    assert client.manage("DELETE", "subscription", "sub", queue="work")[0] == 200
    if restarted:
        rig.run(1)
        node.crash()
        node.start()
        client = rig.client(node)
    new = open_subscription(client)
    assert new["queue_uuid"] == old["queue_uuid"]
    for operation, arguments in (("ADVANCE", {"sequence": 4}), ("PEEK", {"start": 1})):
        status, _, text = client.manage(operation, "subscription", "sub", **held(old), **arguments)
        assert (status, "has a newer holder" in text) == (409, True)
    assert client.manage("ADVANCE", "subscription", "sub", sequence=2, **held(new))[0] == 200


def test_a_reader_of_what_the_queue_has_not_reached_is_told_that_the_store_was_put_back() -> None:
    """It would wait, and pass over new messages with old numbers."""
    rig, _node, client = world()
    fill(rig, client, 5)
    body = open_subscription(client)
    told = client.manage("PEEK", "subscription", "sub", start=6, **held(body))[1]
    assert (told["end"], told["tail"]) == (6, 6)
    for more in ({}, {"exact": True, "messages_max": 5}):
        status, _, text = client.manage("PEEK", "subscription", "sub", start=7, **held(body), **more)
        assert (status, text) == (412, "queue 'work' ends at 6, before 7: its store was put back to an older state")
