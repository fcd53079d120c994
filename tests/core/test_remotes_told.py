"""What the log says of a remote when its settings change, and when it refuses this node."""

from dataclasses import replace

from holdfast.amqp.wire.performatives import Detach
from holdfast.engine import events
from support.one_node import fill
from support.remotes import REMOTE, only, world


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
