"""What is published to subscriptions that hold all that they may costs no more than to others."""

from time import process_time
from typing import Any

from support.one_node import world
from support.rig import Client, Node

LISTENERS = 4
LINKS = 10


def longest(node: Node, publisher: Client, links: list[Any], count: int) -> float:
    """Processor time of the longest event while so many messages come on each link at once."""
    times: list[float] = []
    handle = node.handle

    def measured(event: Any) -> None:
        begun = process_time()
        handle(event)
        times.append(process_time() - begun)

    node.handle = measured  # type: ignore[method-assign]
    for link in links:
        for _ in range(count):
            publisher.send(link, "x")
    publisher.rig.settle()
    node.handle = handle  # type: ignore[method-assign]
    return max(times)


def test_listeners_that_hold_a_thousand_messages_are_no_work() -> None:
    """For each message 1,000 that are in hands are passed over, to find one that may go in its place."""
    rig, node, publisher = world()
    listener = rig.client(node)
    for _ in range(LISTENERS):
        listener.receiver("topic/news", credit=1_000)
    links = [publisher.sender("topic/news") for _ in range(LINKS)]
    rig.settle()
    before = longest(node, publisher, links, 100)  # to consumers with credit
    assert len(listener.deliveries) == LISTENERS * 1_000
    after = longest(node, publisher, links, 100)  # they hold it all
    assert after < 3 * before + 0.1
