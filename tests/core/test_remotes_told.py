"""What the log says of a remote when its settings change, and when it refuses this node."""

from dataclasses import replace

import pytest

from core.test_reloading import read
from core.test_where import ask, put
from core.test_where import states as steps_of
from holdfast.amqp.wire.performatives import Detach, Released
from holdfast.engine import events
from holdfast_lab.base.plain_broker import PlainBroker
from support.one_node import fill
from support.remotes import REMOTE, only, world
from support.rig import Node


def test_a_dial_that_a_change_gave_up_is_no_fault_and_delays_nothing() -> None:
    rig, node, _, _ = world()
    rig.run(1)
    node.handle(events.ConfigRead(config=replace(node.config, remotes=(replace(REMOTE, messages_max=7),))))
    node.handle(events.ConnectFailed(neighbour="mq", reason="given up"))
    rig.settle()
    assert only(node)["state"] == "up"
    assert not any("no connection" in line for line in node.logs)


def test_a_connection_that_ends_by_an_error_names_its_remote() -> None:
    rig, node, client, _ = world()
    fill(rig, client, 1, "flights@mq")
    rig.plain["mq"].connection.amqp.write(99, Detach(77))
    rig.run(3)
    assert only(node)["lost"] == 1
    assert any("remote mq: connection closed: " in line for line in node.logs), node.logs


ADDRESS = "flights@mq"


def where(node: Node, message_id: str) -> tuple[str, str, str]:
    """Its queue, its state and what it waits for."""
    told = ask(node, message_id)
    assert told["found"] and told["custody"] == "hub" and steps_of(told) == [("hub", told["state"])]
    return told["steps"][0]["queue"], told["state"], told["waits_for"]


def test_where_a_message_waits_for_a_connection_to_its_remote() -> None:
    rig, node, _, _ = world()
    rig.settle()
    rig.refuse_dials = True
    rig.plain["mq"].cut()
    rig.run(20)
    put(node, "order-1", address=ADDRESS)
    queue, state, waits_for = where(node, "order-1")
    assert (queue, state) == (ADDRESS, "in transmission")
    assert waits_for.startswith("the connection to the remote 'mq', which is ") and waits_for.endswith(": nobody there")
    read(node, remotes=())
    assert where(node, "order-1") == (ADDRESS, "in transmission", "a [[remote]] 'mq', which is not configured")


@pytest.mark.parametrize(
    ("broker", "waits_for"),
    [
        (PlainBroker(decide=lambda address, payload: None), "the answer of the remote 'mq'"),
        (PlainBroker(credit=0), "credit of the remote 'mq'"),
        (PlainBroker(ignores={"flights"}), "a link to the remote 'mq'"),
        (PlainBroker(refuses={"flights"}), "the remote 'mq': amqp:not-found"),
        (PlainBroker(decide=lambda address, payload: Released()), "the remote 'mq': it returns messages"),
    ],
)
def test_where_a_message_waits_for_its_remote(broker: PlainBroker, waits_for: str) -> None:
    rig, node, _, _ = world(broker=broker)
    rig.run(2)
    put(node, "order-1", address=ADDRESS)
    queue, state, told = where(node, "order-1")
    assert (queue, state) == (ADDRESS, "in transmission") and told.startswith(waits_for)


def test_of_a_message_that_its_remote_has_accepted_nothing_is_known() -> None:
    rig, node, _, _ = world()
    put(node, "order-1", address=ADDRESS)
    rig.run(2)
    assert not ask(node, "order-1")["found"]
