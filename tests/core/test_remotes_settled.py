"""Links that are to leave while a remote has settled messages on them, or may have (endpoints/remotes/fetching.py)."""

import pytest

from holdfast.endpoints.remotes.link_slots import LOOK_S
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill
from support.plain_party import bodies, payload
from support.remotes import CHANGE_S, few, leaving, only, settling
from support.rig import Node, Rig


def one_full() -> tuple[Rig, Node]:
    """A remote has a settled message for one queue, and two for another that is full; it takes one link at a time."""
    remote, broker = settling("full", "free")
    rig, node, client, _ = few(1, 1, remote, broker, queues=(QueueConfig(name="full", messages_max=2),))
    fill(rig, client, 2, "full")
    broker.offers["full"].extend(map(payload, "34"))
    broker.offers["free"].append(payload("1"))
    rig.plain["mq"].connection.offer()
    return rig, node


def test_settled_messages_that_wait_for_room_keep_their_link() -> None:
    rig, node = one_full()
    rig.run(4 * CHANGE_S)
    done(rig.client(node), "PURGE", "queue", "full")
    rig.run(2 * CHANGE_S)
    assert sorted(node.bodies("full")) == ["3", "4"] and node.bodies("free") == ["1"]


def test_settled_messages_that_find_room_while_their_link_is_to_leave_are_stored_then() -> None:
    rig, node = one_full()
    while not leaving(node):
        rig.run(LOOK_S / 4)
    done(rig.client(node), "PURGE", "queue", "full")
    rig.run(LOOK_S)
    assert "4" in node.bodies("full")


def test_an_unsettled_message_keeps_its_link_though_a_settled_one_waits_behind_it() -> None:
    """It is accepted on that link, and comes once."""
    remote, broker = settling("a", "b")
    rig, node, client, _ = few(1, 1, remote, broker, queues=(QueueConfig(name="a", messages_max=2),))
    fill(rig, client, 1, "a")
    broker.offers["a"].extend(map(payload, "23"))
    node.hold_commits = True
    rig.plain["mq"].connection.offer()
    rig.run(2 * CHANGE_S)
    assert [link.context for link in rig.plain["mq"].connection.links] == ["a"]
    node.hold_commits = False
    rig.run(LOOK_S)
    assert bodies(broker.fetched) == ["2"] and node.bodies("a") == ["1", "2"]


def next_turn(node: Node, rig: Rig) -> str:
    """Runs until a link is to leave its slot; its name."""
    while not leaving(node):
        rig.run(LOOK_S / 4)
    return leaving(node)[0]


@pytest.mark.parametrize("late_s", [LOOK_S / 4, 3 * LOOK_S])
def test_settled_messages_that_are_under_way_when_their_link_is_to_leave_arrive(late_s: float) -> None:
    """The remote sent them before it heard that it is to send no more."""
    remote, broker = settling("a", "b")
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    flush = party.flush
    party.flush = lambda: None  # type: ignore[method-assign]
    broker.offers["a"].extend(map(payload, "1234"))
    broker.offers["b"].append(payload("5"))
    party.connection.offer()
    assert next_turn(node, rig) == "a to a"
    rig.run(late_s)
    party.flush = flush  # type: ignore[method-assign]
    party.flush()
    rig.run(CHANGE_S)
    assert sorted(node.bodies("a")) == ["1", "2", "3", "4"] and node.bodies("b") == ["5"]
    assert not any("lost" in line for line in node.logs)


def test_a_link_keeps_its_slot_at_a_remote_that_settles_messages_and_answers_no_drain() -> None:
    remote, broker = settling("a", "b")
    broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    broker.offers["a"].extend(map(payload, "12"))
    broker.offers["b"].append(payload("3"))
    rig.plain["mq"].connection.offer()
    rig.run(3 * CHANGE_S)
    (text,) = [line for line in only(node)["waiting"] if "a to a" in line]
    assert text == "a to a: it keeps its slot: the remote settles messages, and has not answered the last drain"
    broker.drains = True
    rig.run(3 * CHANGE_S)
    assert sorted(node.bodies("a")) == ["1", "2"] and node.bodies("b") == ["3"]
    assert not any("keeps its slot" in line for line in only(node)["waiting"])


def test_links_take_turns_at_a_remote_that_settles_nothing_and_answers_no_drain() -> None:
    remote, broker = settling("a", "b", "c")
    broker.settles = broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    for name, offers in broker.offers.items():
        offers.append(payload(name))
    rig.plain["mq"].connection.offer()
    rig.run(3 * CHANGE_S)
    assert [node.bodies(name) for name in "abc"] == [["a"], ["b"], ["c"]]


def test_a_link_that_keeps_its_slot_gets_messages_again_though_its_drain_is_answered_later() -> None:
    remote, broker = settling("a", "b")
    broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    broker.offers["a"].extend(map(payload, "12"))
    party.connection.offer()
    next_turn(node, rig)
    while leaving(node):
        rig.run(LOOK_S / 4)
    for link in party.connection.links:
        link.drained()  # type: ignore[union-attr]
    rig.settle()
    broker.offers["a"].extend(map(payload, "34"))
    party.connection.offer()
    rig.settle()
    assert sorted(node.bodies("a")) == ["1", "2", "3", "4"]


def test_settled_messages_that_come_after_their_link_has_ended_are_counted_in_the_log() -> None:
    remote, broker = settling("a", "b")
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    (link,) = party.connection.links
    next_turn(node, rig)
    flush = party.flush
    rig.settle()
    party.flush = lambda: None  # type: ignore[method-assign]
    link.credit = 10
    for body in "123":
        link.send(payload(body), context=payload(body), settled=body != "2")  # type: ignore[union-attr]
    rig.run(2 * LOOK_S)
    party.flush = flush  # type: ignore[method-assign]
    party.flush()
    rig.run(CHANGE_S)
    said = "settled messages that came after this node had ended the link are lost: 2"
    assert any(said in line for line in node.logs)
