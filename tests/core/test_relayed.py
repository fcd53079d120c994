"""Topics passed on by static entries: their targets choose anew, and copies are known by their publication
(docs/federation.md, docs/adr/0082)."""

import pytest

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import RELAY
from holdfast.amqp.wire.performatives import Rejected
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.federation.settings import Entry
from support.federated import DURABLE, federate, publish, publisher, relay, sent_to, subscribe
from support.rig import Rig
from support.routing import network


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
