"""A store under another name: what was counted for one is nothing to another, and nothing of it is lost (ADR 0025)."""

from typing import Any

import pytest

from holdfast.broker.stored import custody_records
from holdfast.custody.arrival.destination import GRACE_S
from holdfast.settings.queues import QueueConfig
from holdfast.state import own_names
from holdfast.state.catalog import WAITING
from support.hops import STRICT, names, send, snapshot
from support.rig import Node, Rig


def status_of(rig: Rig, node: Node) -> dict[str, Any]:
    return rig.client(node).manage("STATUS", "node")[1]


def world(**fields: Any) -> tuple[Rig, Node, Node, Node, Node]:
    """A far origin, the hub, and the two names that one store will have; xx is down."""
    rig = Rig()
    jfk, hub, x, xx = rig.graph(
        "jfk-hub", "hub-x", "hub-xx", routes={"jfk": {"x": "hub", "xx": "hub"}}, x=fields or STRICT, xx=fields or STRICT
    )
    xx.crash()
    rig.run(2)
    return rig, jfk, hub, x, xx


def move(one: Node, other: Node) -> None:
    """The store of `one` is that of `other` from now on."""
    one.crash()
    other.store = one.store
    other.start()


@pytest.mark.parametrize("crash", [False, True])
def test_a_node_that_gets_another_name_is_counted_anew_and_nobody_else_is_someone_new(crash: bool) -> None:
    rig, jfk, hub, x, xx = world()
    for node in (jfk, hub):
        send(rig, node, *(f"{node.name} {body}" for body in names(1, 20)), to="x")
    rig.run(3)
    before = x.store.uuid
    if crash:  # the first commit under the new name never comes: the name is in the store all the same
        x.crash()
        xx.hold_commits, xx.store = True, x.store
        xx.start()
        rig.run(1)
        between = xx.store.uuid
        xx.crash()
        xx.hold_commits = False
        xx.start()
        assert xx.store.uuid == between != before
    else:
        move(x, xx)
    rig.run(2)
    for node in (jfk, hub):
        send(rig, node, *(f"{node.name} {body}" for body in names(21, 23)), to="xx")
    rig.run(5)
    assert sorted(xx.bodies("work")) == sorted(f"{node.name} {body}" for node in (jfk, hub) for body in names(1, 23))
    assert not any(node.core.identities.renewed or node.core.losses for node in (jfk, hub))
    told = status_of(rig, xx)
    assert told["store"] == str(xx.store.uuid) != str(before)
    assert told["former_store"] == (None if crash else str(before))
    assert any(f"renamed: it belonged to node 'x', this node is 'xx'. It was {before}" in line for line in xx.logs)


def test_its_old_name_comes_back_with_what_it_had_counted() -> None:
    rig, jfk, hub, x, xx = world()
    send(rig, jfk, *names(1, 9), to="x")
    rig.run(3)
    x.hold_commits = True
    send(rig, jfk, *names(10, 12), to="x")
    rig.run(1)
    move(x, xx)
    x.hold_commits = False
    rig.run(3)
    send(rig, jfk, *names(101, 105), to="xx")
    rig.run(5)
    assert xx.bodies("work") == [*names(1, 9), *names(101, 105)]
    move(xx, x)
    rig.run(10)
    send(rig, jfk, *names(13, 15), to="x")
    rig.run(10)
    assert x.bodies("work") == [*names(1, 9), *names(101, 105), *names(10, 15)]
    send(rig, jfk, "106", to="xx")
    move(x, xx)
    rig.run(10)
    assert xx.bodies("work")[-1] == "106" and not xx.core.duplicates.suppressed
    assert not jfk.core.identities.renewed and not hub.core.identities.renewed


@pytest.mark.parametrize("order", ["strict", "bounded"])
@pytest.mark.parametrize("fault", ["none", "restart", "disk"])
def test_what_waited_for_a_number_of_the_old_name_goes_on_and_comes_once(order: str, fault: str) -> None:
    """The missing number waits at its origin for the old name, and comes late when that is back."""
    rig, jfk, _, x, xx = world(queues=(QueueConfig(name="work", order=order, order_wait_s=10_000.0),))
    send(rig, jfk, "1", to="x")
    rig.run(3)
    jfk.core.catalog.ledger.identities["x"] = 3  # 2 is elsewhere
    send(rig, jfk, "3", "4", to="x")
    rig.run(3)
    assert x.bodies(WAITING) == ["3", "4"]
    copy = snapshot(x)
    move(x, xx)
    rig.run(3)
    send(rig, jfk, *names(101, 103), to="xx")
    rig.run(3)
    assert xx.bodies("work") == ["1", *names(101, 103)] and xx.bodies(WAITING) == ["3", "4"]
    (line,) = [text for text in status_of(rig, xx)["warnings"] if text.startswith("queue work")] or [""]
    assert ("wait for numbers 2 of" in line) is (order == "strict")
    if fault == "restart":
        xx.crash()
        xx.start()
    rig.run(GRACE_S - 10)
    assert xx.bodies(WAITING) == ["3", "4"]
    xx.refuse = int(fault == "disk")
    rig.run(20)
    assert xx.bodies("work") == ["1", *names(101, 103), "3", "4"] and xx.bodies(WAITING) == []
    assert not xx.core.catalog.ledger.former_origins and not xx.core.catalog.ledger.names.waited
    losses = status_of(rig, xx)["losses"]
    assert {(loss["first"], loss["last"]) for loss in losses} == {(2, 2)}
    assert "they were for 'x', a former name of this node" in losses[0]["reason"]
    assert xx.core.catalog.ledger.origins[jfk.store.uuid].mark == 3
    move(xx, x)
    rig.run(5)
    assert x.core.catalog.ledger.origins[jfk.store.uuid].mark == 4
    jfk.core.catalog.ledger.identities["x"] = 2  # what was elsewhere is back
    send(rig, jfk, "2", to="x")
    rig.run(5)
    assert x.bodies("work") == ["1", *names(101, 103), "3", "4", "2"]
    assert copy.uuid != x.store.uuid


def test_what_waits_is_given_up_by_hand_at_once() -> None:
    rig, jfk, _, x, xx = world()
    jfk.core.catalog.ledger.identities["x"] = 2
    send(rig, jfk, "2", to="x")
    rig.run(3)
    move(x, xx)
    rig.run(3)
    assert rig.client(xx).manage("SKIP", "queue", "work")[1]["lost"]
    rig.run(3)
    assert xx.bodies("work") == ["2"]


def test_where_something_waits_is_told_by_the_name_that_it_came_for() -> None:
    rig, jfk, _, x, xx = world()
    jfk.core.catalog.ledger.identities["x"] = 4
    send(rig, jfk, "4", to="x")
    rig.run(3)
    move(x, xx)
    rig.run(3)
    ((sequence, value),) = xx.queue(WAITING).read(0, count_max=9, bytes_max=9_999)
    told = xx.core.questions.here.state_of(xx.queue(WAITING), sequence, value)
    assert told["waits_for"] == f"missing numbers of {jfk.store.uuid}: 1 to 3"


def test_several_names_each_have_what_waits_for_theirs() -> None:
    """x, then xx, then x again before the time is over: what waits for x waits on, what waited for xx goes on."""
    rig, jfk, _, x, xx = world()
    for node, name in ((x, "x"), (xx, "xx")):
        if node is xx:
            move(x, xx)
            rig.run(3)
        jfk.core.catalog.ledger.identities[name] = 2
        send(rig, jfk, f"{name} 2", to=name)
        rig.run(3)
    assert xx.bodies(WAITING) == ["x 2", "xx 2"]
    move(xx, x)
    rig.run(GRACE_S + 5)
    assert x.bodies(WAITING) == ["x 2"] and x.bodies("work") == ["xx 2"]
    jfk.core.catalog.ledger.identities["x"] = 1
    send(rig, jfk, "x 1", to="x")
    rig.run(5)
    assert x.bodies("work") == ["xx 2", "x 1", "x 2"]
    assert not x.core.catalog.ledger.names.waited and b"waited" not in dict(x.store.table("node"))


def test_a_store_of_an_earlier_version_has_had_the_name_that_it_has() -> None:
    """Its rows are read as they are, and it is who it was."""
    rig, jfk, _, x, _ = world()
    send(rig, jfk, *names(1, 5), to="x")
    rig.run(3)
    x.crash()
    before = x.store.uuid
    del x.store._tables["node", custody_records.NAME]
    x.start()
    send(rig, jfk, *names(6, 9), to="x")
    rig.run(5)
    assert x.bodies("work") == names(1, 9) and x.store.uuid == before
    assert dict(x.store.table("node"))[custody_records.NAME] == b"x"
    assert own_names.change(x.store, "x", WAITING) is None


def test_one_store_under_two_names_at_once_is_refused_and_both_ends_say_why() -> None:
    """Copies of a version that did not write down its name: nothing at the second tells that it is one."""
    rig, jfk, hub, x, xx = world()
    send(rig, jfk, *names(1, 5), to="x")
    rig.run(3)
    xx.store = snapshot(x)
    del xx.store._tables["node", custody_records.NAME]
    xx.start()
    send(rig, xx, "from xx", to="hub")
    rig.run(30)
    neighbours = hub.core.neighbours
    assert neighbours["x"].established and not neighbours["xx"].established
    assert hub.core.catalog.queues.get("work") is None and xx.bodies("@hub") == ["from xx"]
    text = f"the store {x.store.uuid} belongs to node 'x' too"
    (line,) = [line for line in status_of(rig, hub)["warnings"] if line.startswith("neighbour xx:")]
    assert text in line and any(text in told for told in xx.logs) and any(text in told for told in hub.logs)
    x.crash()
    rig.run(30)
    assert hub.core.neighbours["xx"].established and hub.bodies("work") == ["from xx"]
    rig.run(620)
    assert not [line for line in status_of(rig, hub)["warnings"] if line.startswith("neighbour xx:")]


def test_a_node_alone_keeps_its_queues_and_what_it_has_shown_under_whatever_name() -> None:
    """As where a container's random host name is the node's name at each start."""
    rig = Rig()
    one, other = rig.node("one"), rig.node("other", start=False)
    link = rig.client(one).sender("work")
    rig.settle()
    rig.clients[-1].send(link, "m")
    rig.settle()
    before = one.queue("work").uuid, one.store.uuid
    move(one, other)
    client = rig.client(other)
    client.receiver("work")
    rig.settle()
    assert other.queue("work").uuid == before[0] and other.store.uuid != before[1]
    (message,) = client.messages()
    assert message.header is not None and message.header.first_acquirer
    assert len([line for line in other.logs if "renamed" in line]) == 1


def test_a_copy_that_gets_another_name_is_a_copy() -> None:
    """Its queues are others, and what they hold counts as shown."""
    rig, jfk, _, x, xx = world()
    send(rig, jfk, "m", to="x")
    rig.run(3)
    before = x.queue("work").uuid
    xx.store = snapshot(x)
    xx.store.copied = "its file is not the one that was opened last"
    xx.start()
    rig.run(1)
    assert xx.queue("work").uuid != before and own_names.change(xx.store, "xx", WAITING) is None
    client = rig.client(xx)
    client.receiver("work")
    rig.settle()
    assert not any(message.header is not None and message.header.first_acquirer for message in client.messages())
