"""Messages that are fetched from brokers that are no nodes (endpoints/remotes/fetching.py)."""

from collections import deque

import pytest

from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Rejected, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.links.large_receives import LargeReceives
from holdfast.settings.hosts import UserConfig
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker
from support.one_node import done, fill
from support.plain_party import bodies, payload
from support.remotes import only, world
from support.rig import Node, Rig


def fetches(target: str, source: str = "theirs") -> RemoteConfig:
    return RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch(source, target),))


def offering(*texts: str) -> PlainBroker:
    return PlainBroker(offers={"theirs": deque(payload(text) for text in texts)})


def test_what_is_fetched_is_accepted_once_it_is_on_disk() -> None:
    rig, node, _, broker = world(fetches("work"), offering("1", "2"))
    node.hold_commits = True
    rig.run(1)
    assert not broker.fetched and not broker.offers["theirs"]
    node.hold_commits = False
    rig.run(1)
    assert bodies(broker.fetched) == ["1", "2"] and node.bodies("work") == ["1", "2"]
    assert only(node)["messages_in"] == 2


def test_what_was_not_accepted_when_the_connection_ended_is_fetched_again() -> None:
    rig, node, _, broker = world(fetches("work"), offering("1", "2"))
    node.hold_commits = True
    rig.run(1)
    node.crash()
    node.hold_commits = False
    node.start()
    rig.run(6)
    assert bodies(broker.fetched) == ["1", "2"] and node.bodies("work") == ["1", "2"]


def test_a_topic_may_be_the_target() -> None:
    rig, _, client, broker = world(fetches("topic/flights/delayed"), offering())
    link = client.receiver("topic/flights/delayed")
    rig.run(1)
    broker.offers["theirs"].append(payload("1"))
    rig.plain["mq"].connection.offer()
    rig.run(1)
    assert client.bodies(link) == ["1"]


def test_annotations_of_nodes_are_not_believed() -> None:
    notes = {Symbol("x-opt-holdfast-publication"): ["store", 1], Symbol("x-opt-mine"): 1}
    broker = PlainBroker(offers={"theirs": deque([payload("1", message_annotations=notes)])})
    rig, _, client, _ = world(fetches("work"), broker)
    rig.run(1)
    link = client.receiver("work")
    rig.settle()
    (message,) = client.messages(link)
    assert message.message_annotations is not None
    assert Symbol("x-opt-holdfast-publication") not in message.message_annotations
    assert message.message_annotations[Symbol("x-opt-mine")] == 1


def test_a_full_queue_that_blocks_gives_no_credit() -> None:
    full = QueueConfig(name="work", messages_max=2)
    rig, _, client, broker = world(fetches("work"), offering("1", "2", "3"), queues=(full,))
    rig.run(5)
    assert bodies(broker.fetched) == ["1", "2"] and not broker.not_taken
    link = client.receiver("work")
    rig.settle()
    client.accept(link=link)
    rig.run(2)
    assert bodies(broker.fetched) == ["1", "2", "3"]


def test_what_finds_no_room_stays_at_the_remote() -> None:
    full = QueueConfig(name="work", messages_max=2, when_full="refuse")
    rig, node, client, broker = world(fetches("work"), offering("1", "2", "3"), queues=(full,))
    rig.run(0.5)
    assert bodies(broker.fetched) == ["1", "2"]
    assert {type(outcome) for _, outcome in broker.not_taken} == {Released}
    assert len(broker.not_taken) == 1, "and it rests before it asks again"
    assert only(node)["waiting"] == ["theirs to work: there is no room here for what it sends"]
    link = client.receiver("work")
    rig.settle()
    client.accept(link=link)
    rig.run(2)
    assert bodies(broker.fetched) == ["1", "2", "3"]


def test_a_commit_that_is_refused_releases_what_it_had() -> None:
    rig, node, _, broker = world(fetches("work"), offering("1"))
    node.refuse = 1
    rig.run(10)
    assert bodies(broker.fetched) == ["1"] and node.bodies("work") == ["1"]
    assert all(isinstance(outcome, Released) for _, outcome in broker.not_taken)


def test_what_is_no_message_is_rejected() -> None:
    broker = PlainBroker(offers={"theirs": deque([b"\0\x53\x99nonsense", payload("2")])})
    rig, node, _, _ = world(fetches("work"), broker)
    rig.run(1)
    assert [type(outcome) for _, outcome in broker.not_taken] == [Rejected] and node.bodies("work") == ["2"]


def test_access_rules_decide_what_a_remote_publishes() -> None:
    users = (UserConfig(name="root", password="one"),)
    rules = [AccessRule(name="root", users=("root",), addresses=("*",), allow=("administer",))]
    rig, node, _, broker = world(
        fetches("work"), offering("1"), queues=(QueueConfig(name="work"),), users=users,
        access=AccessConfig(rules=tuple(rules)),
    )  # fmt: skip
    rig.run(3)
    assert not broker.fetched
    (why,) = only(node)["waiting"]
    assert why.startswith("theirs to work: no permission to send there")
    granted = AccessRule(name="mq", users=("mq",), addresses=("work",), allow=("send",))
    rig, node, _, broker = world(
        fetches("work"), offering("1"), queues=(QueueConfig(name="work"),), users=users,
        access=AccessConfig(rules=(*rules, granted)),
    )  # fmt: skip
    rig.run(3)
    assert bodies(broker.fetched) == ["1"]


def test_a_queue_that_is_missing_is_waited_for() -> None:
    rig, node, client, broker = world(fetches("work"), offering("1"), create_queues=False)
    rig.run(2)
    assert only(node)["waiting"] == ["theirs to work: no queue 'work' at 'hub'"] and not broker.fetched
    done(client, "CREATE", "queue", "work")
    rig.run(4)
    assert bodies(broker.fetched) == ["1"]


def test_a_fetched_message_may_go_on_to_the_remote() -> None:
    rig, _, _, broker = world(fetches("back@mq"), offering("1", "2"))
    rig.run(2)
    assert bodies(broker.came["back"]) == ["1", "2"]
    assert Message.decode(broker.came["back"][0]).message_annotations is None


def test_a_large_message_is_fetched_in_parts() -> None:
    rig, node, _, broker = world(fetches("work"), offering("x" * 3_000_000))
    rig.run(3)
    assert node.bodies("work") == ["x" * 3_000_000] and len(broker.fetched) == 1


def lost(node: Node) -> list[str]:
    """What its log says of settled messages."""
    said = "settled messages that waited for room are lost with the link: "
    return [line.partition(said)[2] for line in node.logs if said in line]


def test_messages_that_came_settled_are_counted_once_they_are_taken() -> None:
    """Also one of which the target has no room at first; not one that is malformed."""
    broker = offering("1", "2", "3", "4")
    broker.settles = True
    rig, node, client, _ = world(fetches("full"), broker, queues=(QueueConfig(name="full", messages_max=3),))
    rig.run(1)
    assert node.bodies("full") == ["1", "2", "3"] and only(node)["messages_in"] == 3
    done(client, "PURGE", "queue", "full")
    rig.run(70)
    assert only(node)["messages_in"] == 4
    broker.offers["theirs"].extend([payload("5"), b"no message"])
    rig.plain["mq"].connection.offer()
    rig.run(70)
    assert only(node)["messages_in"] == 5


def refusing(*texts: str) -> tuple[Rig, Node, PlainBroker]:
    """Messages that are for a queue that has room for one and refuses others; each second one is settled."""
    broker = offering(*texts)
    broker.settles = True
    full = QueueConfig(name="full", messages_max=1, when_full="refuse")
    rig, node, _, _ = world(fetches("full"), broker, queues=(full,))
    rig.run(1)
    assert node.bodies("full") == ["1"] and not broker.offers["theirs"]
    return rig, node, broker


@pytest.mark.parametrize("size", [1, 3_000_000])
def test_a_message_that_came_settled_waits_here_though_its_queue_refuses_what_has_no_room(size: int) -> None:
    """The remote does not send it again. It counts once it is taken."""
    rig, node, _ = refusing("1", "2".ljust(size))
    assert only(node)["messages_in"] == 1
    assert only(node)["waiting"] == ["theirs to full: there is no room here for what it sends"]
    done(rig.client(node), "PURGE", "queue", "full")
    rig.run(5)
    assert node.bodies("full") == ["2".ljust(size)] and only(node)["messages_in"] == 2 and only(node)["waiting"] == []


def test_messages_behind_one_that_came_settled_and_found_no_room_are_not_asked_for() -> None:
    rig, node, broker = refusing("1", "2")
    broker.offers["theirs"].extend(map(payload, "34"))
    rig.plain["mq"].connection.offer()
    rig.settle()
    assert bodies(broker.offers["theirs"]) == ["3", "4"]
    rig.plain["mq"].cut()
    rig.settle()
    assert lost(node) == ["1; their sender should not settle them"]


def test_a_message_that_came_settled_and_is_malformed_is_not_lost_without_a_word() -> None:
    broker = PlainBroker(offers={"theirs": deque([payload("1"), b"no message"])}, settles=True)
    rig, node, _, _ = world(fetches("work"), broker)
    rig.run(1)
    assert node.bodies("work") == ["1"] and only(node)["messages_in"] == 1
    (line,) = [line for line in node.logs if "a settled message is lost: " in line]
    assert line.endswith("; the remote should not settle it")


def test_a_large_message_that_came_settled_beside_too_many_others_is_not_lost_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LargeReceives, "may_begin", lambda self, peer: False)
    broker = offering("1", "x" * 3_000_000)
    broker.settles = True
    rig, node, _, _ = world(fetches("work"), broker)
    rig.run(0.5)
    (line,) = [line for line in node.logs if "a settled message is lost: " in line]
    assert "large messages are under way here" in line and only(node)["messages_in"] == 1
    assert only(node)["waiting"] == ["theirs to work: there is no room here for what it sends"]


@pytest.mark.parametrize("how", ["the link is detached", "the connection is lost", "removed", "drained", "stopped"])
def test_settled_messages_that_wait_for_room_are_not_lost_without_a_word(how: str) -> None:
    """The remote was asked for unsettled ones, and does not send these again."""
    broker = offering()
    broker.settles = True
    rig, node, client, _ = world(fetches("full"), broker, queues=(QueueConfig(name="full", messages_max=2),))
    rig.run(1)
    connection, core = rig.plain["mq"].connection, node.core
    fill(rig, client, 2, "full")
    broker.offers["theirs"].extend(map(payload, "34"))
    connection.offer()
    rig.settle()
    assert node.bodies("full") == ["1", "2"] and not broker.offers["theirs"] and core is not None
    if how == "the link is detached":
        connection.links[0].detach()
    elif how == "the connection is lost":
        rig.plain["mq"].cut()
    elif how == "removed":
        core.remotes.configure(())
    elif how == "drained":
        done(client, "DRAIN", "node", "")
    else:
        node.handle(events.Stopping())
    rig.run(1)
    assert lost(node) == ["1; their sender should not settle them"]


def test_a_client_s_settled_messages_that_wait_for_room_are_not_lost_without_a_word() -> None:
    rig, node, client, _ = world(queues=(QueueConfig(name="full", messages_max=2),))
    link = client.sender("full")
    rig.settle()
    fill(rig, rig.client(node), 2, "full")
    for body in "34":
        link.send(payload(body), context=None, settled=True)
    client.flush()
    rig.settle()
    assert lost(node) == []
    client.close_transport()
    rig.settle()
    assert lost(node) == ["2; their sender should not settle them"]
