"""Triggers: what a node runs when a queue is deep or its oldest message old (docs/triggers.md)."""

from typing import Any

from holdfast.amqp.wire.performatives import Accepted
from holdfast.engine import events
from holdfast.settings.queues import QueueConfig, TriggerConfig
from support.one_node import fill, world
from support.rig import Client, Node, Rig

COMMAND = ("run", "it")


def triggered(**fields: Any) -> tuple[Rig, Node, Client]:
    trigger = TriggerConfig(name="batch", queue="reads", command=COMMAND, **fields)
    return world(QueueConfig(name="reads"), triggers=(trigger,))


def end(node: Node, problem: str = "") -> None:
    node.handle(events.CommandEnded(trigger="batch", problem=problem))


def test_a_queue_that_is_deep_enough_runs_the_command_once() -> None:
    rig, node, client = triggered(messages=3)
    fill(rig, client, 2, "reads")
    rig.run(5)
    assert not node.commands
    fill(rig, client, 1, "reads")
    rig.run(5)
    (command,) = node.commands
    assert command.command == COMMAND and command.trigger == "batch" and command.timeout_s == 3_600.0
    oldest_s = float(command.environment.pop("HOLDFAST_OLDEST_S"))
    assert 5 <= oldest_s <= 8 and command.environment == {
        "HOLDFAST_NODE": "hub", "HOLDFAST_TRIGGER": "batch", "HOLDFAST_QUEUE": "reads", "HOLDFAST_VHOST": "",
        "HOLDFAST_MESSAGES": "3",
    }  # fmt: skip
    rig.run(600)
    assert len(node.commands) == 1, "it runs still"


def test_a_message_that_is_old_enough_runs_it() -> None:
    rig, node, client = triggered(age_s=30.0)
    fill(rig, client, 1, "reads")
    rig.run(28)
    assert not node.commands
    rig.run(5)
    assert len(node.commands) == 1


def test_it_runs_again_after_its_rest_while_the_queue_is_deep() -> None:
    rig, node, client = triggered(messages=1, rest_s=10.0)
    fill(rig, client, 2, "reads")
    rig.run(2)
    end(node)
    rig.run(8)
    assert len(node.commands) == 1
    rig.run(4)
    assert len(node.commands) == 2
    reader = rig.client(node)
    reader.receiver("reads")
    rig.settle()
    reader.accept(Accepted())
    end(node)
    rig.run(60)
    assert len(node.commands) == 2, "the queue is empty"


def test_one_that_fails_is_told_of_and_tried_again() -> None:
    rig, node, client = triggered(messages=1, rest_s=10.0)
    fill(rig, client, 1, "reads")
    rig.run(2)
    end(node, "its command ended with 3")
    rig.run(1)
    assert "trigger 'batch': its command ended with 3; next try in 10 s at the soonest" in node.logs
    (told,) = client.manage("STATUS", "node")[1]["triggers"]
    assert told == {
        "name": "batch", "queue": "reads", "running": False, "runs_total": 1, "failures_total": 1,
        "last": "its command ended with 3",
    }  # fmt: skip
    rig.run(12)
    assert len(node.commands) == 2


def test_what_ran_when_the_node_was_killed_runs_again() -> None:
    rig, node, client = triggered(messages=1)
    fill(rig, client, 1, "reads")
    rig.run(2)
    node.crash()
    node.start()
    rig.run(2)
    assert len(node.commands) == 2


def test_a_node_that_stops_starts_nothing() -> None:
    rig, node, client = triggered(messages=1)
    fill(rig, client, 1, "reads")
    node.handle(events.Stopping())
    rig.run(5)
    assert not node.commands
