"""What selectors and patterns of subjects make of one turn is bounded (a turn may take 20 ms, docs/adr/0059)."""

from time import process_time
from typing import Any

from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Described, Symbol
from support.one_node import world
from support.rig import Node

SELECTOR = Symbol("apache.org:selector-filter:string")
PATTERN = Symbol("apache.org:legacy-amqp-topic-binding:string")
TURN_S = 1.0
"""Fifty times what a turn may take, for machines that are busy."""


def timed(node: Node) -> list[float]:
    """The processor time of each event that the node handles from now on."""
    times: list[float] = []
    handle = node.handle

    def measured(event: Any) -> None:
        begun = process_time()
        handle(event)
        times.append(process_time() - begun)

    node.handle = measured  # type: ignore[method-assign]
    return times


def test_a_selector_of_like_patterns_on_long_texts() -> None:
    """16 patterns with `_`, each a step a character: a message of 16 KiB takes longer than a turn may, and a pump looks
    at 256 of them."""
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    for _ in range(60):
        client.send(link, "x", application_properties={"a": "a" * 16_384})
    rig.settle()
    blanks = "_" * 100
    text = " OR ".join(f"a LIKE '%{blanks}{chr(98 + number)}{blanks}%'" for number in range(16))
    times = timed(node)
    client.receiver("work", source={"filter": {Symbol("s"): Described(SELECTOR, text)}})
    rig.settle()
    assert not client.deliveries
    assert max(times) < TURN_S, f"one event took {max(times):.1f} s, for 60 messages"


def test_patterns_of_subjects_on_long_subjects() -> None:
    """Each of 120 words is compared with each of 512, for each subscription; a subscription counts as a microsecond."""
    rig, node, client = world()
    for number in range(10):
        pattern = f"#.{'a.' * 115}b{number}"
        client.receiver("topic/news", source={"filter": {Symbol("s"): Described(PATTERN, pattern)}})
    link = client.sender("topic/news")
    rig.settle()
    times = timed(node)
    for _ in range(20):
        client.send(link, "x", properties=Properties(subject=".".join("a" * 512)))
    rig.settle()
    assert not client.deliveries
    assert max(times) < TURN_S, f"one event took {max(times):.1f} s, for 20 messages and 10 subscriptions"
