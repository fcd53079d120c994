"""An older store that is put back by hand: someone new from the start, or as soon as anybody can know (ADR 0025)."""

from typing import Any

import pytest

from holdfast.core.config import QueueConfig
from support.hops import STRICT, names, send, snapshot
from support.rig import Node, Rig

WHY = "its file is not the one that was opened last"


def put_back(node: Node, kept: Any, *, known: bool = True) -> None:
    """The node stands still, its store is the older copy; `known`: as a store on disk finds it."""
    if node.core is not None:
        node.crash()
    node.store = kept
    node.store.copied = WHY if known else None


def status_of(rig: Rig, node: Node) -> dict[str, Any]:
    return rig.client(node).manage("STATUS", "node")[1]


def test_new_messages_are_new_though_the_first_contact_knows_nothing() -> None:
    """a is put back; its only neighbour, b, has passed nothing on that it remembers: c knows, and says so too late."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(2)
    send(rig, a, *names(1, 3), to="c")
    rig.run(2)
    kept = snapshot(a)
    send(rig, a, *names(4, 9), to="c")
    rig.run(2)
    old = a.store.uuid
    put_back(a, kept)
    for node in (b, c):
        node.crash()
    b.store = type(b.store)(mint_from=rig.uuid)  # its disk is new
    b.start()
    a.start()
    send(rig, a, *names(10, 15), to="c")
    rig.run(2)
    c.start()
    rig.run(40)
    assert c.bodies("work") == names(1, 15)
    told = status_of(rig, a)
    assert told["former_store"] == str(old) and told["store"] == str(a.store.uuid) != str(old)
    assert any("this store was copied or put back: " + WHY in text for text in a.logs)
    assert any("has a new store" in text for text in b.logs) or b.store.uuid != old


def test_what_it_holds_keeps_its_identity_and_is_not_doubled() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 5), to="hub")
    kept = snapshot(jfk)
    rig.refuse_dials = False
    rig.run(10)
    assert hub.bodies("work") == names(1, 5)
    put_back(jfk, kept)
    jfk.start()
    send(rig, jfk, "6", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 6)
    assert any("neighbour jfk has a new store" in text for text in hub.logs)


def test_its_queues_are_others_and_all_they_hold_counts_as_shown() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    for body in names(1, 3):
        client.send(link, body)
    rig.settle()
    uuid = hub.queue("work").uuid
    lease = client.manage("OPEN", "subscription", "audit", queue="work", mode="copy")[1]
    put_back(hub, snapshot(hub))
    hub.start()
    client = rig.client(hub)
    told = {"queue": "work", "queue_uuid": str(uuid), "lease_epoch": lease["lease_epoch"]}
    assert client.manage("ADVANCE", "subscription", "audit", **told, sequence=2)[0] == 412
    client.receiver("work")
    rig.settle()
    assert client.bodies() == names(1, 3)
    assert not any(message.header is not None and message.header.first_acquirer for message in client.messages())
    hub.crash()
    again = hub.store.uuid
    hub.start()
    rig.settle()
    assert hub.store.uuid == again and status_of(rig, hub)["former_store"] is None


@pytest.mark.parametrize("in_life", [False, True])
def test_a_crash_right_after_it_became_someone_new_leaves_no_numbers_of_the_former(in_life: bool) -> None:
    """The UUID is new, the tables are not yet: the numbers of the former store are nobody's any more."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 5), to="hub")
    rig.run(2)
    kept = snapshot(jfk)
    if in_life:
        send(rig, jfk, "6", to="hub")
    put_back(jfk, kept, known=not in_life)
    jfk.hold_commits = True
    jfk.start()
    rig.run(3)
    assert jfk.core is not None and jfk.core.renewed
    jfk.crash()
    jfk.hold_commits = False
    jfk.start()
    send(rig, jfk, "7", to="hub")
    rig.run(10)
    assert hub.bodies("work")[-1] == "7" and hub.core is not None
    assert hub.core.catalog.origins[jfk.store.uuid].mark == 1


def test_a_full_disk_does_not_keep_it_from_becoming_someone_new() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 5), to="hub")
    kept = snapshot(jfk)
    put_back(jfk, kept)
    jfk.refuse = 1
    jfk.start()
    send(rig, jfk, "lost", to="hub")
    assert not jfk.refuse
    jfk.crash()
    jfk.start()
    send(rig, jfk, "6", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 6)


def test_what_may_have_been_dropped_is_listed_where_a_copy_is_found_out_too_late() -> None:
    """Nothing on the disk told: a snapshot of the whole machine."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(2)
    send(rig, a, *names(1, 3), to="c")
    rig.run(2)
    kept = snapshot(a)
    send(rig, a, *names(4, 9), to="c")
    rig.run(2)
    old = a.store.uuid
    c.unwatched.add("$holdfast/custody")  # it will accept what it takes for copies
    put_back(a, kept, known=False)
    for node in (b, c):
        node.crash()
    b.store = type(b.store)(mint_from=rig.uuid)
    b.start()
    a.start()
    send(rig, a, *names(10, 12), to="c")
    rig.run(2)
    c.start()
    rig.run(40)
    assert a.store.uuid != old and c.bodies("work") == names(1, 9)
    (loss,) = status_of(rig, a)["losses"]
    assert (loss["origin"], loss["first"], loss["last"]) == (str(old), 4, 6)
    assert "may have dropped them" in loss["reason"]
