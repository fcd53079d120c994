"""What consumers could not have, and who is asked about it (broker/cursors/waiting_for_others.py)."""

from random import Random
from typing import Any

import pytest

from holdfast.broker.cursors.waiting_for_others import WaitingForOthers
from support import today

CONSUMERS: list[Any] = ["small", "middle", "large", "huge"]


class Taking:
    """One log, and consumers that take from it: `sizes` says from which place in `CONSUMERS` on they can have each of
    its entries."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.most = self.random.choice((1, 2, 5, 1_000))
        self.for_others = WaitingForOthers()
        self.sizes: dict[int, int] = {}
        self.end = 0
        """What was scanned."""
        self.sent = 0
        self.looks = 0

    def send(self, size: int) -> None:
        """One more, while `small` wants something."""
        self.sizes[self.sent] = size
        self.sent += 1
        assert self.scan("small") is None

    def scan(self, consumer: Any) -> int | None:
        """Scans up to the first that the consumer, the only one that wants something, can have."""
        while self.end < self.sent:
            sequence, self.end = self.end, self.end + 1
            size = self.sizes.get(sequence)
            if size is not None and size <= CONSUMERS.index(consumer):
                return sequence
            if size is not None:
                self.for_others.add(sequence, CONSUMERS[size:], self.most)
        return None

    def take(self, consumer: Any) -> int | None:
        """The lowest that the consumer can have, as a selection finds it."""
        while True:
            self.looks += 1
            sequence = self.for_others.first_for([consumer])
            if sequence is None:
                forgotten = self.for_others.rescan_from([consumer])
                if forgotten is None:
                    sequence = self.scan(consumer)
                    return sequence if sequence is None else self.taken(sequence)
                sequence = self.rescan(consumer, forgotten)
                if sequence is not None:
                    return self.taken(sequence)
            elif self.sizes.get(sequence, 0) > CONSUMERS.index(consumer):
                self.for_others.was_asked(self.for_others.not_yet_asked([consumer], sequence), sequence)
            else:
                self.for_others.discard(sequence)
                if sequence in self.sizes:
                    return self.taken(sequence)

    def rescan(self, consumer: Any, place: int) -> int | None:
        """Scans some of what was forgotten for the consumer, up to the first that it can have."""
        waiting, is_known = self.for_others, place == self.for_others.forgotten_from
        for sequence in range(place, min(place + self.random.choice((1, 3, 50)), waiting.forgotten_to)):
            self.looks += 1
            size = self.sizes.get(sequence, 0)
            if sequence in self.sizes and size > CONSUMERS.index(consumer) and is_known:
                is_known = len(waiting) < self.most
                if is_known:
                    waiting.keep_again(sequence, CONSUMERS[size:])
                else:
                    waiting.known_to(sequence)
            waiting.rescanned([consumer], sequence + 1)
            if is_known:
                waiting.known_to(sequence + 1)
            if sequence in self.sizes and size <= CONSUMERS.index(consumer):
                return sequence
        return None

    def taken(self, sequence: int) -> int:
        del self.sizes[sequence]
        return sequence


@pytest.mark.parametrize("seed", today.some(range(40), 8))
def test_each_gets_the_lowest_that_it_can_have(seed: int) -> None:
    """Whatever was forgotten, left meanwhile or is not for it."""
    taking = Taking(seed)
    random, waiting = taking.random, taking.for_others
    for _ in range(300):
        act, consumer = random.randrange(10), random.choice(CONSUMERS)
        if act < 6:
            taking.send(random.randrange(1, len(CONSUMERS)))
        elif act == 6 and taking.sizes:
            del taking.sizes[random.choice([*taking.sizes])]
        elif act == 7:
            waiting.leave(consumer)
            waiting.ask_again([consumer])
        else:
            mine = [each for each, size in taking.sizes.items() if size <= CONSUMERS.index(consumer)]
            assert taking.take(consumer) == min(mine, default=None)
        kept = [*waiting]
        assert kept == sorted(set(kept)) and len(kept) <= taking.most and waiting.first == min(kept, default=None)
        forgotten = waiting.forgotten_from
        assert forgotten is None or all(sequence < forgotten < waiting.forgotten_to for sequence in (*kept, -1))


def test_each_is_asked_once() -> None:
    """However often one of the others takes something."""
    taking = Taking(1)
    taking.most = 10_000
    for number in range(1_000):
        taking.send(3 if number % 2 else 2)
    for number in range(500):
        assert taking.take("huge") == number and taking.take("small") is None
    assert taking.take("middle") is None and taking.looks < 1_100
    assert taking.take("large") == 500 and taking.looks < 1_110


@pytest.mark.parametrize("others", [[], [2]])
def test_what_was_forgotten_is_scanned_once_for_each(others: list[int]) -> None:
    """Also while what is kept waits for another one."""
    taking = Taking(1)
    taking.most = 5
    for size in [*others, 1, 1] * 500:
        taking.send(size)
    count = len(taking.sizes)
    for sequence in [sequence for sequence, size in taking.sizes.items() if size == 1]:
        assert taking.take("middle") == sequence
    assert taking.take("middle") is None and taking.looks < 4 * count
    taking.looks = 0
    for sequence in range(0, count if others else 0, 3):
        assert taking.take("large") == sequence
    assert taking.take("large") is None and taking.looks < 4 * count


class Counted:
    """A consumer; counts how often any was put into a set or looked up there."""

    count = 0

    def __hash__(self) -> int:
        Counted.count += 1
        return id(self)


@pytest.mark.parametrize("added", ["behind", "in front"])
def test_where_less_may_be_kept_each_consumer_is_looked_at_once(added: str) -> None:
    waiting, consumers = WaitingForOthers(), [Counted() for _ in range(500)]
    for sequence in range(1, 1_000):
        waiting.add(sequence, consumers if sequence == 1 else consumers[:1], 5_000)
    Counted.count = 0
    waiting.add(0 if added == "in front" else 1_000, consumers[:1], 10)
    assert [*waiting] == list(range(10) if added == "in front" else range(1, 11))
    assert waiting.forgotten_from == (10 if added == "in front" else 11) and Counted.count < 5 * len(consumers)
    for consumer in consumers:
        assert waiting.not_yet_asked([consumer], 5) == [consumer]
        waiting.was_asked([consumer], 11)
        assert waiting.rescan_from([consumer]) == waiting.forgotten_from


def test_at_the_bound_one_more_does_not_cost_a_look_at_each_consumer() -> None:
    waiting, consumers = WaitingForOthers(), [Counted() for _ in range(500)]
    for sequence in range(100, 200):
        waiting.add(2 * sequence, consumers if sequence == 100 else consumers[:1], 100)
    Counted.count = 0
    for sequence in range(100, 200):
        waiting.add(2 * sequence + 1, consumers[:1], 100)
    assert len(waiting) == 100 and Counted.count < 10 * len(consumers)


def test_what_is_beyond_the_bound_is_only_scanned_again_for_who_can_have_it() -> None:
    waiting = WaitingForOthers()
    for sequence in range(5):
        waiting.add(sequence, ["one"], 5)
    for sequence in range(5, 9):
        waiting.add(sequence, ["other"], 5)
    assert len(waiting) == 5 and waiting.forgotten_from == 5
    assert waiting.rescan_from(["one"]) is None and waiting.rescan_from(["other"]) == 5
    waiting.ask_again(["third"])
    assert waiting.rescan_from(["third"]) is None, "it is asked about the others first"
    assert waiting.consumers == {"one", "other", "third"}
    waiting.leave("other")
    assert waiting.rescan_from(["other"]) is None


def test_what_gives_way_to_a_lower_one_is_scanned_again_for_who_can_have_it() -> None:
    """Also for one that can have nothing before it."""
    waiting = WaitingForOthers()
    for sequence, consumer in enumerate(["one", "one", "other"], 1):
        waiting.add(sequence, [consumer], 3)
    waiting.add(0, ["one"], 3)
    assert [*waiting] == [0, 1, 2] and waiting.forgotten_from == 3
    assert waiting.rescan_from(["other"]) == 3


def test_nothing_is_awaited_once_each_was_asked_about_all_of_it() -> None:
    """What is still kept is then for nobody, or nobody would ever stop to look for it."""
    waiting = WaitingForOthers()
    waiting.add(1, ["one"], 3)
    waiting.was_asked(["one"], 1)
    assert waiting.first_for(["one"]) is None and not waiting.is_awaited and [*waiting] == [1]


def test_where_nothing_is_kept_nobody_who_joins_is_asked_about_it() -> None:
    waiting = WaitingForOthers()
    waiting.ask_again(["one"])
    assert not waiting.is_awaited and not waiting.consumers
