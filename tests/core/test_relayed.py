"""Topics passed on by static entries: their targets choose anew, and copies are known by their publication
(docs/federation.md, docs/adr/0082)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import RELAY
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import annotate, entry
from holdfast.endpoints.passing_on import STUCK_S
from holdfast.federation.settings import Entry
from holdfast.settings.remotes import RemoteConfig
from support.federated import DURABLE, federate, publish, publisher, relay, sent_to, subscribe
from support.one_node import done
from support.rig import Client, Node, Rig
from support.routing import network
from support.standing import core_of
from support.transactions import Controller, condition


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_static_entry_s_target_chooses_anew(rig: Rig) -> None:
    a, b, c = network(rig, "a-b", "b-c")
    rig.run(3)
    relay(rig, "a>b", "b>c", mode="static", patterns=("a.#",))
    clients = [subscribe(rig, node, name="d", source=DURABLE)[0] for node in (a, b, c)]
    publish(rig, publisher(rig, a), "a.b", "b")
    rig.run(2)
    assert [client.bodies() for client in clients] == [["a.b", "b"], ["a.b"], ["a.b"]]
    publish(rig, publisher(rig, c), "a.c")
    assert clients[1].bodies() == ["a.b"], "an entry has one direction"


def test_copies_that_come_by_several_ways_are_dropped(rig: Rig) -> None:
    nodes = network(rig, "a-b", "b-c", "c-d", "d-a", "a-c")
    rig.run(3)
    relay(rig, *(f"{one}>{other}" for one in "abcd" for other in "abcd" if one != other and {one, other} != {"b", "d"}))
    clients = [subscribe(rig, node, name="d", source=DURABLE)[0] for node in nodes]
    publish(rig, publisher(rig, nodes[0]), "1", "2", "3")
    publish(rig, publisher(rig, nodes[1]), "4")
    rig.run(5)
    for client in clients:
        assert sorted(client.bodies()) == ["1", "2", "3", "4"]
    assert sum(node.core.duplicates.suppressed for node in nodes if node.core is not None) > 0


def test_static_and_dynamic_entries_together_give_one_copy(rig: Rig) -> None:
    a, b, c = network(rig, "a-b", "b-c", "a-c")
    rig.run(3)
    federate(rig, "a-c", "b-c")
    relay(rig, "a>b")
    client, _ = subscribe(rig, c, "x", name="d", source=DURABLE)
    other, _ = subscribe(rig, b, "x", name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "x", "y")
    rig.run(5)
    assert client.bodies() == ["x"] and other.bodies() == ["x"]


def test_what_a_publisher_chose_goes_on_by_static_entries(rig: Rig) -> None:
    """A node wants for itself what its static entries send on."""
    a, _, c = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, "a-b")
    relay(rig, "b>c", mode="static", patterns=("a",))
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "a", "b")
    rig.run(5)
    assert client.bodies() == ["a"] and sent_to(a, "b") == 1


def test_what_a_publisher_chose_comes_once_however_many_pass_it_on(rig: Rig) -> None:
    """Two nodes that want a message pass it on to a third."""
    a, _, _, d = network(rig, "a-b", "a-c", "b-d", "c-d")
    rig.run(3)
    federate(rig, "a-b", "a-c")
    relay(rig, "b>d", "c>d")
    near, _ = subscribe(rig, a, name="d", source=DURABLE)
    far, _ = subscribe(rig, d, name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "1", "2")
    rig.run(5)
    assert near.bodies() == far.bodies() == ["1", "2"]


def test_what_a_node_passes_on_to_everybody_does_not_come_back(rig: Rig) -> None:
    a, b = network(rig, "a-b")
    rig.run(3)
    assert core_of(a).bindings.add(Entry("flights", "b"))
    relay(rig, "b>a")
    near, _ = subscribe(rig, a, name="d", source=DURABLE)
    far, _ = subscribe(rig, b, name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "1", "2")
    publish(rig, publisher(rig, b), "3")
    rig.run(5)
    assert near.bodies() == ["1", "2", "3"] and far.bodies() == ["1", "2", "3"]


def test_a_publisher_knows_what_it_has_published_itself(rig: Rig) -> None:
    """A copy that comes back, because its tags were too many to name the publisher, say, is a copy."""
    a, b = network(rig, "a-b")
    rig.run(3)
    relay(rig, "a>b")
    near, _ = subscribe(rig, a, name="d", source=DURABLE)
    subscribe(rig, b, name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "1")
    rig.run(2)
    ((_, value),) = b.queue("topic/flights").read(0, count_max=1, bytes_max=1_000_000)
    topic, suppressed = a.queue("topic/flights"), core_of(a).duplicates.suppressed
    assert topic.append(value, len(value)) == 0
    rig.run(1)
    assert near.bodies() == ["1"] and core_of(a).duplicates.suppressed == suppressed + 1


def test_a_relay_whose_disk_refuses_what_came_passes_it_on_once(rig: Rig) -> None:
    a, b, c = network(rig, "a-b", "b-c")
    rig.run(3)
    relay(rig, "a>b", "b>c")
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    near, _ = subscribe(rig, b, name="d", source=DURABLE)
    b.refuse = 2
    publish(rig, publisher(rig, a), "1", "2")
    rig.run(20)
    assert client.bodies() == ["1", "2"] and near.bodies() == ["1", "2"] and b.refuse == 0


def test_a_message_that_is_sent_anew_is_another_publication(rig: Rig) -> None:
    """What was moved out of the dead letters, also by a link, is no copy of what came by a relay."""
    a, b, c = network(rig, "a-b", "b-c", "a-c")
    rig.run(3)
    relay(rig, "a>b", "a>c")
    assert b.core is not None
    b.core.bindings.add(Entry("other", "c"))
    rig.run(2)
    client = rig.client(c)
    client.receiver("topic/other")
    subscribe(rig, c, name="d", source=DURABLE)
    near, _ = subscribe(rig, b, name="d", source=DURABLE)
    by_hand = rig.client(b)
    status, _, text = by_hand.manage("CREATE", "link", "l", **{"from": "work", "to": "topic/other"})
    assert status == 201, text
    publish(rig, publisher(rig, a), "1", "2")
    rig.run(3)
    assert near.accept(Rejected()) == ["1", "2"]
    rig.run(3)
    uuid = str(b.queue("$dead-letters").uuid)
    for sequence, to in ((1, "work"), (2, "topic/other@c")):
        asked = {"queue_uuid": uuid, "sequence": Ulong(sequence), "delivery_count": Ulong(0), "to": to}
        status, _, text = by_hand.manage("MOVE", "entry", "$dead-letters", **asked)
        assert status == 200, text
    rig.run(3)
    assert sorted(client.bodies()) == ["1", "2"]


def test_a_message_for_relays_that_is_no_publication_goes_no_further(rig: Rig) -> None:
    """Its copies could not be known as such, and would go round for ever."""
    a, b, c = network(rig, "a-b", "b-c", "a-c")
    rig.run(3)
    federate(rig, "a-b", "b-c", "a-c")
    clients = [subscribe(rig, node, name="d", source=DURABLE)[0] for node in (b, c)]
    publish(rig, publisher(rig, a), "1")
    ((_, value),) = b.queue("topic/flights").read(0, count_max=1, bytes_max=1_000_000)
    item = entry.unpack(value)._replace(annotation_count=2, annotations=memoryview(encode(RELAY) + encode(True)))
    assert b.core is not None
    b.core.work.arrives(b.queue("topic/flights"), entry.repack(item))
    rig.run(5)
    assert (sent_to(b, "a"), sent_to(b, "c")) == (0, 0)
    assert [client.bodies() for client in clients] == [["1"], ["1"]]


def test_a_copy_that_comes_after_a_restart_is_dropped(rig: Rig) -> None:
    a, b, c = network(rig, "a-b", "b-c", "a-c")
    rig.run(3)
    relay(rig, "a>b", "a>c", "b>c")
    subscribe(rig, c, name="d", source=DURABLE)
    b.crash()
    publish(rig, publisher(rig, a), "1", "2")
    c.crash()
    c.start()
    b.start()
    rig.run(20)
    assert sent_to(b, "c") == 2, "its copies come after those from a"
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    rig.run(2)
    assert client.bodies() == ["1", "2"]


# ---------------------------------------------------------------------------------------------------- room

BOUND = 3
MORE_BYTES = 100
"""More than the largest number of a publication is longer than a small one, and more than a link or a transaction
adds."""


def bound(node: Node, destination: str, when_full: str = "block") -> None:
    queue = core_of(node).catalog.transmission(destination)
    queue.config = replace(queue.config, messages_max=BOUND, when_full=when_full)


def bound_bytes(node: Node, destination: str, bytes_max: int, when_full: str = "block") -> None:
    queue = core_of(node).catalog.transmission(destination)
    queue.config = replace(queue.config, bytes_max=bytes_max, when_full=when_full)


def copied_bytes(rig: Rig, *, at: str) -> tuple[list[Node], int]:
    """a > b > c by static entries; c is away, and one message of 200 bytes is held for it. How large its copy at that
    node is; that node then holds two at most, less one byte."""
    nodes = network(rig, "a-b", "b-c")
    rig.run(3)
    relay(rig, "a>b", "b>c")
    for node in nodes[1:]:
        subscribe(rig, node, name="d", source=DURABLE)
    node, after = nodes["ab".index(at) :][:2]
    after.crash()
    publish(rig, publisher(rig, nodes[0]), "x" * 200)
    queue = node.queue(f"@{after.name}")
    assert queue.messages == 1
    return nodes, queue.bytes_held


def held(node: Node, name: str) -> int:
    return int(node.queue(name).messages)


def chain(rig: Rig, when_full: str = "block") -> list[Node]:
    """a > b > c by static entries; c is away, and b holds at most BOUND messages for it."""
    nodes = network(rig, "a-b", "b-c")
    rig.run(3)
    relay(rig, "a>b", "b>c")
    for node in nodes[1:]:
        subscribe(rig, node, name="d", source=DURABLE)
    bound(nodes[1], "c", when_full)
    nodes[2].crash()
    return nodes


def test_a_relay_whose_transmission_queue_is_full_holds_up_its_neighbour(rig: Rig) -> None:
    a, b, c = chain(rig)
    texts = [f"n.{number}" for number in range(20)]
    publish(rig, publisher(rig, a), *texts)
    rig.run(60)
    assert (held(b, "@c"), held(a, "@b")) == (BOUND, 20 - BOUND), "what finds no room is not taken"
    assert held(b, "topic/flights") == BOUND, "a message is taken together with its copies"
    warned = rig.client(b).manage("STATUS", "node")[1]["warnings"]
    assert any(
        "queue @c: full" in text and "17 messages from a wait for room, or behind others that do" in text
        for text in warned
    ), warned
    c.start()
    rig.run(20)
    assert (held(b, "@c"), held(a, "@b")) == (0, 0)
    for node in (b, c):
        client, _ = subscribe(rig, node, name="d", source=DURABLE)
        assert client.bodies() == texts


def test_so_it_is_with_what_waited_for_a_number_before_it(rig: Rig) -> None:
    """It moves from `$waiting` to the topic later."""
    a, b, c = chain(rig)
    topic = b.queue("topic/flights")
    topic.config = replace(topic.config, order="strict")
    sender = publisher(rig, a)
    publish(rig, sender, "first")
    core_of(a).catalog.ledger.identities["b"] += 1  # a number that never comes
    publish(rig, sender, *(f"n.{number}" for number in range(8)))
    rig.run(5)
    assert (held(b, "$waiting"), held(b, "@c")) == (8, 1)
    (origin,) = core_of(b).catalog.ledger.by_host[""].values()
    core_of(b).destination.skip(origin, "it never comes")
    rig.run(5)
    assert (held(b, "$waiting"), held(b, "@c")) == (6, BOUND)
    c.start()
    rig.run(20)
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    assert client.bodies() == ["first", *(f"n.{number}" for number in range(8))]


@pytest.mark.parametrize("kind", ["messages", "bytes"])
def test_what_waited_for_a_number_before_it_waits_for_that_room_at_rest(rig: Rig, kind: str) -> None:
    (a, b, c), size = copied_bytes(rig, at="b")
    topic = b.queue("topic/flights")
    topic.config = replace(topic.config, order="strict")
    core_of(a).catalog.ledger.identities["b"] += 1  # a number that never comes
    if kind == "bytes":
        bound_bytes(b, "c", 2 * size - 1)
    else:
        bound(b, "c")
    publish(rig, publisher(rig, a), *(letter * 200 for letter in "yyyyy"))
    rig.run(5)
    (origin,) = core_of(b).catalog.ledger.by_host[""].values()
    core_of(b).destination.skip(origin, "it never comes")
    rig.run(5)
    assert held(b, "@c") == (1 if kind == "bytes" else BOUND)
    turns = b.turns
    rig.run(10)
    assert b.turns - turns < 100, "it waits"
    c.start()
    rig.run(20)
    assert held(b, "@c") == held(b, "$waiting") == 0


def test_what_came_before_on_another_way_needs_no_room(rig: Rig) -> None:
    nodes = network(rig, "a-b", "b-d", "a-c", "c-d", "d-e")
    rig.run(3)
    relay(rig, "a>b", "a>c", "b>d", "c>d", "d>e")
    a, d, e = nodes[0], nodes[2], nodes[4]
    assert (d.name, e.name) == ("d", "e")
    bound(d, "e")
    e.crash()
    publish(rig, publisher(rig, a), *(f"n.{number}" for number in range(BOUND)))
    rig.run(10)
    assert held(d, "@e") == BOUND
    assert [held(node, "@d") for node in (nodes[1], nodes[3])] == [0, 0], "the copies of the other way are taken"


def test_a_relay_whose_transmission_queue_refuses_makes_dead_letters_of_its_copies(rig: Rig) -> None:
    a, b, _ = chain(rig, "refuse")
    texts = [f"n.{number}" for number in range(5)]
    publish(rig, publisher(rig, a), *texts)
    rig.run(5)
    assert (held(b, "@c"), held(a, "@b"), held(b, "topic/flights")) == (BOUND, 0, 5)
    assert held(b, "$dead-letters") == 5 - BOUND
    ((_, value), *_) = b.queue("$dead-letters").read(0, count_max=1, bytes_max=1_000_000)
    assert "queue '@c' is full" in str(annotate.notes_of(entry.unpack(value)))


def test_nodes_that_wait_for_each_other_in_a_circle_go_on(rig: Rig) -> None:
    """Each of three nodes is full of messages that the next one is to pass on to the one after it."""
    nodes = network(rig, "a-b", "b-c", "c-a")
    rig.run(3)
    relay(rig, "a>b", "b>c", "c>a")
    for node in nodes:
        subscribe(rig, node, name="d", source=DURABLE)
        node.crash()
    texts = [f"{node.name}.{number}" for node in nodes for number in range(BOUND)]
    for node in nodes:  # one after another, so that nobody takes anything
        node.start()
        publish(rig, publisher(rig, node), *(text for text in texts if text.startswith(node.name)))
        node.crash()
    for node, after in zip(nodes, "bca", strict=True):
        node.start()
        bound(node, after)
    assert [held(node, f"@{after}") for node, after in zip(nodes, "bca", strict=True)] == [BOUND] * 3
    rig.run(STUCK_S / 2)
    assert sum(held(node, "topic/flights") for node in nodes) == 3 * BOUND, "each waits for the next"
    rig.run(10 * STUCK_S)
    for node in nodes:
        client, _ = subscribe(rig, node, name="d", source=DURABLE, credit=100)
        assert sorted(client.bodies()) == texts


@pytest.mark.parametrize("when_full", ["block", "refuse", "drop-oldest"])
def test_what_a_relay_adds_to_a_message_counts_in_the_bound_of_bytes(rig: Rig, when_full: str) -> None:
    """The copy names one more node that has delivered it."""
    (a, b, _), size = copied_bytes(rig, at="b")
    bound_bytes(b, "c", 2 * size - 1, when_full)
    publish(rig, publisher(rig, a), "y" * 200)
    rig.run(5)
    assert b.queue("@c").bytes_held == size
    turns = b.turns
    rig.run(10)
    assert b.turns - turns < 100, "it waits"
    warned = rig.client(b).manage("STATUS", "node")[1]["warnings"]
    assert any("queue @c: full" in text for text in warned) == (when_full == "block"), warned
    bound_bytes(b, "c", 2 * size)
    b.queue("@c").touch()
    rig.run(5)
    assert held(b, "@c") == (2 if when_full == "block" else 1) and held(a, "@b") == 0


@pytest.mark.parametrize("when_full", ["refuse", "drop-oldest"])
def test_the_names_of_all_nodes_that_have_delivered_it_count_in_the_bound_of_bytes(rig: Rig, when_full: str) -> None:
    first = "a" * 60
    a, b, c = network(rig, f"{first}-b", "b-c")
    rig.run(3)
    relay(rig, f"{first}>b", "b>c")
    c.crash()
    sender = publisher(rig, a)
    publish(rig, sender, "x" * 200)
    rig.run(1)
    size = b.queue("@c").bytes_held
    bound_bytes(b, "c", 2 * size - 1, when_full)
    publish(rig, sender, "y" * 200)
    rig.run(5)
    assert (b.queue("@c").bytes_held, held(a, "@b")) == (size, 0)


@pytest.mark.parametrize("lacking", [0, 1])
def test_what_a_relay_sends_to_a_remote_counts_as_it_came(rig: Rig, lacking: int) -> None:
    a, b = rig.graph("a-b", b={"remotes": (RemoteConfig(name="mq", remote="127.0.0.1:1"),)})
    rig.run(3)
    relay(rig, "a>b", "b>mq")
    sender = publisher(rig, a)
    publish(rig, sender, "x" * 200)
    rig.run(1)
    queue = b.queue("topic/flights@mq")
    assert queue.messages == 1
    queue.config = replace(queue.config, bytes_max=2 * queue.bytes_held - lacking, when_full="refuse")
    publish(rig, sender, "y" * 200)
    rig.run(5)
    assert queue.messages == 2 - lacking and held(a, "@b") == 0


@pytest.mark.parametrize("way", ["publisher", "transaction", "link"])
def test_what_a_publication_adds_to_a_message_counts_in_the_bound_of_bytes(rig: Rig, way: str) -> None:
    (a, _, _), size = copied_bytes(rig, at="a")
    address = "topic/flights" if way != "link" else "work"
    if way == "link":
        done(rig.client(a), "CREATE", "link", "into", **{"from": "work", "to": "topic/flights"})
    bound_bytes(a, "b", 2 * size - 1)
    client, link = publisher(rig, a, address)
    if way == "transaction":
        assert condition(commit(client, link, "first")) == "amqp:resource-limit-exceeded"
    else:
        publish(rig, (client, link), "y" * 200)
    rig.run(5)
    assert a.queue("@b").bytes_held == size
    turns = a.turns
    rig.run(10)
    assert a.turns - turns < 100, "it waits"
    bound_bytes(a, "b", 2 * size + MORE_BYTES)
    if way == "transaction":
        assert isinstance(commit(client, link, "second"), Accepted)
    a.queue("topic/flights").touch()
    rig.run(5)
    assert held(a, "@b") == 2


@pytest.mark.parametrize("names", ["bc", "cb"])
def test_copies_for_several_relays_are_as_large_as_the_longest_name_makes_one(rig: Rig, names: str) -> None:
    """All carry the publication's name, which has the name of one of the relays, whichever comes first."""
    far = "cb".index(names[0])
    first, second = (name * (60 if at == far else 1) for at, name in enumerate("bc"))
    a = network(rig, f"a-{first}", f"a-{second}")[0]
    rig.run(3)
    relay(rig, f"a>{first}", f"a>{second}")
    for name in (first, second):
        rig.nodes[name].crash()
    publish(rig, publisher(rig, a), "x" * 200)
    for name in (first, second):
        size = a.queue(f"@{name}").bytes_held
        bound_bytes(a, name, 2 * size - 1)
    publish(rig, publisher(rig, a), "y" * 200)
    rig.run(5)
    assert [held(a, f"@{name}") for name in (first, second)] == [1, 1]


def commit(client: Client, link: Sender, name: str) -> Any:
    """Publishes in a transaction, by a coordinator of that name, what `publish` does without one; the outcome."""
    controller = Controller(client, name)
    txn_id = controller.begin()
    body = "y" * 200
    controller.send(
        txn_id, link, body, properties=Properties(subject=body), header=Header(durable=True),
        application_properties={"length": len(body)},
    )  # fmt: skip
    return controller.commit(txn_id)


@pytest.mark.parametrize("kind", ["messages", "bytes"])
def test_a_transaction_waits_for_room_for_all_its_copies(rig: Rig, kind: str) -> None:
    (a, b, c), size = copied_bytes(rig, at="b")
    if kind == "messages":
        bound(b, "c")
    else:
        bound_bytes(b, "c", 3 * size + MORE_BYTES)
    client, link = publisher(rig, a)
    publish(rig, (client, link), "z" * 200)  # of three places one is left
    rig.run(2)
    assert isinstance(publish_all(rig, client, link, "uv"), Accepted)
    assert held(b, "@c") == 2 and held(b, "$waiting") == 2
    turns = b.turns
    rig.run(10)
    assert b.turns - turns < 100
    c.start()
    rig.run(30)
    assert held(b, "@c") == held(b, "$waiting") == 0 and held(b, "topic/flights") == 4


def test_a_transaction_is_refused_where_it_is_published_without_room_for_all_its_copies(rig: Rig) -> None:
    (a, _, _), _ = copied_bytes(rig, at="a")
    bound(a, "b")
    client, link = publisher(rig, a)
    publish(rig, (client, link), "z" * 200)  # of three places one is left
    assert condition(publish_all(rig, client, link, "uv")) == "amqp:resource-limit-exceeded"
    assert held(a, "@b") == 2
    assert isinstance(publish_all(rig, client, link, "w"), Accepted) and held(a, "@b") == 3


def publish_all(rig: Rig, client: Client, link: Sender, letters: str) -> Any:
    """Publishes a message of each of these letters in one transaction; the outcome."""
    controller = Controller(client, letters)
    txn_id = controller.begin()
    for letter in letters:
        body = letter * 200
        controller.send(
            txn_id, link, body, properties=Properties(subject=body), header=Header(durable=True),
            application_properties={"length": len(body)},
        )  # fmt: skip
    outcome = controller.commit(txn_id)
    rig.run(5)
    return outcome


def test_a_transaction_of_more_copies_than_the_queue_takes_waits_for_room_for_one(rig: Rig) -> None:
    """They never have room together."""
    (a, b, c), _ = copied_bytes(rig, at="b")
    bound(b, "c")
    client, link = publisher(rig, a)
    for letter in "yz":
        publish(rig, (client, link), letter * 200)
    rig.run(2)
    assert isinstance(publish_all(rig, client, link, "tuvwx"), Accepted)
    assert held(b, "@c") == 3 and held(b, "$waiting") == 5
    queue = b.queue("@c")
    queue.config = replace(queue.config, messages_max=4)
    queue.touch()
    rig.run(5)
    assert held(b, "@c") == 8 and held(b, "$waiting") == 0
    c.start()
    rig.run(10)
    assert held(b, "@c") == 0 and held(b, "topic/flights") == 8
