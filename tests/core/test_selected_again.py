"""Matches that wait, or come back, for consumers with selectors that share a queue (docs/adr/0063)."""

import pytest

from holdfast.amqp.wire.performatives import Modified
from holdfast.amqp.wire.types import Symbol
from holdfast.core import offering
from holdfast.settings.queues import QueueConfig
from support.rig import Rig
from support.selecting import THIRDS, consume, fill, numbers, thirds

SEEN = "amqp.annotation.x-opt-seen"


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


@pytest.mark.parametrize("priorities", [False, True])
def test_what_was_a_match_and_got_other_annotations_is_matched_again(rig: Rig, priorities: bool) -> None:
    """It was one while it waited for credit; another consumer was faster."""
    hub = rig.node("hub", queues=(QueueConfig(name="work", priorities=priorities),))
    fill(rig, hub, 3)
    one, two, three, four = (rig.client(hub) for _ in range(4))
    link = consume(rig, one, f"{SEEN} IS NULL", credit=0)
    consume(rig, three, f"{SEEN} = 2")
    consume(rig, two, "JMSPriority = 1", credit=1)
    two.accept(Modified(message_annotations={Symbol("x-opt-seen"): 1}))
    rig.run(1)
    link.grant(10)
    rig.settle()
    consume(rig, four, f"{SEEN} = 1")
    assert sorted(numbers(one)) == [0, 2] and numbers(four) == [1] and not numbers(three)


@pytest.mark.parametrize("priorities", [False, True])
def test_what_lost_its_annotations_in_a_refused_commit_is_matched_again(rig: Rig, priorities: bool) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work", priorities=priorities),))
    fill(rig, hub, 3)
    one, two = rig.client(hub), rig.client(hub)
    consume(rig, two, "JMSPriority = 1", credit=1)
    consume(rig, one, f"{SEEN} IS NULL")
    assert numbers(two) == [1] and sorted(numbers(one)) == [0, 2]
    one.deliveries.clear()
    hub.refuse = 1
    two.accept(Modified(message_annotations={Symbol("x-opt-seen"): 1}))
    rig.run(1)
    assert not hub.refuse and numbers(one) == [1]
