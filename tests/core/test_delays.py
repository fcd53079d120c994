"""Delayed delivery: messages that are not to be delivered yet (docs/adr/0067)."""

from typing import Any

import pytest

from holdfast.amqp.wire.extensions import DELIVERY_DELAY, DELIVERY_TIME
from holdfast.amqp.wire.performatives import Accepted, Header, Rejected
from holdfast.amqp.wire.types import Symbol, Timestamp, Ulong
from holdfast.custody import delays
from holdfast.custody.dead_lettering import REASON
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS
from support.transactions import Controller

DELAYED = "$delayed"


def send(rig: Rig, client: Client, body: str, *, to: str = "work", **told: Any) -> object:
    """Sends it with these annotations, `delay` and `at` for short; its outcome."""
    names = {"delay": DELIVERY_DELAY, "at": DELIVERY_TIME}
    notes = {names[key]: told.pop(key) for key in list(told) if key in names}
    link = client.sender(to)
    rig.settle()
    client.send(link, body, message_annotations=notes, **told)
    rig.settle()
    return client.outcomes[-1][1]


def in_s(rig: Rig, seconds: float) -> Timestamp:
    return Timestamp(int(rig.wall_ms + seconds * 1000))


def taker(rig: Rig, node: Node, address: str = "work", **options: Any) -> Client:
    client = rig.client(node)
    client.receiver(address, **options)
    rig.settle()
    return client


def restart(rig: Rig, node: Node) -> None:
    node.crash()
    node.start()
    rig.settle()


@pytest.mark.parametrize("kind", ["delay", "at"])
def test_it_is_seen_by_nobody_before_its_time(kind: str) -> None:
    rig, node, client = world()
    told: dict[str, Any] = {"delay": 5_000} if kind == "delay" else {"at": in_s(rig, 5)}
    assert send(rig, client, "late", **told) == Accepted()
    fill(rig, client, 1)
    consumer = taker(rig, node)
    browser = taker(rig, node, source={"distribution_mode": Symbol("copy")})
    rig.run(4.9)
    assert consumer.bodies() == ["1"] and "late" not in browser.bodies() and node.bodies(DELAYED) == ["late"]
    rig.run(0.2)
    assert consumer.bodies() == ["1", "late"] and node.bodies(DELAYED) == []
    late = consumer.messages()[1]
    notes = late.message_annotations or {}
    assert abs(notes[DELIVERY_TIME] - (rig.wall_ms - 100)) < 150 and DELIVERY_DELAY not in notes
    assert not [key for key in notes if str(key).startswith("x-opt-holdfast")]


def test_it_gets_a_sequence_when_it_is_due_and_is_not_counted_before() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=2))
    send(rig, client, "late", delay=1_000)
    assert done(client, "READ", "queue", "work")["messages"] == 0
    assert done(client, "PURGE", "queue", "work")["purged"] == 0
    fill(rig, client, 2)
    rig.run(5)
    assert node.bodies("work") == ["1", "2"] and node.bodies(DELAYED) == ["late"], "the queue is full"
    consumer = taker(rig, node, credit=1)
    consumer.accept()
    rig.run(2)
    assert node.bodies("work") == ["2", "late"]
    assert [sequence for sequence, _ in node.queue("work").read(0, count_max=9, bytes_max=10**6)] == [2, 3]


@pytest.mark.parametrize("told", [{"delay": 0}, {"delay": -5}, {"at": Timestamp(1)}, {"at": 1, "delay": 9_000}])
def test_what_is_due_is_delivered_at_once(told: dict[str, Any]) -> None:
    rig, node, client = world()
    assert send(rig, client, "now", **told) == Accepted()
    assert node.bodies("work") == ["now"] and DELAYED not in node.core.catalog.queues  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["delay", "at"])
def test_the_end_of_a_node_changes_nothing(kind: str) -> None:
    rig, node, client = world()
    told: dict[str, Any] = {"delay": 10_000} if kind == "delay" else {"at": in_s(rig, 10)}
    send(rig, client, "late", **told)
    for _ in range(3):
        restart(rig, node)
        rig.run(2)
    assert node.bodies("work") == []
    rig.run(5)
    assert node.bodies("work") == ["late"] and node.bodies(DELAYED) == []
    restart(rig, node)
    rig.run(1)
    assert node.bodies("work") == ["late"]


def test_a_clock_that_is_set_moves_times_and_no_delays() -> None:
    rig, node, client = world()
    send(rig, client, "delay", delay=100_000)
    send(rig, client, "time", at=in_s(rig, 100))
    node.clock_error_ms = 99_000
    rig.run(15)
    assert node.bodies("work") == ["time"]
    node.clock_error_ms = -3_600_000
    send(rig, client, "soon", at=in_s(rig, 10))
    rig.run(90)
    assert node.bodies("work") == ["time", "delay"] and node.bodies(DELAYED) == ["soon"]
    rig.run(3_600)
    assert node.bodies("work") == ["time", "delay", "soon"]


def test_it_may_expire_meanwhile() -> None:
    rig, node, client = world()
    send(rig, client, "gone", delay=10_000, header=Header(ttl=2_000))
    send(rig, client, "there", delay=10_000, header=Header(ttl=60_000))
    rig.run(8)
    assert node.bodies(DELAYED) == ["there"]
    rig.run(4)
    assert node.bodies("work") == ["there"]


def test_a_refused_commit_leaves_it_where_it_was() -> None:
    rig, node, client = world()
    send(rig, client, "late", delay=1_000)
    node.refuse = 3
    rig.run(1.01)
    assert node.core is not None
    node.core.validate()
    rig.run(10)
    assert node.refuse == 0 and node.bodies("work") == ["late"] and node.bodies(DELAYED) == []
    node.refuse = 1
    assert isinstance(send(rig, client, "never", delay=1_000), Rejected)
    rig.run(5)
    assert node.bodies("work") == ["late"] and node.bodies(DELAYED) == []


def test_the_bound_and_one_past_it() -> None:
    rig, node, client = world(limits=Limits(delayed_max=2))
    assert [send(rig, client, str(number), delay=1_000) for number in range(2)] == [Accepted()] * 2
    refused = send(rig, client, "more", delay=1_000)
    assert isinstance(refused, Rejected) and refused.error is not None
    assert "2 messages are delayed, the most there may be (delayed_max)" in refused.error.text
    assert send(rig, client, "now") == Accepted()
    rig.run(2)
    assert send(rig, client, "again", delay=1_000) == Accepted()
    rig.run(2)
    assert sorted(node.bodies("work")) == ["0", "1", "again", "now"]


@pytest.mark.parametrize("value", ["soon", 1.5, 2**63 - 1])
def test_what_is_no_time_is_refused(value: Any) -> None:
    rig, _, client = world()
    refused = send(rig, client, "x", delay=value)
    assert isinstance(refused, Rejected) and refused.error is not None
    assert "for x-opt-delivery-delay; expected a whole number of milliseconds" in refused.error.text


def test_a_queue_in_memory_delays_nothing() -> None:
    rig, _, client = world(QueueConfig(name="work", durable=False))
    refused = send(rig, client, "x", delay=1_000)
    assert isinstance(refused, Rejected) and refused.error is not None and "in memory" in refused.error.text


def test_nobody_attaches_to_it() -> None:
    rig, _, client = world()
    send(rig, client, "late", delay=1_000)
    client.receiver(DELAYED)
    client.sender(DELAYED)
    rig.settle()
    assert len(client.detached) == 2 and all("belongs to the node" in str(item.error) for item in client.detached)
    rows = done(client, "QUERY", "entry", DELAYED)["entries"]
    assert len(rows) == 1


def test_to_a_topic_it_is_published_when_it_is_due() -> None:
    rig, node, client = world()
    early = taker(rig, node, "topic/news", name="early", source={"durable": 2, "expiry_policy": Symbol("never")})
    send(rig, client, "late", to="topic/news", delay=3_000)
    rig.run(1)
    listener = taker(rig, node, "topic/news")
    rig.run(3)
    assert early.bodies() == ["late"] and listener.bodies() == ["late"]


def test_its_destination_holds_it() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    client = rig.client(jfk)
    send(rig, client, "late", to="work@hub", delay=5_000)
    fill(rig, client, 1, "work@hub")
    rig.run(2)
    assert hub.bodies("work") == ["1"] and hub.bodies(DELAYED) == ["late"]
    rig.run(5)
    assert hub.bodies("work") == ["1", "late"]
    assert not any(queue.messages for queue in jfk.core.catalog.queues.values())  # type: ignore[union-attr]


def test_a_queue_that_is_gone_or_refuses() -> None:
    rig, node, client = world(QueueConfig(name="small", messages_max=1, when_full="refuse"), create_queues=False)
    done(client, "CREATE", "queue", "gone")
    send(rig, client, "one", to="gone", delay=1_000)
    send(rig, client, "two", to="small", delay=1_000)
    fill(rig, client, 1, "small")
    client = rig.client(node)
    rig.clients[0].close_transport()
    rig.settle()
    done(client, "DELETE", "queue", "gone")
    rig.run(3)
    reader = taker(rig, node, "$dead-letters")
    reasons = sorted((message.message_annotations or {})[REASON] for message in reader.messages())
    assert reasons == ["queue 'gone' is gone", "queue 'small' is full"]


def test_a_large_one() -> None:
    rig, node, client = world(limits=LIMITS)
    assert send(rig, client, "x" * LARGE, delay=2_000) == Accepted()
    rig.run(1)
    assert node.queue(DELAYED).messages == 1
    restart(rig, node)
    rig.run(3)
    consumer = taker(rig, node)
    rig.run(2)
    assert consumer.bodies() == ["x" * LARGE]


def test_many_at_once() -> None:
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    for number in range(1_000):
        client.send(link, str(number), message_annotations={DELIVERY_DELAY: Ulong(1_000)})
    rig.settle()
    assert node.queue(DELAYED).messages == 1_000
    restart(rig, node)
    rig.run(5)
    assert sorted(map(int, node.bodies("work"))) == list(range(1_000)) and node.queue(DELAYED).messages == 0


def test_the_open_says_that_it_delays() -> None:
    rig, _, client = world()
    rig.settle()
    assert client.amqp.remote_open is not None
    assert Symbol("DELAYED_DELIVERY") in (client.amqp.remote_open.offered_capabilities or ())


def test_an_operator_deletes_one_and_moves_another_which_stays_delayed() -> None:
    rig, node, client = world()
    for body in ("one", "two", "three"):
        send(rig, client, body, delay=5_000)
    answer = done(client, "QUERY", "entry", DELAYED)
    uuid, rows = answer["queue_uuid"], answer["entries"]
    assert [row["state"] for row in rows] == ["delayed"] * 3
    told = [{"queue_uuid": uuid, "sequence": row["sequence"], "delivery_count": 0} for row in rows]
    done(client, "DELETE", "entry", DELAYED, **told[0])
    done(client, "MOVE", "entry", DELAYED, **told[1], to="other")
    rig.run(1)
    assert sorted(node.bodies(DELAYED)) == ["three", "two"] and node.bodies("other") == []
    rig.run(5)
    assert node.bodies("work") == ["three"] and node.bodies("other") == ["two"]


def test_in_a_transaction_it_is_delayed_from_its_commit() -> None:
    rig, node, client = world()
    controller, link = Controller(client), client.sender("topic/news")
    reader = taker(rig, node, "topic/news")
    other = client.sender("work")
    rig.settle()
    txn = controller.begin()
    for each in (link, other):
        controller.send(txn, each, "late", message_annotations={DELIVERY_DELAY: Ulong(3_000)})
    rig.run(2)
    controller.commit(txn)
    rig.run(2)
    assert node.bodies("work") == [] and reader.bodies() == []
    rig.run(2)
    assert node.bodies("work") == ["late"] and reader.bodies() == ["late"]


def test_a_purge_of_all_that_is_delayed() -> None:
    rig, node, client = world()
    for number in range(3):
        send(rig, client, str(number), delay=2_000)
    assert done(client, "PURGE", "queue", DELAYED)["purged"] == 3
    send(rig, client, "later", delay=2_000)
    rig.run(5)
    assert node.bodies("work") == ["later"] and node.queue(DELAYED).messages == 0
    status, _, text = client.manage("DELETE", "queue", DELAYED)
    assert status == 409 and "belongs to the node" in text


def known(node: Node) -> int:
    assert node.core is not None
    node.core.validate()
    delays = node.core.delays.by_host[""]
    return len(delays.steady) + len(delays.wall) + sum(map(len, delays.waiting.values()))


@pytest.mark.parametrize("how", ["expired", "deleted", "refused"])
def test_what_is_gone_is_not_remembered_for_its_time(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one client fills the memory, with what counts for no bound."""
    monkeypatch.setattr(delays, "SCAN_COUNT", 10)
    rig, node, client = world()
    for number in range(5):
        send(rig, client, f"stays {number}", delay=600_000 - number * 10_000)
    for _ in range(8):
        for _ in range(5):
            if how == "refused":
                node.refuse = 1
            send(rig, client, "gone", delay=10**9, header=Header(ttl=500 if how == "expired" else None))
            rig.run(2 if how == "refused" else 0)
        rig.run(4)
        if how == "deleted":
            told = done(client, "QUERY", "entry", DELAYED)
            for row in told["entries"][5:]:
                place = {"queue_uuid": told["queue_uuid"], "sequence": row["sequence"], "delivery_count": 0}
                done(client, "DELETE", "entry", DELAYED, **place)
        rig.run(1)
        assert known(node) <= 2 * len(node.bodies(DELAYED)) + 10 + 5
    rig.run(700)
    assert node.bodies("work") == [f"stays {number}" for number in (4, 3, 2, 1, 0)]


def test_what_is_due_later_waits_behind_what_is_due_and_has_no_room() -> None:
    rig, node, client = world(QueueConfig(name="work", bytes_max=3_000))
    send(rig, client, "large" * 400, delay=1_000)
    send(rig, client, "small", delay=2_000)
    send(rig, client, "x" * 2_000)
    rig.run(5)
    assert [len(body) for body in node.bodies("work")] == [2_000]
    consumer = taker(rig, node, credit=1)
    consumer.accept()
    rig.run(3)
    assert [len(body) for body in node.bodies("work")] == [2_000, 5]


def test_what_a_refused_commit_moved_is_before_what_waits() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=1))
    for number in (1, 2, 3):
        send(rig, client, str(number), delay=1_000 * number)
    send(rig, client, "0")
    rig.run(5)
    node.refuse = 1
    consumer = taker(rig, node, credit=10)
    seen = []
    for left in (3, 2, 1, 0):
        seen += consumer.bodies()
        assert known(node) == left
        consumer.accept()
        rig.run(5)
    assert seen == list("0123") and node.refuse == 0


@pytest.mark.parametrize("kind", ["delay", "at"])
def test_what_came_due_while_the_node_was_down_is_delivered_in_the_order_of_its_times(kind: str) -> None:
    rig, node, client = world()
    for seconds in (8, 4, 6):
        told: dict[str, Any] = {"delay": seconds * 1_000} if kind == "delay" else {"at": in_s(rig, seconds)}
        send(rig, client, str(seconds), **told)
    node.crash()
    rig.run(20)
    node.start()
    rig.run(2)
    assert node.bodies("work") == ["4", "6", "8"]


def test_what_is_read_anew_bit_by_bit_is_delivered_in_the_order_of_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it before all of it is known: what was stored last may have been due first."""
    monkeypatch.setattr(delays, "SCAN_COUNT", 2)
    rig, node, client = world()
    for body in ("5", "4", "3", "2", "1"):
        send(rig, client, body, delay=1_000 * int(body))
    node.crash()
    rig.run(20)
    restart(rig, node)
    rig.run(20)
    assert node.bodies("work") == ["1", "2", "3", "4", "5"] and node.bodies(DELAYED) == []


def test_times_of_both_clocks_are_one_order() -> None:
    rig, node, client = world()
    for seconds in (5, 3, 1):
        send(rig, client, f"delay {seconds}", delay=seconds * 1_000)
        send(rig, client, f"time {seconds + 1}", at=in_s(rig, seconds + 1))
    node.core.delays.by_host[""]._not_before = rig.now + 10  # type: ignore[union-attr]
    rig.run(15)
    told = [body.split()[1] for body in node.bodies("work")]
    assert told == sorted(told) and len(told) == 6


@pytest.mark.parametrize("delay", [2**62 - 1, 2**61])
def test_the_longest_delay_is_one_after_a_restart_too(delay: int) -> None:
    rig, node, client = world()
    assert send(rig, client, "never", delay=delay) == Accepted()
    for _ in range(2):
        restart(rig, node)
        rig.run(5)
    assert node.bodies(DELAYED) == ["never"]


def test_what_waits_for_either_clock_is_known_once() -> None:
    rig, node, client = world()
    send(rig, client, "a", delay=60_000)
    for body in ("b", "c"):
        send(rig, client, body, at=in_s(rig, 60))
    assert node.core is not None
    assert node.core.delays.by_host[""].known == 3
    restart(rig, node)
    assert node.core.delays.by_host[""].known == 3
