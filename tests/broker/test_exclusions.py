"""Who can have what of a cursor, by largest limits: as if each consumer were asked (broker/cursors/exclusions.py)."""

from collections import Counter
from random import Random

import pytest

from holdfast.accounts import Account
from holdfast.broker.cursors.entry_consumer import UNLIMITED
from holdfast.broker.cursors.exclusions import ASIDE_BYTES, EXCLUDED_BYTES, LOOKS_MAX, Exclusions
from holdfast.broker.entries.withheld import Withheld
from support import today
from support.stores import Idle


def accounts() -> Withheld:
    return Withheld(*(Account(name, 10**9) for name in ("aside", "excluded", "given_back", "ready")))


def consumer(random: Random) -> Idle:
    made = Idle(random.choice([0, 1, 5]))
    made.bytes_max = random.choice([100, 200, 300, 10_000, UNLIMITED])
    return made


def can(one: Idle, sequence: int, size: int) -> bool:
    return size <= one.bytes_max and sequence not in one.excluded


def agree(exclusions: Exclusions, consumers: list[Idle], counted: Withheld, gone: set[int]) -> None:
    """Nothing is aside in vain, and what the short ways say is what asking everybody says."""
    assert exclusions.largest == max((one.bytes_max for one in consumers), default=0)
    for sequence in {1, 7, 33, 34, 50} - gone:
        for size in (50, 150, 9_000, 20_000):
            expected = any(can(one, sequence, size) for one in consumers)
            assert exclusions.another_takes(list(consumers), sequence, size) is expected
    for one in consumers:
        none = not any(can(one, sequence, size) for sequence, size in exclusions.aside.items())
        assert exclusions.has_none_for(one) is none
    assert list(exclusions.aside) == sorted(exclusions.aside)
    assert counted.aside.held == exclusions.counted_aside == ASIDE_BYTES * len(exclusions.aside)
    excluded = [sequence for one in consumers for sequence in one.excluded]
    assert counted.excluded.held == exclusions.counted_excluded == EXCLUDED_BYTES * len(excluded)
    assert exclusions.live == Counter(sequence for sequence in excluded if sequence not in gone)


@pytest.mark.parametrize("seed", today.some(range(30), 8))
def test_any_order_of_steps(seed: int) -> None:
    random = Random(seed)
    counted = accounts()
    exclusions = Exclusions(counted)
    consumers: list[Idle] = []
    outside = set(range(1, 200))
    gone: set[int] = set()
    sizes = {sequence: random.choice([50, 150, 250, 9_000]) for sequence in outside}
    for _ in range(400):
        step = random.randrange(6)
        if step == 0 or not consumers:
            consumers.append(consumer(random))
            exclusions.joined(consumers[-1])
        elif step == 1 and len(consumers) > 2:
            back = exclusions.left(consumers.pop(random.randrange(len(consumers))), heap := [])
            assert sorted(back) == sorted(heap)
            assert all(sequence not in exclusions.aside for sequence in back)
            outside.update(back)
            for sequence, size in exclusions.aside.items():
                assert not size or any(can(one, sequence, size) for one in consumers)
        elif step == 2 and outside:
            some = random.sample(sorted(outside), min(len(outside), 3))
            exclusions.exclude(random.choice(consumers), some)
        elif step == 3 and outside:
            wanting = [one for one in consumers if one.wants()]
            aside: dict[int, int] = {}
            for sequence in random.sample(sorted(outside), min(len(outside), 5)) if wanting else ():
                found, size = exclusions.choose(wanting, list(consumers), sequence, b"", sizes[sequence])
                if found is None:
                    aside[sequence] = size
                    outside.discard(sequence)
            if aside:
                exclusions.set_aside({s: sizes[s] if size else 0 for s, size in aside.items()})
        elif step == 4:
            returned: list[int] = []
            wanting = [one for one in consumers if one.wants()]
            assert exclusions.offer_to(wanting, returned, 4) < LOOKS_MAX
            assert len(returned) <= 4
            outside.update(returned)
        else:
            done = random.sample(range(1, 200), 2)
            gone.update(done)
            outside.difference_update(gone)
            exclusions.done(done)
        agree(exclusions, consumers, counted, gone)
    exclusions.recount(list(consumers), list(consumers), back := [])
    outside.update(back)
    agree(exclusions, consumers, counted, gone)
    exclusions.done(list(exclusions.aside))
    for one in consumers:
        exclusions.left(one, [])
    assert counted.aside.held == counted.excluded.held == 0 and exclusions.live == {} and exclusions.largest == 0


def test_limits_that_come_and_go_leave_nothing() -> None:
    exclusions = Exclusions(accounts())
    exclusions.joined(Idle(1))
    for limit in range(1_000):
        one = Idle(1)
        one.bytes_max = limit
        exclusions.joined(one)
        exclusions.left(one, [])
    assert len(exclusions._limits_heap) <= 32 and exclusions.largest == UNLIMITED


def aside(*sequences: int) -> tuple[Exclusions, Idle]:
    """These are set aside because of a consumer, which has looked at them."""
    exclusions, one = Exclusions(accounts()), Idle(10)
    exclusions.joined(one)
    exclusions.exclude(one, sequences)
    exclusions.set_aside(dict.fromkeys(sequences, 0))
    assert offered(exclusions, one) == []
    return exclusions, one


def offered(exclusions: Exclusions, *consumers: Idle, limit: int = 100) -> list[int]:
    returned: list[int] = []
    exclusions.offer_to(list(consumers), returned, limit)
    return sorted(returned)


def test_who_left_and_comes_back_is_offered_it_anew() -> None:
    """A custody link's sender is one consumer over all its connections."""
    exclusions, one = aside(1, 2)
    assert exclusions.left(one, []) == []
    exclusions.joined(one)
    assert offered(exclusions, one) == [1, 2]


def test_what_is_done_with_is_offered_to_nobody() -> None:
    exclusions, _ = aside(1, 2, 3)
    exclusions.done([2])
    assert offered(exclusions, Idle(10)) == [1, 3] and exclusions.live == {1: 1, 3: 1}


def test_what_is_set_aside_later_is_looked_at_by_who_had_nothing_before() -> None:
    exclusions, one = aside(1)
    exclusions.set_aside({2: 0})
    assert offered(exclusions, one) == [2] and list(exclusions.aside) == [1]


def test_each_gets_back_what_it_wants_and_no_more_than_the_limit_in_all() -> None:
    exclusions, _ = aside(*range(1, 11))
    assert offered(exclusions, Idle(2), Idle(5), limit=6) == [1, 2, 3, 4, 5, 6]
    assert list(exclusions.aside) == [7, 8, 9, 10]
