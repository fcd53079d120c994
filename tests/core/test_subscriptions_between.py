"""Subscriptions of topics while a commit is under way, an attach is answered, or a link comes and goes."""

import pytest

from core.test_bindings import bind, control, federate, known
from core.test_subscription_bounds import away, bound, check, made, numbered, read, waiting
from core.test_subscriptions import asked
from core.test_topics import DURABLE, bodies, durable, log, publish, publisher, subscribe
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker import backlogs
from holdfast.broker import topic as topics
from holdfast.broker.entries import packed
from holdfast.broker.stored.bounds import Bounds
from holdfast.federation.settings import Entry
from support.one_node import fill
from support.rig import Rig
from support.routing import network


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_one_begins_behind_what_is_on_its_way_to_the_disk(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "all")
    sender = publisher(rig, hub)
    hub.hold_commits = True
    publish(rig, sender, "before")
    client = rig.client(hub)
    durable(rig, client, "new")
    hub.hold_commits = False
    publish(rig, sender, "behind")
    assert bodies(client) == ["behind"]
    check(hub)


def test_what_is_on_its_way_when_it_gets_a_bound_counts_as_far_as_it_is_wanted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MARKED_MAX", "MARKED_MIN"):  # what it does not want is not noted when it is published
        monkeypatch.setattr(topics, name, 0)
    hub = rig.node("hub")
    made(rig, hub, "all")
    client = made(rig, hub, "some", "a.*")
    sender = publisher(rig, hub)
    hub.hold_commits = True
    publish(rig, sender, "a.0", *(f"b.{number}" for number in range(6)), "a.1")
    log(hub).unmarked = None
    cursor = log(hub).named["some"]
    wants = log(hub).bindings["some"]._replace(bounds=Bounds(messages_max=2, when_full="end"))
    hub.core.catalog.rows.bind(log(hub), "some", wants)
    hub.end_turn()
    hub.hold_commits = False
    rig.run(2)
    check(hub)
    assert log(hub).named.get("some") is cursor and read(client, "some")["messages"] == 2
    assert waiting(rig, hub, "some", "a.*") == ["a.0", "a.1"]


def test_numbers_that_nobody_has_do_not_count_after_a_restart_of_an_empty_topic(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "s", messages_max=2, when_full="drop-oldest")
    publish(rig, publisher(rig, hub), "first")
    assert waiting(rig, hub, "s") == ["first"]
    for number in range(4):
        hub.refuse = 1
        publish(rig, publisher(rig, hub), f"refused.{number}")
        rig.run(5)
    fill(rig, rig.client(hub), 1, "other")
    assert log(hub).messages == 0
    hub.crash()
    hub.start()
    rig.run(2)
    check(hub)
    publish(rig, publisher(rig, hub), "a", "b")
    assert log(hub).dropped_total == 0
    assert waiting(rig, hub, "s") == ["a", "b"]


def test_what_it_drops_leaves_the_disk(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "slow", messages_max=3, when_full="drop-oldest")
    numbered(rig, publisher(rig, hub), 0, 8)
    rig.run(1)
    check(hub)
    assert log(hub).messages == 3 and log(hub).dropped_total == 5


def test_what_is_more_than_one_turn_drops_goes_in_the_next_ones(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "DROPS_MAX", 2)
    hub = rig.node("hub")
    made(rig, hub, "slow", messages_max=3, when_full="drop-oldest")
    hub.hold_commits = True
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 12)
    hub.hold_commits = False
    rig.run(1)
    check(hub)
    assert log(hub).dropped_total == 9 and log(hub).messages == 3


def test_a_link_that_came_and_went_is_not_overlooked(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s", idle_s=5)
    rig.run(3)
    away(rig, client, durable(rig, client, "s"))  # between two looks
    rig.run(3)
    assert "s" in log(hub).named, "it had a link three seconds ago"
    rig.run(4)
    assert "s" not in log(hub).named


def test_what_it_wanted_and_what_its_lost_link_had_go_with_it(rig: Rig) -> None:
    """Of a link that may be resumed: the subscription ends while nobody is there."""
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "s", credit=2)
    bound(client, "s", messages_max=3, when_full="end")
    reader = rig.client(hub)
    properties = {Symbol("holdfast:resume"): Ulong(60)}
    link = reader.receiver("topic/flights", name="s", credit=2, source=DURABLE, properties=properties)
    rig.settle()
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 2)
    assert not link.detached
    reader.close_transport()
    numbered(rig, sender, 2, 6)
    rig.run(2)
    check(hub)
    assert not log(hub).named and not log(hub).bindings and log(hub).messages == 0
    assert not hub.core.resume.outgoing


def test_one_that_is_read_since_it_was_looked_up_is_not_unsubscribed(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s")
    looked = asked(rig, client, "s")
    again = rig.client(hub)
    link = durable(rig, again, "s")
    looked.detach(closed=True)
    rig.settle()
    assert "s" in log(hub).named and not link.detached
    check(hub)


def test_one_that_is_deleted_is_wanted_by_nobody(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s")
    asked(rig, client, "s").detach(closed=True)
    rig.settle()
    check(hub)
    assert not log(hub).bindings and not log(hub).named


def test_a_listener_that_goes_is_asked_no_more(rig: Rig) -> None:
    hub = rig.node("hub")
    stays, goes = rig.client(hub), rig.client(hub)
    subscribe(rig, stays, "a.#")
    link = subscribe(rig, goes, "a.#")
    sender = publisher(rig, hub)
    publish(rig, sender, "a.1")
    link.detach()
    rig.settle()
    check(hub)
    publish(rig, sender, "a.2")
    assert bodies(stays) == ["a.1", "a.2"] and bodies(goes) == ["a.1"]


def test_what_is_dropped_for_a_listener_is_counted_with_its_own_size(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LISTENER_MESSAGES_MAX", 3)
    hub = rig.node("hub")
    client = rig.client(hub)
    link = subscribe(rig, client, credit=0)
    sender = publisher(rig, hub)
    for size in (10, 4_000, 50, 900, 20, 3_000):
        publish(rig, sender, "x", size=size)
    check(hub)
    (queue,) = log(hub).listeners
    assert queue.messages == 3 and log(hub).dropped_total == 3
    assert queue.bytes_held == sum(map(packed.size_of, queue.ephemeral.values()))
    link.grant(10)
    rig.settle()
    client.accept()
    rig.settle()
    assert queue.messages == queue.bytes_held == 0


def test_what_a_listener_wanted_is_withdrawn_when_it_goes() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#", "eu.*")
    assert known(a, "b") == {"us.#", "eu.*"}
    (client,) = [one for one in rig.clients if not one.over]
    next(link for link in client.session.links.values() if getattr(link, "name", "") == "r1").detach()
    rig.run(1)
    check(b)
    assert known(a, "b") == {"eu.*"}


def test_what_a_topic_has_is_told_once_it_is_spread() -> None:
    """Its subscriptions were there before the first entry of the topic."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    for node in (a, b):
        other = "b" if node is a else "a"
        federation = control(node)
        federation.add(Entry("other", other))
    client = rig.client(b)
    client.receiver("topic/prices/us.#")
    rig.settle()
    federate(rig, a, "b")
    rig.run(1)
    assert known(a, "b") == {"us.#"}
    check(a)
    check(b)
