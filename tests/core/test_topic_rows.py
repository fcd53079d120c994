"""What a node tells federation of its topics' subscriptions as they come, change and go (docs/adr/0082).

And what many of them take.
"""

from functools import partial
from random import Random
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.broker.cursors.entry_consumer import SubjectSelector
from holdfast.endpoints.producer import ProducerLink
from holdfast.endpoints.topic_bindings import TopicBindings
from holdfast.errors import ConfigError
from holdfast.federation.rows import Row
from holdfast.federation.settings import Bounds
from holdfast.peering import binding_control
from holdfast.peering.binding_control import PAUSE_S
from holdfast.peers.limits.memory import LINK_BYTES, NODE_BYTES, STEP_BYTES
from holdfast.settings.limits import Limits
from support.exchange import compare_parts
from support.federated import DURABLE, federate, publish, publisher, subscribe
from support.rig import Node, Rig
from support.routing import network


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def pair(rig: Rig) -> list[Node]:
    nodes: list[Node] = network(rig, "a-b")
    rig.run(3)
    federate(rig, "a-b")
    rig.run(3)
    return nodes


def told(node: Node) -> set[Row]:
    """What federation has of the node's clients; the invariants say that it is what their subscriptions want."""
    assert node.core is not None and node.core.bindings.federation is not None
    node.core.validate()
    return set(node.core.bindings.federation.bindings.get("flights", ()))


def known(node: Node, origin: str) -> set[str]:
    """The patterns that the node knows of another."""
    assert node.core is not None and node.core.bindings.federation is not None
    sets = node.core.bindings.federation.sets
    return {row.pattern for key, held in sets.stored.items() if key.origin == origin for row in held.rows}


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_the_subscriptions_want_whatever_happens(rig: Rig, pair: list[Node], seed: int) -> None:
    a, b = pair
    rng, clients = Random(seed), [rig.client(b) for _ in range(2)]
    links: dict[int, Receiver] = {}
    rig.settle()
    for step in range(60):
        kind, pattern, name = rng.randrange(8), rng.choice(["a", "a.*", "b.#"]), f"n{rng.randrange(6)}"
        client = rng.choice(clients)
        if kind <= 2:
            links[step] = client.receiver(f"topic/flights/{pattern}", name=f"{name}.{step}", credit=1)
        elif kind == 3:
            _, links[step] = subscribe(rig, b, pattern, name=name, source=DURABLE)
        elif kind == 4 and links:
            link = links.pop(rng.choice(list(links)))
            if not link.detached:
                link.detach(closed=rng.random() < 0.7)
        elif kind == 5 or (kind == 7 and rng.random() < 0.3):
            b.refuse = 0
            rig.run(2)
            if kind == 5:
                client.manage("DELETE", "subscription", name, queue="topic/flights")
            else:
                client.manage("DELETE", "queue", "topic/flights")
        elif kind == 6:
            b.refuse, b.refuse_all = 1, True
        rig.run(0.1)
        told(b)
    b.refuse = 0
    rig.run(5)
    assert known(a, "b") == {row.pattern for row in told(b)}


def test_one_of_many_subscriptions_costs_what_one_costs(
    rig: Rig, pair: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pair
    looked: list[object] = []
    row_of = TopicBindings.row_of

    def counted(self: TopicBindings, selector: SubjectSelector | None) -> Row:
        looked.append(selector)
        return row_of(self, selector)

    monkeypatch.setattr(TopicBindings, "row_of", counted)
    b.checks = False
    client = rig.client(b)
    for number in range(200):
        client.receiver(f"topic/flights/gate.{number}", credit=1)
    rig.run(1)
    assert len(looked) == 200
    looked.clear()
    last = client.receiver("topic/flights/gate.200", credit=1)
    rig.run(1)
    last.detach(closed=True)
    rig.run(1)
    assert len(looked) == 1, "who ended is not asked what it wants"
    assert len(told(b)) == 200


def test_many_that_come_at_the_same_time_cost_few_commits(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    client = rig.client(b)
    rig.settle()
    before = b.tries
    for number in range(100):  # five at a time, in 60 ms
        client.receiver(f"topic/flights/gate.{number}", credit=1)
        if number % 5 == 4:
            rig.settle()
            rig.run(0.003)
    rig.run(2 * PAUSE_S)
    assert b.tries - before <= 2 + 0.06 / PAUSE_S and len(known(a, "b")) == 100
    rig.run(1)
    before = b.tries
    for number in range(3):
        client.receiver(f"topic/flights/one.{number}", credit=1)
        rig.settle()
        assert f"one.{number}" in known(a, "b"), "who binds one after the other does not wait"
    assert b.tries - before == 3


def test_two_that_want_the_same_are_one_binding(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    _, first = subscribe(rig, b, "a.b")
    _, second = subscribe(rig, b, "a.b")
    assert told(b) == {Row("a.b")}
    first.detach(closed=True)
    rig.run(1)
    assert told(b) == {Row("a.b")} and known(a, "b") == {"a.b"}
    second.detach(closed=True)
    rig.run(1)
    assert told(b) == set() and known(a, "b") == set()


def test_a_failure_while_it_is_told_loses_nothing(rig: Rig, pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    assert b.core is not None
    subscribe(rig, b, "a")
    failing = [True]
    rebind = b.core.bindings.rebind

    def failed(*given: Any) -> None:
        if failing:
            failing.clear()
            raise RuntimeError("planted")
        rebind(*given)

    monkeypatch.setattr(b.core.bindings, "rebind", failed)
    subscribe(rig, b, "b")
    subscribe(rig, b, "c")
    rig.run(10)
    assert not failing and told(b) == {Row("a"), Row("b"), Row("c")} and known(a, "b") == {"a", "b", "c"}


def test_so_does_one_in_the_middle_of_what_changed(rig: Rig, pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    _, b = pair
    row_of, failing = TopicBindings.row_of, [True]

    def failed(self: TopicBindings, selector: SubjectSelector | None) -> Row:
        if failing and selector is not None and selector.pattern is not None and selector.pattern.text == "c":
            failing.clear()
            raise RuntimeError("planted")
        return row_of(self, selector)

    monkeypatch.setattr(TopicBindings, "row_of", failed)
    subscribe(rig, b, "a")
    client = rig.client(b)
    client.receiver("topic/flights/b", credit=1)
    last = client.receiver("topic/flights/c", credit=1)
    rig.run(10)
    assert not failing and told(b) == {Row("a"), Row("b"), Row("c")}
    last.detach(closed=True)
    rig.run(1)
    assert told(b) == {Row("a"), Row("b")}


def test_a_topic_that_is_deleted_and_made_again_is_another(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    client, link = subscribe(rig, b, "a")
    link.detach(closed=True)
    rig.run(1)
    assert client.manage("DELETE", "federation", "flights@a")[0] == 200
    assert client.manage("DELETE", "queue", "topic/flights")[0] == 200
    assert told(b) == set()
    assert client.manage("CREATE", "federation", "flights@a")[0] == 201
    rig.run(1)
    assert known(a, "b") == set()
    subscribe(rig, b, "b")
    assert told(b) == {Row("b")} and known(a, "b") == {"b"}


def test_one_topic_may_have_as_many_subscriptions_as_others_know_bindings_of_one_node() -> None:
    Limits(queue_subscriptions_max=50_000).validate()
    with pytest.raises(ConfigError, match="invalid value 50001 for limits queue_subscriptions_max; expected 1 to 5"):
        Limits(queue_subscriptions_max=50_001).validate()


def test_the_queues_that_subscriptions_make_count_as_what_their_connection_holds(rig: Rig) -> None:
    node = rig.node("hub")
    assert node.core is not None
    memory = node.core.memory
    client = rig.client(node)
    rig.settle()
    peer = next(iter(node.core.connections.values()))
    links = [client.receiver(f"topic/flights/{number}") for number in range(100)]
    rig.settle()
    memory.measure(peer)
    with_queues = peer.held_bytes
    assert memory.nodes_of[peer] == 100 and with_queues > 100 * (NODE_BYTES + LINK_BYTES)
    for link in links:
        link.detach(closed=True)
    rig.settle()
    memory.measure(peer)
    assert with_queues - peer.held_bytes > 100 * (NODE_BYTES + LINK_BYTES) - 2 * STEP_BYTES


@pytest.mark.parametrize("count", [5, 6])
def test_with_one_subscription_more_than_a_set_holds_messages_come_and_a_failure_is_contained(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(binding_control, "Bounds", partial(Bounds, rows_max=5))
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, "a-b")
    rig.run(3)
    client = rig.client(b)
    links = [client.receiver(f"topic/flights/k.{number}", credit=10) for number in range(5)]
    rig.run(2)
    assert known(a, "b") == {f"k.{number}" for number in range(5)}
    links += [client.receiver(f"topic/flights/j.{number}", credit=10) for number in range(5, count)]
    rig.run(2)
    assert len(known(a, "b")) == 5
    publish(rig, publisher(rig, a), *(f"k.{number}" for number in range(5)), *(f"j.{n}" for n in range(5, count)))
    assert [len(client.messages(link)) for link in links] == [1] * count
    with monkeypatch.context() as patched:
        patched.setattr(ProducerLink, "take", lambda *_: 1 / 0)
        sender, link = publisher(rig, b, "q")
        sender.send(link, "x")
        rig.settle()
    assert sender.over and b.core is not None and not client.over
    for link in links[5:]:
        link.detach(closed=True)
    rig.run(2)
    assert known(a, "b") == {row.pattern for row in told(b)} == {f"k.{number}" for number in range(5)}


def test_what_is_made_to_compare_a_set_is_in_the_account_of_memory(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    client = rig.client(b)
    for number in range(100):
        client.receiver(f"topic/flights/k.{number}")
    rig.run(2)
    assert b.core is not None and b.core.bindings.federation is not None
    federation, account = b.core.bindings.federation, b.core.memory.sets
    compare_parts(federation, "a", rig.now, "flights")
    b.core.bindings.messages.eager["a"] = None
    b.core.bindings.speak()
    assert account.held == federation.held_bytes > federation.sets.bytes
    b.core.validate()
    rig.run(60)
    client.close_transport()
    rig.run(3)
    assert account.held == federation.sets.bytes and len(known(a, "b")) == 0
