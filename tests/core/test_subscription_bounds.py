"""A durable subscription of a topic has its own bounds: it drops its oldest, or ends (docs/topics.md)."""

import random
from typing import Any

import pytest

from core.test_topics import bodies, durable, log, publish, publisher
from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.performatives import Accepted
from holdfast.broker.stored import records
from holdfast.broker.stored.bounds import AT_BOUND, Bounds
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig
from support.transactions import quiet, started

TOPIC = "topic/flights"
COUNT = "expected 1 to 8192, or null"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def bound(client: Client, name: str, **bounds: Any) -> dict[str, Any]:
    status, body, text = client.manage("UPDATE", "subscription", name, queue=TOPIC, **bounds)
    assert status == 200, text
    return body


def read(client: Client, name: str) -> dict[str, Any]:
    status, body, text = client.manage("READ", "subscription", name, queue=TOPIC)
    assert status == 200, text
    return body


def check(node: Node) -> None:
    assert node.core is not None
    node.core.validate()


def away(rig: Rig, client: Client, link: Receiver) -> None:
    """The link ends; the subscription stays."""
    link.detach()
    rig.settle()


def waiting(rig: Rig, node: Node, name: str, pattern: str = "") -> list[str]:
    """What a new link of that subscription gets; it takes all."""
    client = rig.client(node)
    link = durable(rig, client, name, pattern)
    found = bodies(client)
    client.accept()
    rig.run(1)  # it is on disk
    away(rig, client, link)
    return found


def made(rig: Rig, node: Node, name: str, pattern: str = "", **bounds: Any) -> Client:
    client = rig.client(node)
    away(rig, client, durable(rig, client, name, pattern))
    if bounds:
        assert bound(client, name, **bounds)["changed"]
    return client


def numbered(rig: Rig, sender: tuple[Client, Sender], first: int, end: int, prefix: str = "") -> None:
    publish(rig, sender, *(f"{prefix}{number}" for number in range(first, end)))


def test_at_its_bound_the_oldest_are_dropped_and_other_subscriptions_keep_theirs(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", messages_max=3, when_full="drop-oldest")
    made(rig, hub, "all")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    assert read(client, "slow")["messages"] == 3
    numbered(rig, sender, 3, 8)
    check(hub)
    told = read(client, "slow")
    assert (told["messages"], told["messages_max"], told["when_full"]) == (3, 3, "drop-oldest")
    assert client.manage("READ", "queue", TOPIC)[1]["dropped_total"] == 5
    assert waiting(rig, hub, "slow") == ["5", "6", "7"]
    assert waiting(rig, hub, "all") == [str(number) for number in range(8)]
    rig.run(3)
    assert log(hub).messages == 0


def test_what_it_drops_no_longer_fills_the_topic(rig: Rig) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name=TOPIC, messages_max=6),))
    made(rig, hub, "slow", messages_max=3, when_full="drop-oldest")
    sender = publisher(rig, hub)
    for number in range(20):
        publish(rig, sender, str(number))
        rig.run(2)
    assert len(sender[0].outcomes) == 20, "nobody is held up"
    assert waiting(rig, hub, "slow") == ["17", "18", "19"]


def test_only_what_it_wants_counts(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "all")
    client = made(rig, hub, "some", "a.*", messages_max=5, when_full="drop-oldest")
    sender = publisher(rig, hub)
    for number in range(5):
        publish(rig, sender, f"b.{number}", f"a.{number}", f"c.{number}")
    check(hub)
    assert read(client, "some")["messages"] == 5
    assert log(hub).dropped_total == 0
    hub.crash()
    hub.start()
    rig.run(2)
    check(hub)
    assert log(hub).dropped_total == 0, "what it does not want is found out again before its bound holds"
    publish(rig, publisher(rig, hub), "b.5", "a.5")
    assert waiting(rig, hub, "some", "a.*") == [f"a.{number}" for number in range(1, 6)]


def test_what_a_link_holds_stays_and_counts(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "slow", credit=2)
    bound(client, "slow", messages_max=3, when_full="drop-oldest")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 2)
    numbered(rig, sender, 2, 6)
    assert bodies(client, link) == ["0", "1"]
    check(hub)
    client.accept(link=link)
    link.grant(100)
    rig.settle()
    assert bodies(client, link) == ["5"]


def test_at_its_bound_it_ends_and_its_links_hear_why(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "slow", credit=1)
    made(rig, hub, "all")
    bound(client, "slow", messages_max=3, when_full="end")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    assert "slow" in log(hub).named
    numbered(rig, sender, 3, 4)
    assert "slow" not in log(hub).named and "all" in log(hub).named
    (error,) = [event.error for event in client.detached if event.link is link]
    assert error is not None and error.condition == "amqp:resource-deleted"
    assert error.description == "subscription 'slow' of 'topic/flights' has ended: it had more than 3 messages"
    assert error.description in hub.logs
    assert client.manage("READ", "queue", TOPIC)[1]["subscriptions_ended"] == 1
    check(hub)
    assert waiting(rig, hub, "all") == ["0", "1", "2", "3"]
    hub.crash()
    hub.start()
    rig.run(1)
    assert [*log(hub).named] == ["all"] and log(hub).messages == 0


def test_it_ends_once_it_had_no_link_for_so_long(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "away", idle_s=20)
    rig.run(15)
    assert waiting(rig, hub, "away") == []
    rig.run(15)
    assert "away" in log(hub).named, "it had a link meanwhile"
    client = rig.client(hub)
    link = durable(rig, client, "away")
    rig.run(30)
    assert "away" in log(hub).named, "it has a link"
    away(rig, client, link)
    publish(rig, publisher(rig, hub), "x")
    rig.run(15)
    hub.crash()
    hub.start()
    rig.run(15)
    assert "away" in log(hub).named and log(hub).messages == 1, "the time begins anew with the node"
    rig.run(8)
    check(hub)
    assert "away" not in log(hub).named and log(hub).messages == 0
    assert any("it had no link for 20 s" in text for text in hub.logs)


def test_a_bound_is_taken_up_at_once_outlives_restarts_and_is_taken_away(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s", "a.#")
    made(rig, hub, "all")
    sender = publisher(rig, hub)
    for number in range(10):
        publish(rig, sender, f"a.{number}", f"b.{number}")
    bound(client, "s", messages_max=4, when_full="drop-oldest", idle_s=1_000)
    rig.run(1)
    check(hub)
    assert read(client, "s")["messages"] == 4
    assert not bound(client, "s", messages_max=4)["changed"]
    hub.crash()
    hub.start()
    client = rig.client(hub)
    told = read(client, "s")
    assert (told["messages_max"], told["when_full"], told["idle_s"]) == (4, "drop-oldest", 1_000)
    link = durable(rig, client, "s", "a.#")
    assert bodies(client, link) == [f"a.{number}" for number in range(6, 10)]
    away(rig, client, link)
    assert read(client, "s")["messages_max"] == 4, "an attach leaves the bounds"
    told = bound(client, "s", messages_max=None, idle_s=None)
    assert (told["messages_max"], told["when_full"], told["idle_s"]) == (None, None, None)
    numbered(rig, publisher(rig, hub), 0, 20, "a.")
    assert len(waiting(rig, hub, "s", "a.#")) == 24


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"messages_max": 0, "when_full": "end"}, "invalid value 0 for messages_max; " + COUNT),
        ({"messages_max": 8_193, "when_full": "end"}, "invalid value 8193 for messages_max; " + COUNT),
        ({"messages_max": "x", "when_full": "end"}, "invalid value 'x' for messages_max; " + COUNT),
        ({"messages_max": True, "when_full": "end"}, "invalid value True for messages_max; " + COUNT),
        (
            {"messages_max": 1, "when_full": "block"},
            "invalid value 'block' for when_full; expected drop-oldest, dead-letter or end",
        ),
        (
            {"messages_max": 1, "when_full": [1]},
            "invalid value [1] for when_full; expected drop-oldest, dead-letter or end",
        ),
        ({"messages_max": 1}, "messages_max needs when_full: drop-oldest, dead-letter or end"),
        ({"when_full": "end"}, "when_full needs messages_max or bytes_max"),
        ({"idle_s": -1}, "invalid value -1 for idle_s; expected 1 to 31622400, or null"),
    ],
)
def test_what_is_no_bound_is_refused(rig: Rig, bounds: dict[str, Any], text: str) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s")
    assert client.manage("UPDATE", "subscription", "s", queue=TOPIC, **bounds)[::2] == (400, text)
    assert read(client, "s")["messages_max"] is None


def test_a_row_without_bounds_is_as_earlier_versions_wrote_it() -> None:
    plain = {"pattern": "a.#", "selector": "", "is_shared": False}
    record = records.BindingRecord("a.#", "", False)
    assert records.pack_binding(record) == records.pack_map(plain)
    assert records.unpack_binding(records.pack_map(plain)) == record
    bounded = record._replace(bounds=Bounds(messages_max=3, when_full="end", idle_s=60))
    assert records.pack_binding(bounded) == records.pack_map(
        {**plain, "messages_max": 3, "when_full": "end", "idle_s": 60}
    )
    bounded = bounded._replace(told=Bounds(idle_s=5), is_shared=False)
    assert records.unpack_binding(records.pack_binding(bounded)) == bounded
    assert bounded.is_like(record) and record.is_like(bounded)


def test_bounds_are_of_subscriptions_of_topics(rig: Rig) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work"),))
    client = rig.client(hub)
    client.manage("OPEN", "subscription", "s", queue="work", mode="copy")
    status, _, text = client.manage("UPDATE", "subscription", "s", queue="work", idle_s=1)
    assert (status, text) == (409, "'work' is no topic, and bounds are of subscriptions of topics")
    assert client.manage("UPDATE", "subscription", "t", queue="work", idle_s=1)[0] == 404


@pytest.mark.parametrize("when_full", AT_BOUND)
def test_a_refused_commit_drops_and_ends_nothing_for_what_was_not_stored(rig: Rig, when_full: str) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s", "a.#", messages_max=3, when_full=when_full)
    sender = publisher(rig, hub)
    publish(rig, sender, "a.0", "a.1", "a.2")
    hub.refuse = 1
    publish(rig, sender, "a.3", "a.4")
    rig.run(5)
    check(hub)
    assert read(client, "s")["messages"] == 3 and log(hub).dropped_total == 0 and log(hub).ended_total == 0
    found = waiting(rig, hub, "s", "a.#")
    assert found == ["a.0", "a.1", "a.2"]


def test_numbers_of_refused_commits_do_not_count_after_a_restart_either(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "s", messages_max=3, when_full="drop-oldest")
    for number in range(4):
        hub.refuse = 1
        publish(rig, publisher(rig, hub), f"refused.{number}")
        rig.run(5)
    publish(rig, publisher(rig, hub), "a", "b", "c")
    check(hub)
    hub.crash()
    hub.start()
    rig.run(2)
    check(hub)
    assert log(hub).dropped_total == 0
    assert waiting(rig, hub, "s")[-3:] == ["a", "b", "c"]


def test_what_expires_ahead_of_it_does_not_count(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s", messages_max=4, when_full="end")
    made(rig, hub, "all")
    sender = publisher(rig, hub)
    publish(rig, sender, "stays")
    publish(rig, sender, "x", "y", ttl=2_000)
    rig.run(10)
    check(hub)
    assert read(client, "s")["messages"] == 1
    publish(rig, sender, "z", "w", "v")
    assert read(client, "s")["messages"] == 4
    assert waiting(rig, hub, "s") == ["stays", "z", "w", "v"]


@pytest.mark.parametrize("seed", range(4))
def test_it_has_the_latest_of_what_it_wants_whatever_happens(rig: Rig, seed: int) -> None:
    """One that is away has, after each step, exactly the last of what was accepted and what it wants."""
    draw = random.Random(seed)
    hub = rig.node("hub", limits=Limits())
    most = draw.randint(1, 6)
    made(rig, hub, "s", "a.#", messages_max=most, when_full="drop-oldest")
    if draw.random() < 0.7:
        made(rig, hub, "all")
    wanted: list[str] = []
    for step in range(60):
        kind = draw.choice(("publish", "publish", "publish", "refuse", "crash", "take"))
        if kind == "crash":
            hub.crash()
            hub.start()
            rig.run(1)
        elif kind == "take":
            assert waiting(rig, hub, "s", "a.#") == wanted
            wanted = []
        else:
            sender = publisher(rig, hub)
            if kind == "refuse":
                hub.refuse = 1
            names = [f"{draw.choice('ab')}.{step}.{number}" for number in range(draw.randint(1, 5))]
            publish(rig, sender, *names)
            rig.run(5)
            assert len(sender[0].outcomes) == len(names)
            accepted = [name for name, (_, state) in zip(names, sender[0].outcomes, strict=True) if state == Accepted()]
            wanted = [*wanted, *(name for name in accepted if name.startswith("a."))][-most:]
        check(hub)
    assert waiting(rig, hub, "s", "a.#") == wanted


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("refused", [0, 1])
def test_one_that_ends_while_a_transaction_has_its_messages(settled: bool, refused: int) -> None:
    rig, hub, client, controller = started()
    link = durable(rig, client, "slow", credit=2)
    bound(client, "slow", messages_max=3, when_full="end")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    mine = controller.begin()
    other = client.sender("other")
    rig.settle()
    controller.send(mine, other, "x")
    controller.take(mine, count=2, settled=settled)
    hub.hold_commits = True
    numbered(rig, sender, 3, 5)
    hub.finish_commit()
    hub.refuse, hub.refuse_all = refused, True  # the commit that deletes it
    hub.hold_commits = False
    rig.run(5)
    assert not hub.refuse
    check(hub)
    assert "slow" not in log(hub).named and [event.link for event in client.detached] == [link]
    controller.commit(mine)
    rig.run(5)
    check(hub)
    assert quiet(hub) and log(hub).messages == 0
    hub.crash()
    hub.start()
    rig.run(1)
    check(hub)
    assert not log(hub).named and log(hub).messages == 0


def test_what_a_transaction_has_taken_is_not_dropped(rig: Rig) -> None:
    rig, hub, client, controller = started()
    durable(rig, client, "slow", credit=2)
    bound(client, "slow", messages_max=3, when_full="drop-oldest")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    mine = controller.begin()
    assert controller.take(mine, count=2) == ["0", "1"]
    numbered(rig, sender, 3, 8)
    check(hub)
    assert read(client, "slow")["messages"] == 3
    controller.abort(mine)
    rig.run(1)
    check(hub)
    assert log(hub).dropped_total == 5 and read(client, "slow")["messages"] == 3
