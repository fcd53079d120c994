"""What is kept of links that may be resumed is bounded, and costs no other link (core/resume.py)."""

from typing import Any

from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Rejected
from holdfast.amqp.types import Symbol
from holdfast.core.config import Limits, QueueConfig
from holdfast.units import MIB
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
