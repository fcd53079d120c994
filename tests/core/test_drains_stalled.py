"""A drain waits for no disk that stalls or refuses (endpoints/drains.py), nor is a node busy with it meanwhile."""

import pytest

from holdfast.amqp.wire.performatives import Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support import selecting
from support.one_node import fill, send, world

SELECTOR = Symbol("apache.org:selector-filter:string")


@pytest.mark.parametrize("selects", [False, True])
def test_a_drain_beside_a_disk_that_stalls_is_answered(selects: bool) -> None:
    """What the consumer would be given next waits for a watermark, and more lies behind it."""
    rig, node, client = world(limits=Limits(commit_stall_s=1))
    fill(rig, client, 500)
    node.hold_commits = True
    fill(rig, client, 1, "other")
    source = {"filter": {Symbol("s"): Described(SELECTOR, "JMSPriority = 4")}} if selects else {}
    link = rig.client(node).receiver("work", credit=0, source=source)
    rig.settle()
    turns = node.turns
    link.grant(5, drain=True)
    rig.run(5)
    assert node.core is not None and node.core.disk.stalled
    assert link.credit == 0 and node.turns - turns < 100


@pytest.mark.parametrize("selects", [False, True])
@pytest.mark.parametrize("priorities", [False, True])
def test_a_drain_beside_a_disk_that_refuses_is_answered(selects: bool, priorities: bool) -> None:
    """The node tries again only after a while."""
    rig, node, client = world(QueueConfig(name="work", priorities=priorities))
    fill(rig, client, 500)
    source = {"filter": {Symbol("s"): Described(SELECTOR, "JMSPriority = 4")}} if selects else {}
    link = rig.client(node).receiver("work", credit=0, source=source)
    rig.settle()
    node.refuse, node.refuse_all = 10**6, True
    turns = node.turns
    link.grant(5, drain=True)
    rig.settle()
    assert node.core is not None and node.core.disk.rests
    assert link.credit == 0 and node.turns - turns < 100


def test_a_drain_is_answered_beside_a_disk_that_refuses_the_mark_of_what_is_next_alone() -> None:
    """It is on disk of the message behind it that it was shown, but the consumer wants no more than one."""
    rig, node, _ = world(QueueConfig(name="work", deliveries_max=50))
    selecting.fill(rig, node, 12)
    earlier, client = rig.client(node), rig.client(node)
    selecting.consume(rig, earlier, selecting.OTHERS, credit=12)
    assert selecting.numbers(earlier) == selecting.others(12)
    earlier.accept(Released())
    rig.run(1)
    earlier.close_transport()
    rig.run(1)
    link = selecting.consume(rig, client, "TRUE", credit=0)
    node.refuse, node.refuse_all = 10**6, True
    turns = node.turns
    link.grant(1, drain=True)
    while rig.move():
        assert node.turns - turns < 100
    assert node.core is not None and node.core.disk.rests
    assert link.credit == 0 and not client.deliveries


@pytest.mark.parametrize("counted", [False, True])
def test_what_is_set_aside_for_another_keeps_no_drain_beside_a_disk_that_refuses(counted: bool) -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=3 if counted else None))
    large, small = rig.client(node), rig.client(node)
    large.receiver("work", credit=0)
    link = small.receiver("work", credit=0, max_message_size=600)
    rig.settle()
    send(rig, client, "0".ljust(1_000))
    link.grant(1)
    rig.run(1)
    link.grant(0)
    send(rig, client, "1")
    rig.run(1)
    assert node.queue("work").shared.exclusions.aside
    node.refuse, node.refuse_all = 10**9, True
    link.grant(2, drain=True)
    rig.run(5)
    assert link.credit == 0


def test_what_waits_for_its_mark_keeps_no_drain_beside_a_disk_that_refuses() -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=3))
    large, small = rig.client(node), rig.client(node)
    link = large.receiver("work", credit=0)
    small.receiver("work", credit=0, max_message_size=600)
    send(rig, client, "0".ljust(1_000))
    node.refuse, node.refuse_all = 10**9, True
    link.grant(2, drain=True)
    rig.run(5)
    assert link.credit == 0
