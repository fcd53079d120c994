"""Topics: what is published goes to each subscription that wants it, and is stored once (docs/topics.md)."""

import random
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Released, Source, Target
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker import topic as topics
from holdfast.broker.topic import Topic
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support import today
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS

SELECTOR = Symbol("apache.org:selector-filter:string")
PATTERN = Symbol("apache.org:legacy-amqp-topic-binding:string")
EXACT = Symbol("apache.org:legacy-amqp-direct-binding:string")
DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}


def publisher(rig: Rig, node: Node, address: str = "topic/flights") -> tuple[Client, Sender]:
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    return client, link


def publish(rig: Rig, sender: tuple[Client, Sender], *subjects: str | None, size: int = 0, **header: Any) -> None:
    """A message of each subject, which is its body as well."""
    client, link = sender
    for subject in subjects:
        properties = None if subject is None else Properties(subject=subject)
        client.send(
            link, f"{subject}".ljust(size), properties=properties, header=Header(durable=True, **header),
            application_properties={"length": len(subject or "")},
        )  # fmt: skip
    rig.settle()


def subscribe(rig: Rig, client: Client, pattern: str = "", *, credit: int = 1_000, **source: Any) -> Receiver:
    address = f"topic/flights/{pattern}" if pattern else "topic/flights"
    name = source.pop("name", None)
    selector = source.pop("selector", None)
    if selector is not None:
        source["filter"] = {Symbol("s"): Described(SELECTOR, selector)}
    link = client.receiver(address, credit=credit, source=source, name=name)
    rig.settle()
    return link


def durable(rig: Rig, client: Client, name: str, pattern: str = "", **options: Any) -> Receiver:
    return subscribe(rig, client, pattern, name=name, **DURABLE, **options)


def bodies(client: Client, link: Receiver | None = None) -> list[str]:
    return [body.strip() for body in client.bodies(link)]


def log(node: Node) -> Topic:
    topic = node.queue("topic/flights")
    assert isinstance(topic, Topic)
    return topic


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------------------------------------ not durable


def test_each_subscription_is_given_what_its_pattern_matches(rig: Rig) -> None:
    hub = rig.node("hub")
    clients = [rig.client(hub) for _ in range(4)]
    for client, pattern in zip(clients, ("", "delayed.#", "*.jfk", "cancelled"), strict=True):
        subscribe(rig, client, pattern)
    publish(rig, publisher(rig, hub), "delayed.jfk", "delayed", "on-time.jfk", "cancelled")
    assert [bodies(client) for client in clients] == [
        ["delayed.jfk", "delayed", "on-time.jfk", "cancelled"],
        ["delayed.jfk", "delayed"],
        ["delayed.jfk", "on-time.jfk"],
        ["cancelled"],
    ]
    assert log(hub).messages == 0, "nothing is stored for who is not durable"
    for client in clients:
        client.accept()
    rig.settle()


def test_what_was_published_before_and_what_nobody_wants_is_for_nobody(rig: Rig) -> None:
    hub = rig.node("hub")
    sender = publisher(rig, hub)
    publish(rig, sender, "a", "b")
    assert [state for _, state in sender[0].outcomes] == [Accepted(), Accepted()]
    client = rig.client(hub)
    subscribe(rig, client)
    publish(rig, sender, "c")
    assert bodies(client) == ["c"] and log(hub).messages == 0


@pytest.mark.parametrize("descriptor", [PATTERN, EXACT])
def test_patterns_come_as_filters_too(rig: Rig, descriptor: Symbol) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    source = {"filter": {Symbol("f"): Described(descriptor, "a.b")}}
    link = client.receiver("topic/flights", source=source)
    rig.settle()
    publish(rig, publisher(rig, hub), "a.b", "a.c", "a")
    assert bodies(client) == ["a.b"]
    assert link.remote_attach is not None and link.remote_attach.source is not None
    assert link.remote_attach.source.filter == source["filter"]


def test_a_selector_narrows_what_the_pattern_matches(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    subscribe(rig, client, "a.*", selector="length > 3")
    publish(rig, publisher(rig, hub), "a.b", "a.bc", "b.cd")
    assert bodies(client) == ["a.bc"]


def test_a_target_s_subject_counts_for_messages_without_one(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    subscribe(rig, client, "a.#")
    publish(rig, publisher(rig, hub, "topic/flights/a.b"), None, "c", "a.d")
    assert bodies(client) == ["None", "a.d"]
    sent = client.messages()[0]
    assert sent.properties is None or sent.properties.subject is None, "the bare message stays as it was sent"


def test_the_anonymous_terminus_publishes_too(rig: Rig) -> None:
    hub = rig.node("hub")
    client, sender = rig.client(hub), rig.client(hub)
    hub.unwatched.add("None")
    subscribe(rig, client, "a")
    link = sender.session.attach_sender("relay", Source(), Target())
    rig.settle()
    sender.send(link, "one", properties=Properties(to="topic/flights", subject="a"))
    sender.send(link, "two", properties=Properties(to="topic/flights/a"))
    sender.send(link, "three", properties=Properties(to="topic/flights/b"))
    rig.settle()
    assert bodies(client) == ["one", "two"]


def test_too_much_that_waits_drops_the_oldest_and_holds_up_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LISTENER_MESSAGES_MAX", 3)
    hub = rig.node("hub")
    slow, quick = rig.client(hub), rig.client(hub)
    link = subscribe(rig, slow, credit=1)
    subscribe(rig, quick)
    sender = publisher(rig, hub)
    taken: list[str] = []
    for number in range(6):
        publish(rig, sender, f"{number}")
        taken += quick.accept()
        rig.settle()
    assert taken == [f"{number}" for number in range(6)] and bodies(slow) == ["0"]
    link.grant(10)
    rig.settle()
    assert bodies(slow) == ["0", "4", "5"] and log(hub).dropped_total == 3


def test_a_subscription_ends_with_its_link(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = subscribe(rig, client)
    assert len(log(hub).listeners) == 1
    link.detach(closed=True)
    rig.settle()
    assert not log(hub).listeners
    subscribe(rig, client)
    client.close_transport()
    rig.settle()
    assert not log(hub).listeners and not [name for name in hub.core.catalog.queues if name.startswith("$temp")]  # type: ignore[union-attr]


def test_a_message_that_is_given_back_comes_again(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    subscribe(rig, client)
    publish(rig, publisher(rig, hub), "a", "b")
    client.accept(Released(), count=1)
    rig.settle()
    assert bodies(client) == ["b", "a"]


# ------------------------------------------------------------------------------------------------ durable


def test_a_durable_subscription_gets_what_came_while_it_was_away(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "s", "a.#")
    link.detach(closed=False)
    rig.settle()
    sender = publisher(rig, hub)
    publish(rig, sender, "a.1", "b.1", "a.2", "b.2")
    assert sorted(hub.bodies("topic/flights")) == ["a.1", "a.2"]
    hub.crash()
    hub.start()
    rig.settle()
    client = rig.client(hub)
    durable(rig, client, "s", "a.#")
    publish(rig, publisher(rig, hub), "a.3", "b.3")
    assert bodies(client) == ["a.1", "a.2", "a.3"]
    client.accept()
    rig.run(2)
    assert log(hub).messages == 0 and log(hub).named["s"].floor >= 4


def test_a_message_leaves_when_each_that_wanted_it_has_finished_it(rig: Rig) -> None:
    hub = rig.node("hub")
    one, two = rig.client(hub), rig.client(hub)
    durable(rig, one, "one", "a.#")
    durable(rig, two, "two", "#")
    publish(rig, publisher(rig, hub), "a.1", "b.1")
    assert log(hub).messages == 2, "each is stored once"
    one.accept()
    rig.run(2)
    assert log(hub).messages == 2
    two.accept()
    rig.run(2)
    assert bodies(one) == bodies(two) == [] and log(hub).messages == 0


def test_one_that_nobody_fetches_holds_nothing_else(rig: Rig) -> None:
    hub = rig.node("hub")
    absent, present = rig.client(hub), rig.client(hub)
    durable(rig, absent, "rare", "rare").detach(closed=False)
    durable(rig, present, "all")
    sender = publisher(rig, hub)
    publish(rig, sender, "rare")
    for _ in range(10):
        publish(rig, sender, *(f"b.{number}" for number in range(20)))
        present.accept()
        rig.run(2)
    publish(rig, sender, "end")
    present.accept()
    rig.run(2)
    assert log(hub).messages <= 1 and hub.bodies("topic/flights")[:1] == ["rare"]


def test_what_a_restart_has_forgotten_of_who_wants_what_is_found_out_again(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "absent", "a").detach(closed=False)
    durable(rig, client, "present", "#", credit=0)
    publish(rig, publisher(rig, hub), *["b"] * 30, "a")
    hub.crash()
    hub.start()
    rig.settle()
    client = rig.client(hub)
    durable(rig, client, "present", "#")
    assert bodies(client) == ["b"] * 30 + ["a"]
    client.accept()
    rig.run(3)
    publish(rig, publisher(rig, hub), "a")
    client.accept()
    rig.run(3)
    assert hub.bodies("topic/flights") == ["a", "a"]


def test_another_pattern_under_the_same_name_is_another_subscription(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "s", "a").detach(closed=False)
    rig.settle()
    sender = publisher(rig, hub)
    publish(rig, sender, "a", "b")
    durable(rig, client, "s", "b")
    publish(rig, sender, "a", "b")
    rig.run(2)
    assert bodies(client) == ["b"] and hub.bodies("topic/flights") == ["b"]


def test_a_newer_link_takes_it_over_and_shared_ones_share_it(rig: Rig) -> None:
    hub = rig.node("hub")
    one, two, three = (rig.client(hub) for _ in range(3))
    durable(rig, one, "s")
    durable(rig, two, "s")
    assert str(one.detached[0].error.condition) == "amqp:link:stolen"  # type: ignore[union-attr]
    shared = {"capabilities": (Symbol("shared"), Symbol("global"))}
    durable(rig, two, "t|1", **shared)
    durable(rig, three, "t|2", **shared)
    publish(rig, publisher(rig, hub), *map(str, range(6)))
    assert len(bodies(two)) == 9 and len(bodies(three)) == 3
    assert len(log(hub).named) == 2


def test_containers_that_are_alone_have_subscriptions_of_their_own(rig: Rig) -> None:
    hub = rig.node("hub")
    sole = {"desired_capabilities": (Symbol("sole-connection-for-container"),)}
    a = rig.client(hub, container_id="a", **sole)
    b = rig.client(hub, container_id="b", **sole)
    rig.settle()
    durable(rig, a, "s")
    durable(rig, b, "s")
    publish(rig, publisher(rig, hub), "x")
    assert bodies(a) == bodies(b) == ["x"] and sorted(log(hub).named) == ["a|s", "b|s"]


def test_a_shared_subscription_that_is_not_durable(rig: Rig) -> None:
    hub = rig.node("hub")
    shared = {"capabilities": (Symbol("shared"), Symbol("global"))}
    one, two = rig.client(hub), rig.client(hub)
    subscribe(rig, one, name="v|1", **shared)
    subscribe(rig, two, name="v|2", **shared)
    publish(rig, publisher(rig, hub), *map(str, range(6)))
    assert sorted(bodies(one) + bodies(two)) == [str(number) for number in range(6)] and len(bodies(one)) == 3
    one.close_transport()
    rig.settle()
    assert sorted(bodies(two)) == [str(number) for number in range(6)]
    two.close_transport()
    rig.settle()
    assert not log(hub).listeners


def test_it_is_unsubscribed_by_a_link_without_a_source(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "s").detach(closed=False)
    rig.settle()
    publish(rig, publisher(rig, hub), *["x"] * 300)
    assert log(hub).messages == 300
    link = client.session.attach_receiver("s", None, Target("here"))
    rig.settle()
    link.detach(closed=True)
    rig.run(2)
    assert not log(hub).named and log(hub).messages == 0


def test_management_tells_what_a_subscription_wants_and_makes_none(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "s", "a.#", selector="length  >  3")
    status, told, _ = client.manage("READ", "subscription", "s", queue="topic/flights")
    assert (status, told["pattern"], told["selector"], told["is_shared"]) == (200, "a.#", "length > 3", False)
    status, _, text = client.manage("OPEN", "subscription", "t", queue="topic/flights", mode="copy")
    assert status == 409 and "is a topic" in text
    status, told, _ = client.manage("DELETE", "queue", "topic/flights")
    assert status == 409
    client.session.attach_receiver("x", Source("q"), Target("here"))
    opened = client.amqp.remote_open
    assert opened is not None and Symbol("SHARED-SUBS") in (opened.offered_capabilities or ())
    assert (opened.properties or {})[Symbol("topic-prefix")] == "topic/"


def test_one_with_listeners_is_not_deleted(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = subscribe(rig, client)
    status, _, text = client.manage("DELETE", "queue", "topic/flights")
    assert status == 409 and "subscriptions" in text
    link.detach(closed=True)
    rig.settle()
    assert client.manage("DELETE", "queue", "topic/flights")[0] == 200


# ------------------------------------------------------------------------------------------------ bounds and failures


def test_a_topic_with_many_subscriptions_is_work_for_who_publishes(rig: Rig) -> None:
    """Messages are taken as far as the turn's share goes; the others wait for the next turn."""
    hub = rig.node("hub")
    clients = [rig.client(hub) for _ in range(40)]
    for client in clients:
        client.receiver("topic/flights", credit=1_000)
    rig.settle()
    sender = publisher(rig, hub)
    turns = hub.turns
    for number in range(500):
        sender[0].send(sender[1], f"{number}")
    rig.settle()
    assert hub.turns - turns > 4, "40 subscriptions and 500 messages are 20,000 looks; a turn has 5,000"
    assert all(bodies(client) == [f"{number}" for number in range(500)] for client in clients)


def test_the_listeners_of_a_topic_are_bounded(rig: Rig) -> None:
    hub = rig.node("hub", limits=Limits(queue_subscriptions_max=3))
    clients = [rig.client(hub) for _ in range(4)]
    links = [subscribe(rig, client) for client in clients]
    assert [link.error is None for link in links] == [True] * 3 + [False]
    assert str(links[3].error.condition) == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]


def test_a_topic_of_another_node_is_published_there(rig: Rig) -> None:
    jfk, hub = rig.pair()
    hub.unwatched.add("$holdfast/custody")
    client = rig.client(hub)
    subscribe(rig, client, "a.#")
    sender = publisher(rig, jfk, "topic/flights@hub")
    publish(rig, sender, "a.1", "b.1", "a.2")
    rig.run(2)
    assert bodies(client) == ["a.1", "a.2"] and log(hub).messages == 0
    refused = rig.client(jfk).sender("topic/flights/a.1@hub")
    rig.settle()
    assert refused.error is not None and str(refused.error.condition) == "amqp:not-implemented"


def test_a_full_topic_blocks_its_publishers_until_the_slowest_is_done(rig: Rig) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="topic/flights", messages_max=3),))
    client = rig.client(hub)
    link = durable(rig, client, "s", credit=0)
    sender = publisher(rig, hub)
    assert sender[1].credit == 3
    publish(rig, sender, "1", "2", "3")
    assert sender[1].credit == 0
    link.grant(10)
    rig.settle()
    client.accept()
    rig.run(2)
    assert sender[1].credit > 0


def test_a_refused_commit_refuses_what_was_published(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    durable(rig, client, "s", "a.#")
    sender = publisher(rig, hub)
    hub.refuse = 1
    publish(rig, sender, "a.1")
    assert not isinstance(sender[0].outcomes[0][1], Accepted) and not bodies(client)
    rig.run(2)
    publish(rig, sender, "a.2")
    assert bodies(client) == ["a.2"]


@pytest.mark.parametrize("wanted", [True, False])
def test_large_messages_are_matched_when_they_are_offered(rig: Rig, wanted: bool) -> None:
    hub = rig.node("hub", limits=LIMITS)
    stored, listens = rig.client(hub), rig.client(hub)
    if wanted:
        durable(rig, stored, "s", "a.#")
        subscribe(rig, listens, "b.#")
    publish(rig, publisher(rig, hub), "a.1", "b.1", "a.2", size=LARGE)
    for _ in range(20):
        rig.run(0.2)
    if wanted:
        assert bodies(stored) == ["a.1", "a.2"] and bodies(listens) == ["b.1"]
        stored.accept()
        listens.accept()
    for _ in range(10):
        rig.run(1)
    publish(rig, publisher(rig, hub), "a.end")
    stored.accept()
    rig.run(3)
    assert hub.core is not None and not hub.core.blobs.by_number and log(hub).messages == 0


def test_a_queue_that_was_named_so_before_stays_one(rig: Rig) -> None:
    hub = rig.node("hub")
    client, link = publisher(rig, hub, "topic/flights")
    client.send(link, "x")
    rig.settle()
    table = dict(hub.store.table("queues"))
    from holdfast.broker.stored.records import pack_map, unpack_map

    fields = unpack_map(table[b"topic/flights"])
    del fields["topic"]
    hub.crash()
    hub.store._tables["queues", b"topic/flights"] = pack_map(fields)  # type: ignore[attr-defined]
    hub.start()
    rig.settle()
    client, link = publisher(rig, hub, "topic/flights")
    client.send(link, "kept")
    rig.settle()
    assert hub.bodies("topic/flights") == ["kept"] and not isinstance(hub.queue("topic/flights"), Topic)


@pytest.mark.parametrize(
    ("address", "source", "condition"),
    [
        ("topic/flights/a..b", {}, "amqp:invalid-field"),
        ("topic/flights/a*", {}, "amqp:invalid-field"),
        ("topic/flights", {"distribution_mode": Symbol("copy")}, "amqp:not-implemented"),
        ("topic/flights/a", {"filter": {Symbol("f"): Described(PATTERN, "b")}}, "amqp:invalid-field"),
        ("topic/flights", {"filter": {Symbol("f"): Described(EXACT, "b.*")}}, "amqp:invalid-field"),
        ("topic/flights", {"filter": {Symbol("f"): Described(PATTERN, 5)}}, "amqp:invalid-field"),
    ],
)
def test_what_is_no_subscription_is_refused_with_a_reason(
    rig: Rig, address: str, source: dict[str, Any], condition: str
) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.receiver(address, source=source, credit=0)
    rig.settle()
    assert link.error is not None and str(link.error.condition) == condition and "\n" not in str(link.error.description)


# ------------------------------------------------------------------------------------------------ at random


@pytest.mark.parametrize("seed", today.some(range(8), 2))
def test_each_durable_subscription_gets_all_that_it_wants_once_over_crashes(seed: int) -> None:
    random_ = random.Random(seed)
    rig = Rig(seed)
    hub = rig.node("hub")
    patterns = ["a.#", "*.1", "#", "b.*"][: random_.randrange(1, 5)]
    got: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    sent: list[str] = []
    links: dict[str, tuple[Client, Receiver]] = {}

    def attach(pattern: str) -> None:
        client = rig.client(hub)
        links[pattern] = client, durable(rig, client, f"s{patterns.index(pattern)}", pattern, credit=3)

    for pattern in patterns:
        attach(pattern)
    for _ in range(120):
        act = random_.random()
        if act < 0.4:
            sender = publisher(rig, hub)
            for _ in range(random_.randrange(1, 5)):
                number = len(sent)
                subject = f"{random_.choice('abc')}.{random_.randrange(2)}"
                sent.append(f"{subject} {number}")
                sender[0].send(sender[1], sent[-1], properties=Properties(subject=subject))
            rig.settle()
        elif act < 0.45:
            hub.crash()
            links.clear()
            hub.start()
            rig.settle()
        elif act < 0.6:
            pattern = random_.choice(patterns)
            if pattern in links:
                client, link = links.pop(pattern)
                link.detach(closed=False) if random_.random() < 0.5 else client.close_transport()
            else:
                attach(pattern)
        else:
            pattern = random_.choice(patterns)
            if pattern in links:
                client, link = links[pattern]
                got[pattern] += client.accept(count=random_.randrange(1, 4))
                if link.credit < 5:
                    link.grant(5)
                rig.settle()
    for pattern in patterns:
        if pattern not in links:
            attach(pattern)
        client, link = links[pattern]
        link.grant(10_000)
        rig.run(1)
        got[pattern] += client.accept()
    rig.run(3)
    publish(rig, publisher(rig, hub), "end.end")
    for client, _ in links.values():
        client.accept()
    rig.run(3)
    for pattern in patterns:
        compiled = topics_pattern(pattern)
        wanted = [body for body in sent if compiled(body.split()[0])]
        assert sorted(set(got[pattern])) == sorted(wanted)
    assert log(hub).messages == 0


def topics_pattern(pattern: str) -> Any:
    from holdfast.broker.subjects import Pattern

    return Pattern(pattern).matches
