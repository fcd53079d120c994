"""The file of a store is removed under a node: nothing is accepted any more, what is there goes on leaving."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.engine import events
from holdfast.links.disk import LOOK_S
from support.hops import STRICT, names, send
from support.rig import Client, Node, Rig
from support.routing import agree, network, path

GONE = "/data/data.mdb was removed or moved"


def disk(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.manage("STATUS", "node")[1]["disk"]
    return found


def take_away(node: Node) -> None:
    node.store.on_disk, node.store.missing = True, GONE


def put_back(node: Node) -> None:
    node.store.missing = None


def logged(node: Node, text: str) -> int:
    return sum(text in line for line in node.logs)


def test_nothing_is_accepted_what_is_there_leaves_and_the_file_put_back_ends_it() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client, other = rig.client(hub), rig.client(hub)
    link = client.sender("work")
    rig.settle()
    for name in names(1, 3):
        client.send(link, name)
    rig.settle()
    take_away(hub)
    rig.run(LOOK_S + 0.1)
    assert logged(hub, f"the store's file is gone: {GONE}") == 1 and link.credit == 0
    told = disk(other)
    assert (told["state"], told["reason"]) == ("gone", GONE)
    assert any("the store's file is gone" in line for line in other.manage("STATUS", "node")[1]["warnings"])
    client.outcomes.clear()
    late = other.sender("else")
    rig.settle()
    assert late.attached and late.credit == 0
    reader = other.receiver("work")
    rig.settle()
    assert other.accept(link=reader) == names(1, 3)
    rig.run(5)
    assert hub.bodies("work") == [] and hub.queue("work").messages == 0
    assert other.manage("CREATE", "queue", "new")[0] == 503
    rig.run(20)
    assert logged(hub, "the store's file is gone") == 2  # the ERROR, and the WARNING of a condition that lasts
    put_back(hub)
    rig.run(LOOK_S + 0.1)
    assert disk(other)["state"] == "ok" and link.credit > 0 and late.credit > 0
    assert logged(hub, "the store's file is back") == 1
    client.send(link, "4")
    rig.settle()
    assert client.outcomes == [("4", Accepted())]


def test_a_commit_notices_before_it_is_looked_for() -> None:
    """What was in the commit is rejected, what comes behind it waits: none is accepted."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    take_away(hub)
    client.send(link, "1")
    rig.settle()
    ((_, outcome),) = client.outcomes
    assert isinstance(outcome, Rejected) and "removed" in outcome.error.description
    assert logged(hub, "the store's file is gone") == 1 and not logged(hub, "the disk is full") and link.credit == 0


def test_neighbours_are_told_and_keep_their_messages_and_get_ours() -> None:
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(2)
    send(rig, hub, "out", to="jfk")
    take_away(hub)
    rig.run(LOOK_S + 1)
    assert logged(jfk, "neighbour hub: the file of its store is gone, and it takes nothing") == 1
    send(rig, jfk, *names(1, 3), to="hub")
    rig.run(10)
    assert hub.bodies("work") == [] and jfk.queue("@hub").messages == 3
    assert jfk.bodies("work") == ["out"] and hub.queue("@jfk").messages == 0
    put_back(hub)
    rig.run(LOOK_S + 5)
    assert hub.bodies("work") == names(1, 3) and jfk.queue("@hub").messages == 0


def test_no_way_leads_through_it() -> None:
    rig = Rig()
    a, b, *_ = nodes = network(rig, "a-b", "b-d", "a-c", "c-d", supers=("a",), costs={"a-c": 2.0}, d=STRICT)
    rig.run(3)
    assert path(a, "d") == "abd"
    take_away(b)
    rig.run(LOOK_S + 5)
    assert path(a, "d") == "acd" and agree(*nodes)
    put_back(b)
    rig.run(LOOK_S + 10)
    assert path(a, "d") == "abd" and agree(*nodes)


def test_a_stall_and_a_missing_file_end_each_by_itself() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client, other = rig.client(hub), rig.client(hub)
    link = client.sender("work")
    rig.settle()
    hub.hold_commits = True
    client.send(link, "1")
    rig.run(6)
    assert disk(other)["state"] == "stalled"
    take_away(hub)
    rig.run(LOOK_S + 0.1)
    assert disk(other)["state"] == "gone"
    hub.hold_commits = False
    rig.settle()
    assert disk(other)["state"] == "gone" and link.credit == 0
    put_back(hub)
    rig.run(LOOK_S + 0.1)
    assert disk(other)["state"] == "ok" and link.credit > 0


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_store_without_a_file_is_not_looked_after(on_disk: bool) -> None:
    rig = Rig()
    hub = rig.node("hub")
    hub.store.on_disk = on_disk
    rig.settle()
    hub.handle(events.TimerFired())
    rig.settle()
    assert (hub.core.disk.next_deadline() is not None) == on_disk
