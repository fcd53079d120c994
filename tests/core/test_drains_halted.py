"""A consumer with a selector that drains is answered, also where its queue offers nothing new (AMQP 1.0 §2.6.7)."""

import pytest

from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import halting
from support.one_node import done, fill, world

SELECTOR = Symbol("apache.org:selector-filter:string")


@pytest.mark.parametrize("selects", [False, True])
def test_a_drain_at_a_halted_cursor_is_answered(selects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a subscription, so much is in consumers' hands that nothing new is offered. Without a selector the drain
    is answered at once; with one the node is busy with it, turn after turn."""
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 10)
    rig, node, client = world()
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    fill(rig, client, 30)
    client.receiver("work", credit=10)
    rig.settle()
    assert len(client.deliveries) == 10 and node.queue("work").shared.halted
    other = rig.client(node)
    source = {"filter": {Symbol("s"): Described(SELECTOR, "JMSPriority = 4")}} if selects else {}
    link = other.receiver("work", credit=0, source=source)
    rig.settle()
    turns = node.turns
    link.grant(5, drain=True)
    rig.run(1)
    assert link.credit == 0 and node.turns - turns < 100
