"""What is kept of links that may be resumed is bounded, and costs no other link (endpoints/resumption/)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.memory import check_accounts
from support.resuming import HOLD_S, Producer
from support.rig import Node, Rig


def world(**fields: Any) -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub", queues=(QueueConfig(name="work"),), **fields)


def test_what_is_remembered_of_rejected_deliveries_is_bounded_for_all_links_together() -> None:
    """However many links an attacker attaches; the oldest of a link are forgotten, and what is left is told."""
    rig, node = world(limits=Limits(memory_bytes_max=2 * MIB, resume_s_max=60))
    core = node.core
    assert core is not None
    producers = [Producer(rig, node, name=f"p{number}") for number in range(10)]
    for producer in producers:
        for number in range(20):
            producer.link.send(b"no message", context=str(number))
        rig.settle()
        core.validate()
        check_accounts(core)
        assert core.memory.rejected.held <= 2 * MIB // 16
    assert core.memory.rejected.held > MIB // 16
    first = producers[0]
    first.say(first.client, first.flush())
    first.lose()
    told = first.come_back() or {}
    assert all(isinstance(state, Rejected) for state in told.values())
    for producer in producers:
        producer.link.detach()
    rig.run(1)
    assert core.memory.rejected.held == 0


def test_a_rejection_is_short_whatever_of_the_peers_words_is_in_it() -> None:
    rig, node = world()
    client = rig.client(node)
    link = client.sender("work", properties={"holdfast:producer": "named"})
    rig.settle()
    message = Message(data=[b"x"], delivery_annotations={Symbol("x-opt-holdfast-number"): "y" * 50_000})
    link.send(message.encode(), context="bad")
    rig.settle()
    ((_, state),) = client.outcomes
    assert isinstance(state, Rejected) and state.error is not None
    assert len(state.error.description or "") == 500


@pytest.mark.parametrize("end", ["resumed", "forgotten", "attached anew"])
def test_what_a_suspended_consumer_holds_counts_for_its_user(end: str) -> None:
    """Else it would hold, by losing one link after the other, as much as it likes of what others wait for."""
    rig = Rig()
    users = (UserConfig(name="ann", password="a", unsettled_bytes_max=50 * KIB), UserConfig(name="bob", password="b"))
    node = rig.node("hub", users=users)
    ann, again, producer = (
        rig.client(node, mechanism="PLAIN", user=name, password=name[0]) for name in ("ann", "ann", "bob")
    )
    link = producer.sender("work")
    source = {"timeout": HOLD_S}
    lost = ann.receiver("work", name="mine", credit=5, source=source)
    rig.settle()
    for number in range(10):
        producer.send(link, f"{number}".ljust(11 * KIB))
        rig.settle()
    assert len(ann.deliveries) == 5
    assert node.core is not None
    use = node.core.users.by_name["ann"]
    unsettled = {item.tag: None for item in ann.deliveries}
    ann.close_transport()
    other = again.receiver("work", name="other", credit=5)
    rig.settle()
    assert use.unsettled_bytes >= 55 * KIB and not again.deliveries
    if end == "forgotten":
        rig.run(HOLD_S + 1)
    else:
        third = rig.client(node, mechanism="PLAIN", user="ann", password="a", container_id="client")
        resumed = third.receiver(
            "work", name="mine", credit=0, source=source, unsettled=unsettled if end == "resumed" else None
        )
        rig.settle()
        assert use.unsettled_bytes >= (55 * KIB if end == "resumed" else 50 * KIB)
        third.accept(link=resumed)
        if end == "resumed":
            resumed.detach(closed=True)
            rig.run(1)
    rig.run(1)
    assert len(again.deliveries) == 5 and lost.over
    again.accept(link=other)
    rig.run(1)
    assert use.unsettled_bytes == 0


class Unlisted(dict[bytes, Any]):
    """Whose values nobody may walk through."""

    def values(self) -> Any:
        raise AssertionError("all of them were looked through")


def test_an_attach_and_an_advance_look_at_the_links_of_their_own_cursor_alone() -> None:
    """There may be ten thousand others, and each of these costs its sender little."""
    rig, node = world()
    node.checks = False
    core = node.core
    assert core is not None
    client = rig.client(node)
    status, told, _ = client.manage("OPEN", "subscription", "s", queue="work", mode="copy")
    assert status == 201
    lease = {"queue": "work", "queue_uuid": told["queue_uuid"], "lease_epoch": told["lease_epoch"]}
    lost = rig.client(node)
    lost.receiver("work", name="other", source={"timeout": HOLD_S})
    rig.settle()
    lost.close_transport()
    rig.settle()
    assert len(core.resume.outgoing) == 1
    core.resume.outgoing = Unlisted(core.resume.outgoing)
    assert client.manage("ADVANCE", "subscription", "s", sequence=1, **lease)[0] == 200
    again = rig.client(node, container_id="again")
    again.receiver("work", name="t", source={"durable": 2, "expiry_policy": Symbol("never"), "timeout": HOLD_S})
    rig.settle()
    assert not again.detached and not core.containment.peers_ended
    assert len(core.resume.outgoing) == 2 and len(core.resume.by_cursor) == 2
    again.close_transport()
    rig.settle()
    assert client.manage("DELETE", "queue", "work")[0] == 409  # its subscriptions; what was lost is given back
