"""What is published to subscriptions that hold all that they may costs no more than to others."""

from typing import Any

from support.one_node import world

LISTENERS = 4
COUNT = 1_000


class Counting(dict[int, Any]):
    """Counts how often it is asked whether it has something."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)


def test_listeners_that_hold_a_thousand_messages_are_no_work() -> None:
    """For each message 1,000 that are in hands would be passed over, to find one that may go in its place."""
    rig, node, publisher = world()
    listener = rig.client(node)
    for _ in range(LISTENERS):
        listener.receiver("topic/news", credit=COUNT)
    link = publisher.sender("topic/news")
    rig.settle()

    def publish(count: int) -> None:
        for _ in range(count):
            while not link.sendable:
                rig.settle()
            publisher.send(link, "x")
        rig.settle()

    publish(COUNT)
    assert len(listener.deliveries) == LISTENERS * COUNT, "they hold it all"
    queues = list(node.queue("topic/news").listeners)
    for queue in queues:
        queue.shared.acquired = Counting(queue.shared.acquired)
    publish(100)
    assert sum(queue.shared.acquired.asked for queue in queues) <= LISTENERS * 100 * 10
    assert node.queue("topic/news").dropped_total == LISTENERS * 100
