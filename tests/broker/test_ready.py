"""The index of what is ready by priority, against lists (broker/cursors/ready.py)."""

from random import Random

import pytest

from holdfast.broker.cursors.ready import BLOCK_BITS, LEVELS, READY_BYTES, Level, Ready, level_of
from holdfast.broker.cursors.waiting_for_others import FOR_OTHERS_BYTES
from support import today


def test_priorities_above_nine_are_one_level() -> None:
    assert [level_of(bytes((1, 0, priority))) for priority in (0, 4, 9, 10, 255)] == [0, 4, 9, 9, 9]


@pytest.mark.parametrize("seed", today.some(range(40), 10))
def test_a_level_is_as_two_lists(seed: int) -> None:
    random = Random(seed)
    level = Level()
    ordered: list[int] = []
    back: set[int] = set()
    end = 1
    step = random.choice((1, 3, 1 << BLOCK_BITS - 1, 1 << BLOCK_BITS + 1))
    for _ in range(400):
        act = random.randrange(9)
        if act < 3 and level.behind is None:
            some = [end := end + random.randrange(1, step + 1) for _ in range(random.randrange(1, 9))]
            level.extend(some)
            ordered += some
        elif act == 3:
            sequence = random.randrange(1, end + 1)
            level.give_back(sequence)
            if level.behind is None or sequence < level.behind:
                back.add(sequence)
        elif act == 4 and (ordered or back):
            first = min([*ordered[:1], *back])
            assert level.first == first
            level.remove(first)
            ordered, back = ordered[ordered[:1] == [first] :], back - {first}
        elif act == 5 and ordered:
            count = random.randrange(1, len(ordered) + 1)
            assert level.peek(count) == ordered[:count]
            level.skip(count)
            del ordered[:count]
        elif act == 6 and random.random() < 0.2:
            kept = random.randrange(0, len(ordered) + 1)
            if kept < len(ordered):
                behind = ordered[kept]
                level.cut(kept)
                assert level.behind == behind
                del ordered[kept:]
                back = {item for item in back if item < behind}
            level.behind = None  # it was looked at again, and nothing is left of it
        elif act == 7 and random.random() < 0.2:
            place = random.randrange(0, end + 2)
            level.drop_below(place)
            ordered, back = [item for item in ordered if item >= place], {item for item in back if item >= place}
        elif act == 8:
            sequence = random.choice([*ordered, *back, random.randrange(1, end + 1)])
            level.discard(sequence)
            ordered, back = [item for item in ordered if item != sequence], back - {sequence}
        assert len(level) == len(ordered) + len(back) and level.in_order == len(ordered)
        assert level.came_back == min(back, default=None)
        assert level.all() == {*ordered, *back}
    known = {*ordered, *back}
    near = {item + step for item in (*known, end) for step in (0, 1, 1 << 16)}
    assert {item for item in near if level.is_ready(item)} == known


def value(priority: int) -> bytes:
    return bytes((1, 0, priority))


def test_the_highest_is_peeked_first_and_what_came_back_by_itself() -> None:
    ready = Ready()
    ready.extend([(sequence, value(sequence % 3)) for sequence in range(1, 10)])
    assert ready.peek(4) == [2, 5, 8, 1] and ready.peek(99) == [2, 5, 8, 1, 4, 7, 3, 6, 9]
    ready.skip(4)
    assert ready.peek(99) == [4, 7, 3, 6, 9] and len(ready) == 5
    ready.levels[1].give_back(1)
    assert ready.peek(99) == [1]
    ready.levels[2].give_back(2)
    ready.levels[2].remove(2)
    ready.levels[1].remove(1)
    ready.levels[0].give_back(100)
    assert ready.peek(99) == [4, 7], "behind it something came back"


def test_it_forgets_the_youngest_of_the_lowest_and_takes_no_more_of_them() -> None:
    ready = Ready()
    ready.extend([(sequence, value(sequence % 2)) for sequence in range(1, 9)])
    assert ready.shrink()
    assert ready.levels[0].behind == 6 and ready.all() == {2, 4, 1, 3, 5, 7}
    ready.extend([(9, value(0)), (10, value(1))])
    assert ready.all() == {2, 4, 1, 3, 5, 7, 10}
    assert ready.peek(99) == [1, 3, 5, 7, 10, 2, 4]
    while ready.shrink():
        pass
    assert not len(ready) and [level.behind for level in ready.levels[:2]] == [2, 1]
    assert ready.size == 0 and len(ready.levels) == LEVELS


def test_what_was_forgotten_stays_behind_where_lower_ones_leave() -> None:
    """What lies between is known still, and is not looked for again."""
    level = Level()
    level.extend(list(range(20)))
    level.cut(10)
    assert level.behind == 10 and level.all() == set(range(10))
    level.drop_below(5)
    assert level.behind == 10 and level.all() == {5, 6, 7, 8, 9} and level.first == 5
    level.drop_below(15)
    assert level.behind == 15 and level.all() == set() and level.first is None


def test_what_waits_for_others_behind_what_must_be_scanned_waits_for_that() -> None:
    """It had come back, and was offered before what came in order."""
    level, one = Level(), object()
    level.extend([1, 5, 9])
    level.give_back(7)
    level.leave_to_others(7, [one], 9)
    level.cut(1)
    level.skip(1)
    assert level.behind == 5 and level.first_for([one]) is None
    level.behind = None  # it was scanned, and nothing is left of it
    assert level.first_for([one]) == 7


def test_the_lowest_of_all_is_not_known_before_what_was_forgotten_is_scanned() -> None:
    level = Level()
    level.extend([1, 2, 3])
    for sequence in (1, 2):
        level.leave_to_others(sequence, [], 1)
    assert level.for_others.forgotten_from == 2 and level.lowest == 1
    level.remove(1)
    assert level.first_of_all == 3 and level.lowest is None and level.behind is None


def test_what_waits_for_others_is_counted_for_itself() -> None:
    ready = Ready()
    for level in (ready.levels[2], ready.levels[7]):
        level.extend([1, 2])
        level.leave_to_others(1, [], 9)
    assert (ready.for_others_size, ready.size) == (2 * FOR_OTHERS_BYTES, 2 * READY_BYTES)
