"""Remotes as an operator has them: status, warnings, changes of the configuration, queues; and what a hostile remote
can do."""

from dataclasses import replace
from typing import Any

import pytest

from core.test_reloading import lines, read
from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.wire.performatives import Accepted, Detach, Properties, Source, Target
from holdfast.errors import ConfigError
from holdfast.federation.settings import Entry
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.settings.remotes import REMOTES_MAX, Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker
from support.federated import publisher
from support.one_node import done, fill
from support.plain_party import bodies, payload
from support.remotes import REMOTE, only, world
from support.rig import Rig
from support.transactions import Controller


def test_status_tells_of_each_remote() -> None:
    rig, node, client, _ = world()
    fill(rig, client, 3, "flights@mq")
    rig.run(1)
    assert only(node) == {
        "remote": "mq", "address": "127.0.0.1:1", "state": "up", "since_s": 1.0, "reason": "", "attempts": 0, "lost": 0,
        "addresses": 1, "fetches": 0, "messages": 0, "messages_out": 3, "messages_in": 0, "waiting": [],
    }  # fmt: skip
    rig.refuse_dials = True
    rig.plain["mq"].cut()
    rig.run(20)
    row = only(node)
    assert row["state"] in ("idle", "connect") and row["reason"] == "nobody there" and row["lost"] == 1
    assert node.core is not None
    warned = [text for text in node.core.report.status("")["warnings"] if "remote" in text]
    assert warned == ["remote mq: no connection: nobody there; correct its remote or its login, or start it"]


def test_a_node_without_remotes_says_nothing_of_them() -> None:
    rig = Rig()
    node = rig.node("hub")
    assert node.core is not None and "remotes" not in node.core.report.status("")


def test_what_waits_for_a_remote_that_was_removed_is_a_warning_and_can_be_deleted() -> None:
    rig, node, client, _ = world()
    rig.refuse_dials = True
    fill(rig, client, 2, "flights@mq")
    read(node, remotes=())
    assert lines(node) == ["remote 'mq' removed"]
    assert node.core is not None and "remotes" not in node.core.report.status("")
    (warned,) = [text for text in node.core.report.status("")["warnings"] if "flights" in text]
    assert warned.startswith("2 messages wait for 'flights@mq', and there is no such [[remote]]")
    client.close_transport()
    rig.settle()
    client = rig.client(node)
    client.sender("flights@mq")
    rig.settle()
    assert client.detached[-1].error is not None, "the name means a node again, of which nothing is known"
    body = done(client, "DELETE", "queue", "flights@mq")
    assert body["purged"] == 2


def test_remotes_come_change_and_go_while_the_node_runs() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    other = RemoteConfig(name="other", remote="127.0.0.1:2")
    rig.brokers["other"] = PlainBroker()
    changed = RemoteConfig(name="mq", remote="127.0.0.1:1", addresses=(("flights", "renamed"),), messages_max=7)
    link = LinkConfig(name="out", source="out", target="flights@other")
    read(node, remotes=(changed, other), queues=(QueueConfig(name="out"),), links=(link,))
    assert sorted(lines(node)[0].split("; ")) == [
        "link 'out' added", "queue 'out' added", "remote 'mq' changed", "remote 'other' added",
    ]  # fmt: skip
    rig.run(1)
    fill(rig, client, 1, "flights@mq", first=2)
    fill(rig, client, 1, "out", first=3)
    rig.run(1)
    assert bodies(broker.came["flights"]) == ["1"] and bodies(broker.came["renamed"]) == ["2"]
    assert bodies(rig.brokers["other"].came["flights"]) == ["3"]
    assert node.queue("flights@mq").config.messages_max == 7
    read(node, remotes=(other,), queues=(QueueConfig(name="out"),), links=(link,))
    rig.run(1)
    assert [wire for wire in rig.wires if not wire.dead and rig.plain["mq"].end in wire.ends] == []


def test_a_remote_that_becomes_a_neighbour_or_the_reverse_has_bounds_of_its_own() -> None:
    """And its connections do not count for clients without a name."""
    rig, node, _, _ = world()
    rig.run(1)
    for fields, kind in (
        ({"remotes": (), "neighbours": (NeighbourConfig(name="mq"),)}, "neighbour"),
        ({"remotes": (REMOTE,), "neighbours": ()}, "remote"),
    ):
        assert read(node, **fields).accepted and node.core is not None
        rig.run(2)
        assert {name: use.kind for name, use in node.core.users.neighbours.items()} == {"mq": kind}
    assert node.core.users.neighbours["mq"].connections == 1


def test_a_refused_configuration_leaves_the_remotes_as_they_are() -> None:
    rig, node, client, broker = world()
    other = RemoteConfig(name="other", remote="127.0.0.1:2")
    read(node, remotes=(other,), links=(LinkConfig(name="out", source="topic/t", target="flights@other"),))
    assert lines(node)[-1].startswith("nothing has changed")
    fill(rig, client, 1, "flights@mq")
    assert bodies(broker.came["flights"]) == ["1"]


def test_a_queue_for_a_remote_is_deleted_and_made_again() -> None:
    rig, _, client, broker = world(broker=PlainBroker(decide=lambda address, payload: None))
    sender = client.sender("flights@mq")
    rig.settle()
    client.send(sender, "1")
    rig.settle()
    status, _, text = client.manage("DELETE", "queue", "flights@mq")
    assert status == 409 and "has links" in text
    broker.decide = lambda address, payload: Accepted()
    client.send(sender, "2")
    rig.settle()
    assert bodies(broker.came["flights"]) == ["2"], "a refused request changes nothing"
    sender.detach()
    rig.settle()
    done(client, "DELETE", "queue", "flights@mq")
    fill(rig, client, 1, "flights@mq", first=3)
    assert bodies(broker.came["flights"]) == ["2", "3"]


def test_messages_of_another_virtual_host_do_not_go_to_a_remote() -> None:
    rig, _, _, broker = world(vhosts=(VhostConfig(name="acme"),))
    client = rig.client(rig.nodes["hub"], hostname="acme")
    client.sender("flights@mq")
    rig.settle()
    (refused,) = client.detached
    assert refused.error is not None and "do not go to a [[remote]]" in str(refused.error.description)
    assert not broker.came


def test_nobody_receives_from_a_queue_for_a_remote() -> None:
    rig, _, client, _ = world()
    fill(rig, client, 1, "flights@mq")
    client.receiver("flights@mq")
    rig.settle()
    assert client.detached[-1].error is not None


# ------------------------------------------------------------------------------------------------------ topics


@pytest.mark.parametrize(("mode", "patterns", "expected"), [
    ("static", ("delayed.#", "*.jfk"), ["1", "2", "4"]), ("push", (), ["1", "2", "3", "4"]),
])  # fmt: skip
def test_a_topic_goes_to_a_remote_by_a_static_entry(mode: str, patterns: Any, expected: list[str]) -> None:
    """Once, also where several patterns match."""
    rig, _, client, broker = world(federation=(Entry("flights", "mq", mode, patterns),))
    link = client.sender("topic/flights")
    rig.settle()
    for body, subject in (("1", "delayed.jfk"), ("2", "delayed.ewr"), ("3", "on-time.ewr"), ("4", "on-time.jfk")):
        client.send(link, body, properties=Properties(subject=subject))
    rig.run(1)
    assert bodies(broker.came["topic/flights"]) == expected
    (row,) = done(client, "QUERY", "federation", "")["federation"]
    assert row["state"] == "up" and row["neighbour"] == "mq"


def test_a_topic_of_other_nodes_goes_to_a_remote_too() -> None:
    """What is published anywhere reaches the node with the entry, as far as the patterns want it, and goes on."""
    rig = Rig()
    rig.brokers["mq"] = broker = PlainBroker()
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1")
    entries = (Entry("flights", "mq", "static", ("delayed.#",)),)
    far = rig.node("far", neighbours=(to_hub,), federation=(Entry("flights", "hub"),))
    rig.node("hub", neighbours=(NeighbourConfig(name="far"),), remotes=(REMOTE,), federation=entries)
    rig.run(3)
    client, link = publisher(rig, far)
    for body, subject in (("1", "delayed.jfk"), ("2", "on-time.jfk")):
        client.send(link, body, properties=Properties(subject=subject))
    rig.run(3)
    assert bodies(broker.came["topic/flights"]) == ["1"]


def test_a_node_of_the_network_that_has_the_name_of_a_remote_is_a_warning() -> None:
    """Without a topology nobody knows it before."""
    rig = Rig()
    rig.brokers["mq"] = PlainBroker()
    nodes = rig.graph("hub-far", "mq-far", hub={"remotes": (REMOTE,), "federation": (Entry("flights", "far"),)})
    rig.run(5)
    for node in nodes[1:]:
        assert node.core is not None
        node.core.bindings.add(Entry("flights", "far" if node.name == "mq" else "mq"))
    rig.run(20)
    core = nodes[0].core
    assert core is not None
    warned = [text for text in core.report.status("")["warnings"] if "remote mq" in text]
    assert warned == [
        "remote mq: a node of the network has this name, and gets no messages from here; rename the remote or the node"
    ]


def test_dynamic_entries_to_a_remote_are_refused() -> None:
    text = r"invalid mode 'dynamic' in federation of 'flights' over 'mq', a \[\[remote\]\], which has no bindings"
    with pytest.raises(ConfigError, match=text):
        NodeConfig(name="hub", remotes=(REMOTE,), federation=(Entry("flights", "mq"),)).validate()
    _, _, client, _ = world()
    status, _, said = client.manage("CREATE", "federation", "flights@mq")
    assert status == 400 and "expected static with patterns, or push" in said


def test_a_remote_is_not_asked_for_a_topic() -> None:
    entry = Entry("flights", "mq", "push", direction="from")
    with pytest.raises(
        ConfigError, match=r"invalid direction 'from' .* expected 'to', and fetch in the \[\[remote\]\]"
    ):
        NodeConfig(name="hub", remotes=(REMOTE,), federation=(entry,)).validate()


def test_a_transaction_s_messages_for_a_topic_go_to_the_remote_with_its_commit() -> None:
    rig, _, client, broker = world(federation=(Entry("flights", "mq", "push"),))
    link = client.sender("topic/flights")
    controller = Controller(client)
    txn_id = controller.begin()
    for body in "12":
        controller.send(txn_id, link, body)
    rig.run(1)
    assert "topic/flights" not in broker.came
    assert controller.commit(txn_id) == Accepted()
    rig.run(1)
    assert bodies(broker.came["topic/flights"]) == ["1", "2"]
    txn_id = controller.begin()
    controller.send(txn_id, link, "3")
    controller.abort(txn_id)
    rig.run(1)
    assert bodies(broker.came["topic/flights"]) == ["1", "2"]


def test_a_full_queue_for_a_remote_holds_up_what_is_published_to_its_topic() -> None:
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", messages_max=2)
    rig, node, client, _ = world(remote, PlainBroker(decide=lambda address, payload: None))
    done(client, "CREATE", "federation", "flights@mq", mode="push")
    link = client.sender("topic/flights")
    rig.settle()
    for body in "123":
        client.send(link, body)
    rig.run(1)
    assert node.queue("topic/flights@mq").messages == 2 and len(client.outcomes) == 2
    for delivery in [*connection(rig).open]:
        connection(rig).settle(delivery, Accepted())
    rig.run(1)
    assert len(client.outcomes) == 3
    assert bodies([bytes(item.payload) for item in connection(rig).open]) == ["3"]


def test_a_publisher_goes_on_once_no_entry_leads_to_the_full_queue() -> None:
    """Also where nothing else changes by the reload that removes the entry."""
    full, other = replace(REMOTE, messages_max=1), RemoteConfig(name="other", remote="127.0.0.1:2")
    entries = (Entry("flights", "mq", "push"), Entry("flights", "other", "push"))
    rig, node, client, _ = world(full, PlainBroker(decide=lambda address, payload: None))
    rig.brokers["other"] = there = PlainBroker()
    assert read(node, remotes=(full, other), federation=entries).accepted
    link = client.sender("topic/flights")
    rig.run(1)
    for body in "12":
        client.send(link, body)
    rig.run(1)
    assert bodies(there.came["topic/flights"]) == ["1"] and len(client.outcomes) == 1
    assert read(node, remotes=(full, other), federation=entries[1:]).accepted
    assert len(client.outcomes) == 2
    rig.run(1)
    assert bodies(there.came["topic/flights"]) == ["1", "2"]


def test_an_entry_to_a_remote_is_made_by_a_request_and_survives_a_restart() -> None:
    rig, node, client, broker = world()
    done(client, "CREATE", "federation", "flights@mq", mode="push")
    rig.run(1)
    node.crash()
    node.start()
    rig.run(3)
    client = rig.client(node)
    fill(rig, client, 1, "topic/flights")
    rig.run(1)
    assert bodies(broker.came["topic/flights"]) == ["1"]


def test_a_remote_whose_account_lost_a_right_fetches_no_more() -> None:
    root = UserConfig(name="root", password="one")
    allowed = AccessRule(name="root", users=("root",), addresses=("*",), allow=("administer",))
    granted = AccessRule(name="mq", users=("mq",), addresses=("work",), allow=("send",))
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch("theirs", "work"),))
    rig, node, _, broker = world(
        remote, users=(root,), queues=(QueueConfig(name="work"),), access=AccessConfig(rules=(allowed, granted))
    )
    rig.run(1)
    assert only(node)["waiting"] == []
    assert read(node, access=AccessConfig(rules=(allowed,))).accepted
    broker.offers["theirs"].append(payload("1"))
    rig.run(5)
    assert not broker.fetched and only(node)["waiting"][0].startswith("theirs to work: no permission to send there")


# ------------------------------------------------------------------------------------------------------ hostile


def connection(rig: Rig) -> Any:
    return rig.plain["mq"].connection


def test_the_remote_may_attach_nothing() -> None:
    rig, node, client, _ = world()
    fill(rig, client, 1, "flights@mq")
    session = next(iter(connection(rig).amqp.sessions))
    thief = session.attach_receiver("thief", Source(address="work"), Target(address="here"))
    feeder = session.attach_sender("feeder", Source(), Target(address="$management"))
    rig.settle()
    assert thief.detached and feeder.detached and "it has dialled" in str(thief.error)
    fill(rig, client, 1, "flights@mq", first=2)
    assert only(node)["state"] == "up"


def test_a_session_that_the_remote_ends_begins_a_new_connection() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    next(iter(connection(rig).amqp.sessions)).end()
    rig.run(5)
    fill(rig, client, 1, "flights@mq", first=2)
    rig.run(1)
    assert bodies(broker.came["flights"]) == ["1", "2"] and only(node)["lost"] == 1


def test_nonsense_ends_the_connection_alone() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    connection(rig).amqp.write(0, Detach(77))
    rig.run(3)
    fill(rig, client, 1, "flights@mq", first=2)
    assert bodies(broker.came["flights"])[-1] == "2" and only(node)["lost"] == 1
    assert not client.over and node.core is not None and node.core.containment.peers_ended == 0


def test_a_link_that_the_remote_ends_is_attached_again() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    connection(rig).links[0].detach()
    rig.settle()
    assert only(node)["waiting"] == ["flights@mq: its link has ended"]
    fill(rig, client, 1, "flights@mq", first=2)
    rig.run(2)
    assert bodies(broker.came["flights"]) == ["1", "2"]


# ------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(("changes", "text"), [
    ({"server_name": "mq"}, "remote 'mq' has server_name without TLS"),
    ({"hostname": "a b"}, "invalid value 'a b' for remote 'mq' hostname"),
    ({"when_full": "burst"}, "invalid value 'burst' for remote 'mq' when_full"),
    ({"messages_max": 0}, "invalid value 0 for remote 'mq' messages_max"),
    ({"addresses": (("flights", ""),)}, "invalid value '' for remote 'mq' addresses; expected 1 to 1024 bytes"),
    ({"addresses": (("a@b", "there"),)}, "invalid name 'a@b'"),
    ({"fetch": (Fetch("x" * 1_025, "work"),)}, "for remote 'mq' fetch from; expected 1 to 1024 bytes"),
    ({"fetch": (Fetch("a", "work"),) * 2}, "remote 'mq' fetches from 'a' to 'work' twice; list it once"),
    ({"fetch": tuple(Fetch(f"a{number}", "work") for number in range(257))}, "remote 'mq' has 257 fetch"),
])  # fmt: skip
def test_mistakes_in_a_remote_are_named(changes: dict[str, Any], text: str) -> None:
    config = RemoteConfig(**{"name": "mq", "remote": "127.0.0.1:1"} | changes)
    with pytest.raises(ConfigError) as error:
        NodeConfig(name="hub", remotes=(config,)).validate()
    assert text in str(error.value)


def test_a_remote_has_a_name_of_its_own() -> None:
    for fields, whose in (
        ({"remotes": (REMOTE, REMOTE)}, "another [[remote]]"),
        ({"neighbours": (NeighbourConfig(name="mq"),), "remotes": (REMOTE,)}, "a [[neighbour]]"),
        ({"remotes": (RemoteConfig(name="hub", remote="127.0.0.1:1"),)}, "the node itself"),
    ):
        with pytest.raises(ConfigError) as error:
            NodeConfig(name="hub", **fields).validate()  # type: ignore[arg-type]
        assert whose in str(error.value)


def test_the_number_of_remotes_is_bounded() -> None:
    remotes = tuple(RemoteConfig(name=f"mq{number}", remote="127.0.0.1:1") for number in range(REMOTES_MAX + 1))
    NodeConfig(name="hub", remotes=remotes[1:]).validate()
    with pytest.raises(ConfigError, match="there are 65"):
        NodeConfig(name="hub", remotes=remotes).validate()
