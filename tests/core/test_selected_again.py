"""Matches that wait, or come back, for consumers with selectors that share a queue (docs/adr/0063)."""

import pytest

from holdfast.amqp.wire.performatives import Modified
from holdfast.core import offering
from support.rig import Rig
from support.selecting import THIRDS, consume, fill, numbers, thirds


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("limit", [2, offering.PUMP_LIMIT])
def test_many_that_are_undeliverable_on_one_link_wait_for_another_and_keep_nothing_from_the_first(
    rig: Rig, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are more than one pump looks at, and the other link has no credit. The node rests meanwhile."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", limit)
    hub = rig.node("hub")
    count = max(30, 4 * limit)
    kept = thirds(count)
    fill(rig, hub, count)
    one, two, three = (rig.client(hub) for _ in range(3))
    first = consume(rig, one, THIRDS, credit=len(kept))
    one.accept(Modified(undeliverable_here=True))
    rig.settle()
    first.grant(5)
    second = consume(rig, two, THIRDS, credit=0)
    fill(rig, hub, 3, first=count)
    assert len(kept) > limit and len(numbers(one)) == 1
    for credit in (1, 2):
        second.grant(credit)
        rig.settle()
    assert numbers(two) == kept[:3]
    consume(rig, three, THIRDS, credit=3)
    assert numbers(three) == kept[3:6]
    two.close_transport()
    rig.run(1)
    assert len(numbers(one)) == 1 and numbers(three) == kept[3:6]
    last = rig.client(hub)
    consume(rig, last, THIRDS)
    assert numbers(last) == [*kept[:3], *kept[6:]]
