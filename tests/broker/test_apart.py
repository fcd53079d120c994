"""What consumers could not have, and who is asked about it (broker/cursors/apart.py)."""

from random import Random
from typing import Any

import pytest

from holdfast.broker.cursors.apart import Apart
from support import today

CONSUMERS: list[Any] = ["small", "middle", "large", "huge"]


class Taking:
    """One log, and consumers that take from it: `sizes` says from which place in `CONSUMERS` on they can have each of
    its entries."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.most = self.random.choice((1, 2, 5, 1_000))
        self.apart = Apart()
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
                self.apart.add(sequence, CONSUMERS[size:], self.most)
        return None

    def take(self, consumer: Any) -> int | None:
        """The lowest that the consumer can have, as a selection finds it."""
        while True:
            self.looks += 1
            sequence = self.apart.first_for([consumer])
            if sequence is None:
                forgotten = self.apart.again_for([consumer])
                if forgotten is None:
                    sequence = self.scan(consumer)
                    return sequence if sequence is None else self.taken(sequence)
                self.apart.rewind(forgotten)
                self.end = forgotten
            elif self.sizes.get(sequence, 0) > CONSUMERS.index(consumer):
                self.apart.refuse(self.apart.asked([consumer], sequence), sequence)
            else:
                self.apart.discard(sequence)
                if sequence in self.sizes:
                    return self.taken(sequence)

    def taken(self, sequence: int) -> int:
        del self.sizes[sequence]
        return sequence


@pytest.mark.parametrize("seed", today.some(range(40), 8))
def test_each_gets_the_lowest_that_it_can_have(seed: int) -> None:
    """Whatever was forgotten, left meanwhile or is not for it."""
    taking = Taking(seed)
    random, apart = taking.random, taking.apart
    for _ in range(300):
        act, consumer = random.randrange(10), random.choice(CONSUMERS)
        if act < 6:
            taking.send(random.randrange(1, len(CONSUMERS)))
        elif act == 6 and taking.sizes:
            del taking.sizes[random.choice([*taking.sizes])]
        elif act == 7:
            apart.leave(consumer)
            apart.ask_again([consumer])
        else:
            mine = [each for each, size in taking.sizes.items() if size <= CONSUMERS.index(consumer)]
            assert taking.take(consumer) == min(mine, default=None)
        kept = [*apart]
        assert kept == sorted(set(kept)) and len(kept) <= taking.most and apart.first == min(kept, default=None)
        assert apart.forgotten is None or all(sequence < apart.forgotten for sequence in kept)


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


def test_what_is_beyond_the_bound_is_only_scanned_again_for_who_can_have_it() -> None:
    apart = Apart()
    for sequence in range(5):
        apart.add(sequence, ["one"], 5)
    for sequence in range(5, 9):
        apart.add(sequence, ["other"], 5)
    assert len(apart) == 5 and apart.forgotten == 5
    assert apart.again_for(["one"]) is None and apart.again_for(["other"]) == 5
    apart.ask_again(["third"])
    assert apart.again_for(["third"]) is None, "it is asked about the others first"
    assert apart.consumers == {"one", "other", "third"}
    apart.leave("other")
    assert apart.again_for(["other"]) is None


def test_what_gives_way_to_a_lower_one_is_scanned_again_for_who_can_have_it() -> None:
    """Also for one that can have nothing before it."""
    apart = Apart()
    for sequence, consumer in enumerate(["one", "one", "other"], 1):
        apart.add(sequence, [consumer], 3)
    apart.add(0, ["one"], 3)
    assert [*apart] == [0, 1, 2] and apart.forgotten == 3
    assert apart.again_for(["other"]) == 3


def test_nothing_is_awaited_once_each_was_asked_about_all_of_it() -> None:
    """What is still kept is then for nobody, or nobody would ever stop to look for it."""
    apart = Apart()
    apart.add(1, ["one"], 3)
    apart.refuse(["one"], 1)
    assert apart.first_for(["one"]) is None and not apart.is_awaited and [*apart] == [1]


def test_where_nothing_is_kept_nobody_who_joins_is_asked_about_it() -> None:
    apart = Apart()
    apart.ask_again(["one"])
    assert not apart.is_awaited and not apart.consumers
