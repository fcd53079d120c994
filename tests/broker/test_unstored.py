"""The lowest priority among what is not on disk yet (docs/adr/0072)."""

from types import SimpleNamespace
from typing import Any

from holdfast.broker.cursors.ready import LEVELS, level_of
from holdfast.broker.cursors.unstored import Unstored


class Queue:
    """A durable queue: what is taken stands in the gathered batch until a commit is handed over."""

    def __init__(self) -> None:
        self.queue_id, self.next_sequence, self.visible = 7, 1, 1
        self.config = SimpleNamespace(durable=True)
        self.work: Any = SimpleNamespace(batch=SimpleNamespace(appends=[]))

    def take(self, *priorities: int) -> None:
        for priority in priorities:
            self.work.batch.appends.append((self.queue_id, self.next_sequence, value_of(priority)))
            self.next_sequence += 1

    def hand_over(self) -> None:
        self.work.batch.appends.clear()


def value_of(priority: int) -> bytes:
    return bytes([0, 0, priority]) + bytes(30)


def unstored(queue: Any) -> Unstored:
    return Unstored(queue)


def test_the_lowest_is_known_until_the_last_of_it_is_on_disk() -> None:
    queue = Queue()
    found = unstored(queue)
    assert found.lowest() == LEVELS
    queue.take(9, 1, 1, 9)
    assert found.lowest() == level_of(value_of(1))
    queue.hand_over()
    queue.visible = 3  # the first of the two is on disk
    assert found.lowest() == level_of(value_of(1))
    queue.visible = 4
    assert found.lowest() == level_of(value_of(9))
    queue.visible = 5
    assert found.lowest() == LEVELS


def test_what_was_handed_over_before_it_was_looked_at_is_not_known() -> None:
    queue = Queue()
    found = unstored(queue)
    queue.take(1)
    queue.hand_over()
    queue.take(9)
    assert found.lowest() == -1
    queue.visible = 2  # all that was not looked at is on disk
    assert found.lowest() == level_of(value_of(9))
