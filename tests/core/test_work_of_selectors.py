"""What selectors make of one turn is bounded (a turn may take 20 ms, docs/adr/0059)."""

from typing import Any

import pytest

from holdfast.amqp.effort import STEP_WEIGHT
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors.selections import SCAN_BYTES
from holdfast.selectors import like
from support.one_node import world
from support.rig import Node

SELECTOR = Symbol("apache.org:selector-filter:string")
TEXT = 4_096
PATTERNS = 16
DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}


def selecting() -> dict[Any, Any]:
    """16 patterns with `_`, each a step a character."""
    blanks = "_" * 100
    text = " OR ".join(f"a LIKE '%{blanks}{chr(98 + number)}{blanks}%'" for number in range(PATTERNS))
    return {Symbol("s"): Described(SELECTOR, text)}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps patterns took, in the event that is handled now the last."""
    found = [0]
    matches = like.Pattern.matches

    def counting(self: like.Pattern, text: str) -> bool | None:
        found[-1] += len(text) if self.stepwise and len(text) <= self.text_max else 0
        return matches(self, text)

    monkeypatch.setattr(like.Pattern, "matches", counting)
    return found


def watched(node: Node, steps: list[int]) -> None:
    node.checks = False  # invariants ask selectors too
    handle = node.handle

    def each(event: Any) -> None:
        steps.append(0)
        handle(event)

    node.handle = each  # type: ignore[method-assign]


@pytest.mark.parametrize("source", [{}, DURABLE, {"distribution_mode": Symbol("copy")}])
def test_what_one_event_matches_is_bounded_by_the_steps_of_its_patterns(
    source: dict[str, Any], steps: list[int]
) -> None:
    """For consumers, subscriptions and browsers; a pump looks at 256 messages else."""
    rig, node, client = world()
    taker = rig.client(node)
    if source is DURABLE:
        link = taker.receiver("work", name="s", credit=0, source={**source, "filter": selecting()})
        rig.settle()
    sender = client.sender("work")
    rig.settle()
    for _ in range(60):
        client.send(sender, "x", application_properties={"a": "a" * TEXT})
    rig.settle()
    watched(node, steps)
    if source is DURABLE:
        link.grant(100)
        taker.flush()
    else:
        taker.receiver("work", source={**source, "filter": selecting()})
    rig.settle()
    assert sum(steps) >= 60 * PATTERNS * TEXT and not taker.deliveries
    assert max(steps) <= 2 * (SCAN_BYTES // STEP_WEIGHT + PATTERNS * TEXT)


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_published_to_subscriptions_with_such_patterns_is_counted(durable: bool, steps: list[int]) -> None:
    rig, node, client = world()
    taker = rig.client(node)
    source = {**(DURABLE if durable else {}), "filter": selecting()}
    taker.receiver("topic/news", name="s", source=source)
    link = client.sender("topic/news")
    rig.settle()
    watched(node, steps)
    for _ in range(60):
        client.send(link, "x", application_properties={"a": "a" * TEXT})
    rig.settle()
    rig.run(30)
    assert sum(steps) == 60 * PATTERNS * TEXT and not taker.deliveries
    assert max(steps) <= 20 * PATTERNS * TEXT
