"""Topics over nodes: a message that is published at one reaches each subscription at the others that wants it, once
(docs/federation.md, docs/adr/0082)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.wire.extensions import CONFIRM
from holdfast.amqp.wire.performatives import Accepted, Header, Properties
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries import entry, packed
from holdfast.errors import ConfigError
from holdfast.federation.confirming import Answer
from holdfast.federation.settings import Entry
from holdfast.node.config import load_settings
from holdfast.pacing.settings import PacingConfig
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.hosts import VhostConfig
from holdfast.storage.memory import MemoryStore
from support.federated import DURABLE, confirmation, federate, publish, publisher, sent_to, subscribe
from support.rig import Node, Rig
from support.routing import network
from support.streams import LARGE, LIMITS
from support.transactions import Controller


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def line(rig: Rig) -> list[Node]:
    nodes = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    return nodes


def test_each_subscription_of_other_nodes_gets_what_it_wants_once(rig: Rig, line: list[Node]) -> None:
    a, b, c = line
    durable, _ = subscribe(rig, c, "delayed.#", name="d", source=DURABLE)
    listener, _ = subscribe(rig, c, "*.jfk")
    near, _ = subscribe(rig, b, "cancelled.#")
    own, _ = subscribe(rig, a)
    sender = publisher(rig, a)
    publish(rig, sender, "delayed.jfk", "delayed.ewr", "on-time.jfk", "cancelled.ewr", "none")
    assert durable.bodies() == ["delayed.jfk", "delayed.ewr"]
    assert listener.bodies() == ["delayed.jfk", "on-time.jfk"]
    assert near.bodies() == ["cancelled.ewr"]
    assert own.bodies() == ["delayed.jfk", "delayed.ewr", "on-time.jfk", "cancelled.ewr", "none"]
    assert [state for _, state in sender[0].outcomes] == [Accepted()] * 5
    assert (sent_to(a, "c"), sent_to(a, "b")) == (3, 1), "a node is sent what somebody there wants, once"
    assert (sent_to(b, "a"), sent_to(b, "c"), sent_to(c, "a")) == (0, 0, 0), "nobody on the way or at the end chooses"


def test_a_message_that_is_on_its_way_survives_a_crash_of_each_node(rig: Rig, line: list[Node]) -> None:
    a, b, c = line
    subscribe(rig, c, name="d", source=DURABLE)
    c.crash()
    sender = publisher(rig, a)
    publish(rig, sender, *(f"n.{number}" for number in range(20)))
    assert len(sender[0].outcomes) == 20
    for node in (b, a):
        node.crash()
        node.start()
    c.start()
    rig.run(10)
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    rig.run(5)
    assert client.bodies() == [f"n.{number}" for number in range(20)]


def test_a_selector_that_travels_spares_the_line(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    client, _ = subscribe(rig, c, "a.#", selector="length > 3")
    publish(rig, publisher(rig, a), "a.b", "a.bc", "b.cd")
    assert client.bodies() == ["a.bc"] and sent_to(a, "c") == 1


def test_what_only_the_end_can_know_is_sent_there(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    client, _ = subscribe(rig, c, selector="length > 3 AND '" + "x" * 1_100 + "' <> 'y'")
    publish(rig, publisher(rig, a), "a.b", "a.bc")
    assert client.bodies() == ["a.bc"] and sent_to(a, "c") == 2


def test_a_subject_that_an_address_gave_counts_at_other_nodes(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    client, _ = subscribe(rig, c, "a.b")
    sender = publisher(rig, a, "topic/flights/a.b")
    sender[0].send(sender[1], "one", header=Header(durable=True))
    rig.run(1)
    assert client.bodies() == ["one"]


def test_what_nobody_wants_any_more_is_not_sent(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    sender = publisher(rig, a)
    _, link = subscribe(rig, c, "a")
    publish(rig, sender, "a")
    link.detach(closed=True)
    rig.run(1)
    publish(rig, sender, "a")
    assert sent_to(a, "c") == 1
    durable, link = subscribe(rig, c, "a", name="d", source=DURABLE)
    link.detach(closed=False)
    rig.run(1)
    publish(rig, sender, "a")
    assert sent_to(a, "c") == 2, "a durable subscription wants what comes while nobody reads it"
    status, _, text = durable.manage("DELETE", "subscription", "d", queue="topic/flights")
    assert status in (200, 204), text
    rig.run(1)
    publish(rig, sender, "a")
    assert sent_to(a, "c") == 2


def test_a_subscription_that_becomes_another_is_never_without_either(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    subscribe(rig, c, "a", name="d", source=DURABLE)
    subscribe(rig, c, "b", name="d", source=DURABLE)
    publish(rig, publisher(rig, a), "a", "b")
    assert sent_to(a, "c") == 1


def test_a_restart_withdraws_nothing_that_is_durable(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    subscribe(rig, c, "a", name="d", source=DURABLE)
    assert a.core is not None and a.core.bindings.choose("flights", "a").branches == ("c",)
    c.crash()
    c.start()
    for _ in range(50):
        assert a.core.bindings.choose("flights", "a").branches == ("c",)
        rig.run(0.1)


def test_a_transaction_s_messages_are_shown_together_at_other_nodes(rig: Rig, line: list[Node]) -> None:
    a, b, c = line
    client, _ = subscribe(rig, c)
    sender, link = publisher(rig, a)
    controller = Controller(sender)
    txn_id = controller.begin()
    for subject in ("a", "b"):
        controller.send(txn_id, link, subject, properties=Properties(subject=subject), header=Header(durable=True))
    rig.run(1)
    assert client.bodies() == [] and sent_to(a, "c") == 0
    b.crash()
    assert controller.commit(txn_id) == Accepted()
    waiting = a.queue("@c").read(0, count_max=10, bytes_max=1_000_000)
    assert [packed.group_of(value) for _, value in waiting] == [entry.Group(0, 2), entry.Group(1, 2)]
    b.start()
    rig.run(10)
    assert client.bodies() == ["a", "b"]
    txn_id = controller.begin()
    controller.send(txn_id, link, "c", header=Header(durable=True))
    controller.abort(txn_id)
    rig.run(1)
    assert client.bodies() == ["a", "b"] and sent_to(a, "c") == 2


def test_a_delayed_message_is_chosen_for_when_it_is_accepted(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    client, _ = subscribe(rig, c, "a")
    sender = publisher(rig, a)
    sender[0].send(
        sender[1], "a", properties=Properties(subject="a"), header=Header(durable=True),
        message_annotations={Symbol("x-opt-delivery-delay"): Ulong(5_000)},
    )  # fmt: skip
    rig.run(3)
    assert client.bodies() == [] and sent_to(a, "c") == 1
    rig.run(5)
    assert client.bodies() == ["a"]


def test_a_refused_commit_shows_nothing_to_anybody(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    far, _ = subscribe(rig, c)
    near, _ = subscribe(rig, a)
    sender = publisher(rig, a)
    a.refuse = 1
    publish(rig, sender, "a")
    assert far.bodies() == near.bodies() == [] and not isinstance(sender[0].outcomes[0][1], Accepted)
    rig.run(5)
    publish(rig, sender, "b")
    assert far.bodies() == near.bodies() == ["b"]


def test_a_confirmed_receiver_hears_who_sends_what_it_wants(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    _, link = subscribe(rig, c, "a", properties={Symbol("holdfast:confirm"): Ulong(5_000)})
    rig.run(2)
    assert link.attached and confirmation(link) == (["a", "b"], [])
    publish(rig, publisher(rig, a), "a")
    assert sent_to(a, "c") == 1


def test_who_is_not_there_is_waited_for_as_long_as_was_asked(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    a.hold_commits = True  # its disk does not answer: it has not stored what is wanted
    _, link = subscribe(rig, c, "b", properties={Symbol("holdfast:confirm"): Ulong(4_000)})
    rig.run(2)
    assert not link.attached
    rig.run(3)
    assert link.attached and confirmation(link) == (["b"], ["a"])


def test_a_receiver_that_leaves_before_it_is_confirmed_leaves_nothing(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    a.hold_commits = True
    client, _ = subscribe(rig, c, "b", properties={Symbol("holdfast:confirm"): Ulong(60_000)})
    other, link = subscribe(rig, c, "c", properties={Symbol("holdfast:confirm"): Ulong(3_000)})
    assert c.core is not None and len(c.core.topic_bindings.waiting) == 2
    client.close_transport()
    link.detach(closed=True)
    rig.run(5)
    assert not c.core.topic_bindings.waiting and not other.closed
    federation = c.core.bindings.federation
    assert federation is not None and not federation.confirming.binds


def test_a_confirmation_of_what_no_other_node_has_comes_at_once(rig: Rig) -> None:
    (alone,) = rig.graph("x-y")[:1]
    _, link = subscribe(rig, alone, properties={Symbol("holdfast:confirm"): Ulong(60_000)})
    assert confirmation(link) == ([], [])


def test_a_durable_receiver_that_may_be_resumed_is_confirmed_too(rig: Rig, line: list[Node]) -> None:
    _, _, c = line
    source = DURABLE | {"timeout": 60}
    _, link = subscribe(rig, c, name="d", source=source, properties={Symbol("holdfast:confirm"): Ulong(60_000)})
    rig.run(2)
    assert confirmation(link) == (["a", "b"], [])


@pytest.mark.parametrize("value", ["soon", -1, 600_001, True])
def test_an_invalid_wait_is_refused(rig: Rig, value: Any) -> None:
    node = rig.node("x")
    client, _ = subscribe(rig, node, properties={Symbol("holdfast:confirm"): value})
    assert client.detached[0].error is not None
    assert str(client.detached[0].error.description).startswith("invalid value") and not client.over


def test_a_full_transmission_queue_holds_back_its_publishers(rig: Rig, line: list[Node]) -> None:
    a, b, c = line
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    assert a.core is not None
    queue = a.core.catalog.transmission("c")
    queue.config = replace(queue.config, messages_max=2, when_full="block")
    b.crash()
    sender = publisher(rig, a)
    publish(rig, sender, "1", "2", "3", "4")
    assert len(sender[0].outcomes) == 2
    b.start()
    rig.run(20)
    assert client.bodies() == ["1", "2", "3", "4"] and len(sender[0].outcomes) == 4


def test_copies_leave_the_room_for_higher_priorities_that_their_queue_keeps(rig: Rig) -> None:
    """It opens to them when none has come for long, and their publisher goes on then."""
    pacing = PacingConfig(
        roots=("c",), capacity_bytes=2_000, when_full="block", room_low=0.5, room_normal=0.5, room_quiet_s=25.0
    )
    a, b, c = network(rig, "a-b", "b-c", a={"pacing": pacing})
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    subscribe(rig, c, name="d", source=DURABLE)
    b.crash()
    usual, urgent = publisher(rig, a), publisher(rig, a)
    for number in range(10):
        publish(rig, usual, f"usual.{number}".ljust(200, "x"))
    half = len(usual[0].outcomes)
    assert a.queue("@c").bytes_held <= 1_000 and half < 10
    publish(rig, urgent, "urgent".ljust(200, "x"), priority=9)
    assert len(urgent[0].outcomes) == 1
    rig.run(5)
    assert len(usual[0].outcomes) == half
    rig.run(25)
    assert len(usual[0].outcomes) > half
    assert a.queue("@c").bytes_held <= 2_000


def test_a_large_message_goes_to_who_may_want_it(rig: Rig) -> None:
    limits = {name: {"limits": LIMITS} for name in ("a", "b", "c")}
    a, _, c = network(rig, "a-b", "b-c", **limits)
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    client, _ = subscribe(rig, c, "big", name="d", source=DURABLE)
    other, _ = subscribe(rig, c, "small", name="e", source=DURABLE)
    sender, link = publisher(rig, a)
    sender.send(link, "x" * LARGE, properties=Properties(subject="big"), header=Header(durable=True))
    rig.run(10)
    assert [len(body) for body in client.bodies()] == [LARGE] and other.bodies() == []


def test_what_a_link_between_queues_brings_to_a_topic_is_spread(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    client, _ = subscribe(rig, c)
    assert a.core is not None
    by_hand = rig.client(a)
    status, _, text = by_hand.manage("CREATE", "link", "l", **{"from": "work", "to": "topic/flights"})
    assert status == 201, text
    sender = publisher(rig, a, "work")
    publish(rig, sender, "a")
    rig.run(2)
    assert client.bodies() == ["a"]


def test_a_restarted_node_that_reaches_nobody_sends_by_what_it_stored(rig: Rig, line: list[Node]) -> None:
    a, b, c = line
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    b.crash()
    a.crash()
    a.start()
    publish(rig, publisher(rig, a), "a")
    assert sent_to(a, "c") == 1
    b.start()
    rig.run(10)
    assert client.bodies() == ["a"]


def test_so_does_one_without_a_topology_file_which_knows_its_neighbours_alone(rig: Rig) -> None:
    a, b, c = rig.graph("a-b", "b-c")
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(5)
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    b.crash()
    a.crash()
    a.start()
    publish(rig, publisher(rig, a), "a")
    assert sent_to(a, "c") == 1
    b.start()
    rig.run(20)
    assert client.bodies() == ["a"]


def test_an_answer_that_names_many_nodes_fits_a_small_frame(rig: Rig, line: list[Node]) -> None:
    a, _, c = line
    a.hold_commits = True
    client = rig.client(c, max_frame_size=512)
    link = client.receiver("topic/flights/b", properties={Symbol("holdfast:confirm"): Ulong(60_000)})
    rig.run(1)
    assert c.core is not None and not link.attached
    names = tuple(f"node-{number:03}" for number in range(300))
    (token,) = c.core.topic_bindings.waiting
    c.core.bindings.answered(Answer(token, "flights", names, names, complete=False))
    rig.run(1)
    assert link.attached
    for told in confirmation(link):
        assert 0 < len(told) < 20 and tuple(told) == names[: len(told)]


def test_a_node_with_an_empty_store_learns_what_others_want_before_it_takes_messages(rig: Rig) -> None:
    entries = {"a": ("b",), "b": ("a", "c"), "c": ("b",)}
    routing = RoutingConfig(registration_s=60.0)
    made: dict[str, dict[str, Any]] = {
        name: {"federation": tuple(Entry("flights", end) for end in ends), "routing": routing}
        for name, ends in entries.items()
    }
    a, _, c = network(rig, "a-b", "b-c", **made)
    rig.run(3)
    client, _ = subscribe(rig, c, name="d", source=DURABLE)
    a.crash()
    a.store = MemoryStore(mint_from=rig.uuid)
    rig.refuse_dials = True
    a.start()
    sender = rig.client(a)
    link = sender.sender("topic/flights")
    rig.settle()
    sender.send(link, "a", properties=Properties(subject="a"), header=Header(durable=True))
    rig.run(3)
    rig.refuse_dials = False
    rig.run(40)
    assert sender.outcomes and client.bodies() == ["a"]


def test_it_waits_for_those_that_are_away_no_longer_than_at_any_start(rig: Rig) -> None:
    a, b = network(rig, "a-b", a={"federation": (Entry("flights", "b"),)})
    b.crash()
    a.crash()
    a.store = MemoryStore(mint_from=rig.uuid)
    a.start()
    sender = publisher(rig, a)
    began = rig.now
    publish(rig, sender, "a")
    while not sender[0].outcomes:
        rig.run(0.1)
    assert rig.now - began < 2.5


def test_a_topic_of_another_virtual_host_stays_at_its_node(rig: Rig) -> None:
    """It may have the name of one that is federated; requests there are refused."""
    hosts = {name: {"vhosts": (VhostConfig(name="bank"),)} for name in "ab"}
    a, b = network(rig, "a-b", **hosts)
    rig.run(3)
    federate(rig, "a-b")
    subscribe(rig, b, name="d", source=DURABLE)
    here, there = (rig.client(node, hostname="vhost:bank") for node in (a, b))
    there.receiver("topic/flights")
    near = here.receiver("topic/flights", properties={CONFIRM: Ulong(60_000)})
    rig.run(1)
    assert confirmation(near) == ([], []), "nobody else is waited for"
    sender = here.sender("topic/flights")
    rig.settle()
    publish(rig, (here, sender), "x")
    rig.run(3)
    assert here.bodies() == ["x"] and there.bodies() == []
    assert sent_to(a, "b") == 0
    status, _, text = here.manage("CREATE", "federation", "flights@b")
    assert status == 403 and "topics of virtual hosts are not federated" in text


def test_an_entry_of_the_file_names_no_virtual_host(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[[federation]]\ntopic = 'flights'\nneighbour = 'b'\nvhost = 'bank'\n")
    with pytest.raises(ConfigError, match="unknown key 'vhost' in federation 'flights'; expected one of topic"):
        load_settings(path)
