"""A turn that is taken back costs what it gathered (core/undo.py)."""

from cProfile import Profile
from pstats import Stats
from typing import Any
from uuid import UUID

from holdfast.amqp.wire.performatives import Rejected
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.origins import Origin
from holdfast.broker.stored.ranges import RangeSet
from holdfast.core import undo
from holdfast.engine.port import Batch
from holdfast.state.turns import Turn
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


def test_what_a_turn_keeps_of_an_origin_is_a_copy() -> None:
    """Of each part: else what the turn changes of it is not taken back."""
    origin = Origin(UUID(int=1), finished=RangeSet([(5, 6)]), ended=RangeSet([(3, 3)]), clocks=GapClocks([(4, 1.0)]))
    turn = Turn(Batch())
    turn.keep_origin(origin)
    kept, _ = turn.origins[origin]
    for name, before in kept._asdict().items():
        now = getattr(origin.record(), name)
        assert list(before) == list(now) if name in ("finished", "ended", "clocks") else before == now
        assert isinstance(before, int | float) or before is not now, name
