"""A turn that is taken back costs what it gathered (core/undo.py)."""

from cProfile import Profile
from pstats import Stats
from typing import Any

from holdfast.amqp.wire.performatives import Rejected
from holdfast.core import undo
from support.one_node import fill, world


def calls_of_undoing(count: int) -> int:
    """Function calls that it takes to undo a turn in which so many rejected messages became dead letters."""
    rig, node, client = world()
    fill(rig, client, count)
    link = client.receiver("work", credit=count)
    rig.settle()
    core = node.core
    assert core is not None
    node.hold_commits = True
    client.sender("other")
    rig.settle()
    first, last = client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id
    link.settle(first, last, Rejected())
    rig.settle()
    assert len(core.turns.gathered.moves) == count
    profile = Profile()
    profile.enable()
    undo.take_back_gathered(core, ())
    profile.disable()
    assert len(node.queue("work").shared.requeued) == count and not core.turns.gathered.moves
    stats: Any = Stats(profile)
    return int(stats.total_calls)


def test_undoing_many_moves_costs_each_of_them_alike() -> None:
    few, many = calls_of_undoing(100), calls_of_undoing(1_000)
    assert many < 11 * few
