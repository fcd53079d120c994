"""The filter no-local: what a subscription's own connection, or container, publishes is not handed to it (JMS 2.0
§6.2.6, §8.3; docs/topics.md)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, PUBLISHER
from holdfast.amqp.wire.performatives import Accepted, Properties, Source
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS
from support.transactions import Controller, within

CODE = Ulong(0x468C00000003)
NAME = Symbol("apache.org:no-local-filter:list")
KEY = Symbol("no-local")
DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}
QPID = Described(CODE, "NoLocalFilter{}")
SOLE = (Symbol("sole-connection-for-container"),)


def own(descriptor: Any = CODE, value: Any = "NoLocalFilter{}") -> dict[str, Any]:
    return {"filter": {KEY: Described(descriptor, value)}}


def named(rig: Rig, node: Node, container: str) -> Client:
    return rig.client(node, container_id=container, desired_capabilities=SOLE)


def listen(rig: Rig, client: Client, address: str = "topic/flights", **source: Any) -> Receiver:
    link = client.receiver(address, source={**own(), **source}, name=source.pop("name", None))
    rig.settle()
    return link


def subscribe(rig: Rig, client: Client, **source: Any) -> Receiver:
    link = client.receiver("topic/flights", source={**own(), **DURABLE, **source}, name="mine")
    rig.settle()
    return link


def publish(rig: Rig, client: Client, body: str, address: str = "topic/flights", **parts: Any) -> Sender:
    link = client.sender(address)
    rig.settle()
    client.send(link, body, **parts)
    rig.settle()
    return link


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("descriptor", [CODE, NAME])
@pytest.mark.parametrize("value", ["NoLocalFilter{}", [], None, True, {"a": 1}])
def test_a_listener_is_not_given_what_its_connection_publishes(rig: Rig, descriptor: Any, value: Any) -> None:
    hub = rig.node("hub")
    mine, other, plain = (rig.client(hub) for _ in range(3))
    link = listen(rig, mine, **own(descriptor, value))
    plain.receiver("topic/flights")
    answer = link.remote_attach
    assert answer is not None and isinstance(answer.source, Source)
    assert answer.source.filter == {KEY: Described(descriptor, value)}
    publish(rig, mine, "mine")
    publish(rig, other, "other")
    rig.run(1)
    assert mine.bodies() == ["other"] and plain.bodies() == ["mine", "other"]


def test_all_containers_of_one_name_are_other_connections_to_a_listener(rig: Rig) -> None:
    hub = rig.node("hub")
    one, two = rig.client(hub), rig.client(hub)
    listen(rig, one)
    publish(rig, two, "x")
    assert one.bodies() == ["x"]


def test_a_durable_subscription_is_not_given_what_its_container_publishes(rig: Rig) -> None:
    """Also on another connection, while it is away, over a restart; another container's it is given."""
    hub = rig.node("hub")
    mine, other = named(rig, hub, "jms"), named(rig, hub, "another")
    subscribe(rig, mine)
    mine.close_transport()
    rig.settle()
    again = named(rig, hub, "jms")
    publish(rig, again, "own")
    publish(rig, other, "other")
    again.close_transport()
    rig.settle()
    hub.crash()
    hub.start()
    rig.settle()
    mine = named(rig, hub, "jms")
    subscribe(rig, mine)
    publish(rig, mine, "own, later")
    rig.run(2)
    assert mine.bodies() == ["other"]
    mine.accept()
    rig.run(2)
    assert hub.queue("topic/flights").messages == 0


def test_what_only_its_publisher_would_be_given_is_not_stored(rig: Rig) -> None:
    hub = rig.node("hub")
    mine = named(rig, hub, "jms")
    subscribe(rig, mine)
    publish(rig, mine, "own")
    assert hub.queue("topic/flights").messages == 0


def test_with_a_pattern_and_a_selector(rig: Rig) -> None:
    hub = rig.node("hub")
    mine, other = rig.client(hub), rig.client(hub)
    selector = Described(Symbol("apache.org:selector-filter:string"), "n > 1")
    mine.receiver("topic/flights/a.#", source={"filter": {KEY: QPID, Symbol("s"): selector}})
    rig.settle()
    for client, text in ((mine, "mine"), (other, "other")):
        for number, subject in ((1, "a.b"), (2, "a.b"), (3, "b")):
            publish(
                rig, client, f"{text}{number}", properties=Properties(subject=subject),
                application_properties={"n": number},
            )  # fmt: skip
    rig.run(1)
    assert mine.bodies() == ["other2"]


@pytest.mark.parametrize("durable", [True, False])
def test_without_the_filter_it_is_another_subscription(rig: Rig, durable: bool) -> None:
    hub = rig.node("hub")
    mine = named(rig, hub, "jms")
    subscribe(rig, mine).detach(closed=False)
    rig.settle()
    mine.receiver("topic/flights", source=DURABLE if durable else {}, name="mine" if durable else "other")
    rig.settle()
    publish(rig, mine, "own")
    rig.run(1)
    assert mine.bodies() == ["own"]


def test_a_durable_one_without_the_filter_is_not_given_what_was_kept_for_the_one_with_it(rig: Rig) -> None:
    """As with another pattern: that subscription ended."""
    hub = rig.node("hub")
    mine, other = named(rig, hub, "jms"), named(rig, hub, "other")
    subscribe(rig, mine).detach(closed=False)
    rig.settle()
    publish(rig, other, "kept")
    mine.receiver("topic/flights", source=DURABLE, name="mine")
    rig.settle()
    publish(rig, other, "fresh")
    rig.run(1)
    assert mine.bodies() == ["fresh"]


def test_a_subscription_that_any_container_may_read_leaves_out_the_last_ones_messages(rig: Rig) -> None:
    hub = rig.node("hub")
    one, two = rig.client(hub, container_id="one"), rig.client(hub, container_id="two")
    subscribe(rig, one)
    publish(rig, two, "1")
    assert one.bodies() == ["1"]
    subscribe(rig, two)  # its name is no container's own: it is taken over, and 1 is two's own
    hub.crash()
    hub.start()
    rig.settle()
    one, two = rig.client(hub, container_id="one"), rig.client(hub, container_id="two")
    publish(rig, one, "2")
    publish(rig, two, "3")
    subscribe(rig, two)
    rig.run(1)
    assert two.bodies() == ["2"]


def test_messages_of_transactions_and_of_links_without_an_address(rig: Rig) -> None:
    hub = rig.node("hub")
    hub.unwatched.add("None")  # what nobody is owed is never stored
    mine, other = rig.client(hub), rig.client(hub)
    listen(rig, mine)
    for client, text in ((mine, "mine"), (other, "other")):
        controller = Controller(client)
        link = client.sender("topic/flights")
        rig.settle()
        txn = controller.begin()
        assert controller.send(txn, link, f"{text}-txn") == Accepted()
        assert controller.commit(txn) == Accepted()
        relay = client.session.attach_sender("relay", Source(), None)
        rig.settle()
        client.send(relay, f"{text}-relay", properties=Properties(to="topic/flights"))
        rig.settle()
    rig.run(1)
    assert mine.bodies() == ["other-txn", "other-relay"]


def test_a_message_that_was_posted_before_the_listener_came(rig: Rig) -> None:
    """It is published by the commit, when the listener is there."""
    hub = rig.node("hub")
    mine = rig.client(hub)
    controller, link = Controller(mine), mine.sender("topic/flights")
    rig.settle()
    txn = controller.begin()
    link.send(Message(data=[b"x"]).encode(), context=None, state=within(txn))
    rig.settle()
    listen(rig, mine)
    assert controller.commit(txn) == Accepted()
    rig.run(1)
    assert mine.bodies() == []


def test_a_delayed_message_is_its_publishers_still(rig: Rig) -> None:
    hub = rig.node("hub")
    mine, other = rig.client(hub), rig.client(hub)
    for client, text in ((mine, "mine"), (other, "other")):
        publish(rig, client, text, message_annotations={DELIVERY_DELAY: Ulong(2_000)})
    listen(rig, mine)  # when it is due
    rig.run(4)
    assert mine.bodies() == ["other"]


def test_large_messages(rig: Rig) -> None:
    hub = rig.node("hub", limits=LIMITS)
    mine, other = named(rig, hub, "jms"), named(rig, hub, "another")
    listen(rig, mine)
    away = named(rig, hub, "away")
    subscribe(rig, away)
    for client, text in ((mine, "m"), (other, "o"), (away, "a")):
        publish(rig, client, text * LARGE)
    rig.run(5)
    assert [body[0] for body in mine.bodies()] == ["o", "a"]
    assert [body[0] for body in away.bodies()] == ["m", "o"]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_queue_has_no_such_filter(rig: Rig, dynamic: bool) -> None:
    hub = rig.node("hub")
    mine = rig.client(hub)
    mine.receiver(None if dynamic else "work", source={**own(), "dynamic": dynamic})  # type: ignore[arg-type]
    rig.settle()
    (detached,) = mine.detached
    assert detached.error is not None and str(detached.error.condition) == "amqp:not-implemented"
    assert "no-local" in str(detached.error.description) and "queue" in str(detached.error.description)


def test_who_copies_a_queue_is_not_told_that_it_is_applied(rig: Rig) -> None:
    hub = rig.node("hub")
    mine = rig.client(hub)
    publish(rig, mine, "1", address="work")
    link = mine.receiver("work", source={**own(), "distribution_mode": Symbol("copy")})
    rig.settle()
    assert mine.bodies() == ["1"]
    assert link.remote_attach is not None and not link.remote_attach.source.filter  # type: ignore[union-attr]


@pytest.mark.parametrize("durable", [True, False])
def test_a_shared_subscription_has_no_such_filter(rig: Rig, durable: bool) -> None:
    hub = rig.node("hub")
    mine = rig.client(hub)
    source = {**own(), "capabilities": (Symbol("shared"),), **(DURABLE if durable else {})}
    mine.receiver("topic/flights", source=source)
    rig.settle()
    (detached,) = mine.detached
    assert detached.error is not None and str(detached.error.condition) == "amqp:not-implemented"


def test_a_client_cannot_say_who_published(rig: Rig) -> None:
    hub = rig.node("hub")
    mine, other = rig.client(hub, container_id="jms"), rig.client(hub, container_id="another")
    listen(rig, mine)
    publish(rig, mine, "spy", address="topic/plain")
    seen = rig.client(hub)
    seen.receiver("topic/flights")
    rig.settle()
    publish(rig, other, "1")
    (message,) = seen.messages()
    told = (message.message_annotations or {})[PUBLISHER]
    assert isinstance(told, bytes) and len(told) == 16 and b"another" not in told
    publish(
        rig, mine, "2", message_annotations={PUBLISHER: told, Symbol("x"): b"\xa3\x18x-opt-holdfast-publisher\xa0\x10"}
    )
    rig.run(1)
    assert mine.bodies() == ["1"]
