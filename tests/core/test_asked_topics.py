"""Topics that a node asks its neighbour to forward to it: entries at the receiving side (docs/federation.md,
docs/adr/0113)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.wire.performatives import Accepted
from holdfast.engine.port import Batch
from holdfast.errors import ConfigError
from holdfast.federation.messages import EDGES_MAX
from holdfast.federation.modes import ASK_BYTES_MAX, TOPICS_MAX, Ask
from holdfast.federation.settings import Entry, check_entries
from holdfast.federation.stored import ENTRIES, entries_of
from holdfast.peering.binding_entries import BindingEntries
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.state.turns import Turns
from holdfast.storage.memory import MemoryStore
from support.federated import DURABLE, confirmation, publish, publisher, sent_to, subscribe
from support.rig import Node, Rig
from support.routing import network


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def pair(rig: Rig) -> list[Node]:
    nodes: list[Node] = network(rig, "a-b")
    rig.run(3)
    return nodes


def ask(rig: Rig, node: Node, neighbour: str, mode: str = "dynamic", *patterns: str, direction: str = "from") -> None:
    assert node.core is not None
    node.core.bindings.add(Entry("flights", neighbour, mode, patterns, direction))
    rig.run(2)


def rows(node: Node) -> list[dict[str, Any]]:
    client = node.rig.client(node)
    node.rig.settle()
    found: list[dict[str, Any]] = client.manage("QUERY", "federation")[1]["federation"]
    client.close_transport()
    return found


def told(node: Node) -> list[tuple[Any, ...]]:
    keys = ("topic", "neighbour", "direction", "mode", "state", "asked", "rows")
    return [tuple(row[key] for key in keys) for row in rows(node)]


def test_who_asks_gets_what_its_subscriptions_want(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a")
    client, link = subscribe(rig, b, "delayed.#", properties={"holdfast:confirm": 5_000})
    publish(rig, publisher(rig, a), "delayed.jfk", "on-time.jfk")
    assert client.bodies(link) == ["delayed.jfk"] and sent_to(a, "b") == 1
    publish(rig, publisher(rig, b), "delayed.ewr")
    assert sent_to(b, "a") == 0, "one direction alone"
    assert told(a) == [("flights", "b", "to", "dynamic", "up", True, 1)]
    assert told(b) == [("flights", "a", "from", "dynamic", "up", False, 0)]


def test_a_subscription_is_confirmed_by_the_node_that_is_asked(rig: Rig, pair: list[Node]) -> None:
    _, b = pair
    ask(rig, b, "a")
    _, link = subscribe(rig, b, "x", properties={"holdfast:confirm": 5_000})
    rig.run(1)
    assert confirmation(link) == (["a"], [])


def test_both_directions_are_one_entry(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a", direction="both")
    (at_a, link_a), (at_b, link_b) = subscribe(rig, a), subscribe(rig, b)
    publish(rig, publisher(rig, a), "one")
    publish(rig, publisher(rig, b), "two")
    assert at_a.bodies(link_a) == at_b.bodies(link_b) == ["one", "two"]
    assert told(b) == [("flights", "a", "both", "dynamic", "up", False, 1)]


@pytest.mark.parametrize(("mode", "patterns", "count"), [("push", (), 3), ("static", ("a.*", "c"), 2)])
def test_static_routes_can_be_asked_for(
    rig: Rig, pair: list[Node], mode: str, patterns: tuple[str, ...], count: int
) -> None:
    a, b = pair
    ask(rig, b, "a", mode, *patterns)
    client, link = subscribe(rig, b)
    publish(rig, publisher(rig, a), "a.b", "b", "c")
    assert len(client.bodies(link)) == sent_to(a, "b") == count
    publish(rig, publisher(rig, b), "a.b")
    assert sent_to(b, "a") == 0, "it asks, and sends nothing there"
    (row,) = rows(a)
    assert (row["mode"], row["patterns"], row["state"]) == (mode, list(patterns), "up")


def test_what_was_asked_for_is_kept_while_who_asked_is_away(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a")
    subscribe(rig, b, "#", name="d", source=DURABLE)
    b.crash()
    rig.run(1)
    sender = publisher(rig, a)
    publish(rig, sender, "one")
    a.crash()
    a.start()
    rig.run(1)
    publish(rig, publisher(rig, a), "two")
    b.start()
    rig.run(10)
    client, link = subscribe(rig, b, "#", name="d", source=DURABLE)
    rig.run(2)
    assert client.bodies(link) == ["one", "two"]


def test_what_is_asked_for_no_more_is_not_sent(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a")
    subscribe(rig, b)
    assert b.core is not None
    b.core.bindings.remove("flights", "a")
    rig.run(2)
    publish(rig, publisher(rig, a), "one")
    assert sent_to(a, "b") == 0 and told(a) == told(b) == []
    b.crash()
    a.crash()
    a.start()
    rig.run(5)
    assert told(a) == []


def test_who_stopped_asking_while_it_was_away_says_so_when_it_is_back(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a")
    assert len(told(a)) == 1
    a.crash()
    assert b.core is not None
    b.core.bindings.remove("flights", "a")
    rig.run(1)
    a.start()
    rig.run(10)
    assert told(a) == []


def test_an_entry_of_its_own_decides_over_what_is_asked_for(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a", "push")
    ask(rig, a, "b", "static", "a", direction="to")
    publish(rig, publisher(rig, a), "a", "b")
    assert sent_to(a, "b") == 1
    assert told(a) == [("flights", "b", "to", "static", "up", False, 0)]
    assert told(b) == [("flights", "a", "from", "push", "asked", False, 0)], "it is forwarded in another way"
    assert a.core is not None
    a.core.bindings.remove("flights", "b")
    rig.run(2)
    publish(rig, publisher(rig, a), "b")
    assert sent_to(a, "b") == 2 and told(b)[0][4] == "up"


@pytest.mark.parametrize("settles", [False, True])
def test_what_a_neighbour_asks_for_is_stored_at_once(rig: Rig, pair: list[Node], settles: bool) -> None:
    """Also where nothing else follows from it, because the node forwards the topic to it anyway, and where what leaves
    in that turn has time until the next message comes (`settles`)."""
    a, b = pair
    ask(rig, a, "b", direction="to")
    assert a.core is not None and b.core is not None and a.core.bindings.federation is not None
    client = rig.client(a)
    link, taking = client.sender("work"), client.receiver("work")
    rig.settle()
    client.send(link, "x")
    rig.settle()
    if settles:
        (delivery,) = client.deliveries
        taking.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
        client.flush()
        a.core.bindings.federation.neighbours["b"].asks = (Ask("flights", "dynamic"),)
        a.core.bindings.messages.heard_modes = True
    else:
        b.core.bindings.add(Entry("flights", "a", "dynamic", direction="from"))
    rig.settle()
    assert [entry.neighbour for entry in a.core.bindings.made.asked.values()] == ["b"]
    assert not a.core.turns.has_changes, "all of it is on disk"
    assert sorted(entry.asked for entry in entries_of(a.store.table(ENTRIES))) == [False, True]
    assert len(a.bodies("work")) == (not settles)


def test_each_may_ask_the_other_in_its_own_way(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a", "push")
    ask(rig, a, "b")
    assert told(a) == [
        ("flights", "b", "from", "dynamic", "up", False, 0), ("flights", "b", "to", "push", "up", True, 0),
    ]  # fmt: skip
    client, link = subscribe(rig, a)
    publish(rig, publisher(rig, b), "one")
    assert client.bodies(link) == ["one"]


def test_an_entry_that_is_asked_for_is_removed_until_it_is_asked_for_again(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    ask(rig, b, "a")
    client = rig.client(a)
    rig.settle()
    assert client.manage("DELETE", "federation", "flights@b")[0] == 200
    rig.run(1)
    assert told(a) == []
    assert client.manage("DELETE", "federation", "flights@b")[0] == 404
    rig.run(40)
    assert len(told(a)) == 1


def test_a_neighbour_that_may_not_receive_is_forwarded_nothing() -> None:
    rig = Rig()
    receives = AccessRule(name="b", users=("b",), addresses=("topic/flights",), allow=("receive",))
    everyone = AccessRule(name="c", users=("c",), addresses=("topic/other",), allow=("send", "receive", "create"))
    access = {"users": (UserConfig(name="c", password="x"),), "access": AccessConfig(rules=(everyone,))}
    a, b = network(rig, "a-b", a=access)
    rig.run(3)
    ask(rig, b, "a", "push")
    assert a.core is not None and a.core.bindings.entries == ()
    assert b.core is not None and told(b)[0][4] == "asked"
    why = "the neighbour's account may not receive from the topic; permit it, or remove it at b"
    warning = f"federation flights@b, for which the neighbour asks, does not apply: {why}"
    assert warning in [text for _, text in a.core.warnings.all()]
    a.crash()
    a.config = a.config.__class__(**{
        **{name: getattr(a.config, name) for name in a.config.__dataclass_fields__},
        "access": AccessConfig(rules=(everyone, receives)),
    })  # fmt: skip
    a.start()
    rig.run(10)
    assert a.core is not None and len(a.core.bindings.entries) == 1 and told(b)[0][4] == "up"
    assert warning not in [text for _, text in a.core.warnings.all()]


def test_a_node_of_an_earlier_version_leaves_it_asked(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    assert a.core is not None
    a.core.bindings._hear = lambda session, fields: None  # type: ignore[method-assign]
    a.core.control_kinds["federate"] = lambda session, fields: None
    ask(rig, b, "a")
    assert told(b)[0][4] == "asked"
    a.crash()
    rig.run(10)
    assert told(b)[0][4] == "down"


def test_a_neighbour_cannot_ask_for_more_topics_than_a_node_forwards(rig: Rig, pair: list[Node]) -> None:
    a, b = pair
    assert a.core is not None and b.core is not None
    for number in range(TOPICS_MAX):
        b.core.bindings.add(Entry(f"t{number}", "a", direction="from"))
    a.core.bindings.add(Entry("own", "b"))
    rig.run(3)
    forwarded = a.core.bindings.entries
    assert len(forwarded) == TOPICS_MAX and forwarded[0].topic == "own" and len(a.core.bindings.made.asked) == 256
    a.core.bindings.add(Entry("second", "b"))
    rig.run(1)
    assert [entry.topic for entry in a.core.bindings.entries[:2]] == ["own", "second"]
    assert len(a.core.bindings.entries) == TOPICS_MAX


def test_patterns_that_a_neighbour_is_asked_for_have_a_bound() -> None:
    patterns = tuple(f"{number:04}." + "a" * 250 for number in range(ASK_BYTES_MAX // 255))
    check_entries([Entry("t", "b", "static", patterns, "from")], "a")
    check_entries([Entry("t", "b", "static", (*patterns, "c" * 200), "to")], "a")
    with pytest.raises(ConfigError, match="patterns that 'b' is asked for have 16520 bytes in federation; expected at"):
        check_entries([Entry("t", "b", "static", (*patterns, "c" * 200), "both")], "a")
    with pytest.raises(ConfigError, match="invalid direction 'in' in federation of 't' over 'b'; expected one of"):
        Entry("t", "b", direction="in").validate()


def test_a_request_names_the_direction(rig: Rig, pair: list[Node]) -> None:
    _, b = pair
    client = rig.client(b)
    rig.settle()
    assert client.manage("CREATE", "federation", "news@a", direction="from")[0] == 201
    assert client.manage("CREATE", "federation", "news@a", direction="from")[0] == 200
    status, _, text = client.manage("CREATE", "federation", "news@a", direction="to")
    assert status == 409 and "in another way" in text
    status, _, text = client.manage("CREATE", "federation", "new@a", direction="up")
    assert status == 400 and "expected one of to, from, both" in text


def test_a_topic_goes_to_a_bounded_number_of_neighbours_that_ask() -> None:
    names = [f"n{number}" for number in range(EDGES_MAX + 2)]
    config = NodeConfig(
        name="a", neighbours=tuple(NeighbourConfig(name=name) for name in names), federation=(Entry("t", names[0]),)
    )
    made = BindingEntries(config, MemoryStore(), Turns(Batch()), lambda neighbour, topic: True)
    for name in names:
        made.ask(name, [Ask("t", "push")])
    assert [entry.neighbour for entry in made.all] == names[:EDGES_MAX] and len(made.asked) == len(names)
    check_entries(made.all, "a")
    assert made.moved() and not made.moved()
    made.ask(names[1], [Ask("t", "dynamic"), Ask("u", "push")])
    made.ask(names[2], [])
    assert [(entry.topic, entry.mode) for entry in made.all if entry.neighbour == names[1]] == [
        ("t", "dynamic"), ("u", "push"),
    ]  # fmt: skip
    assert names[2] not in {entry.neighbour for entry in made.all}
    made.configure(replace(config, neighbours=config.neighbours[:2]))
    assert {entry.neighbour for entry in made.all} == set(names[:2]) and made.moved()
    assert {entry.neighbour for entry in made.asked.values()} == {names[0], names[1]}, "the others have to ask again"
