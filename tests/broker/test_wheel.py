"""The wheel of seconds: every block is looked at in its time, and what is kept follows what is there."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.entries.wheel import BLOCK_COUNT, LATE_PARTS, PRUNE_COUNT, STEP_S_MAX, Wheel, due_s
from support import today


class Blocks:
    """What a wheel knows of a queue. `first` and `above` as `Queue.unfinished` answers."""

    def __init__(self) -> None:
        self.expiring: dict[int, int] = {}
        self.expiring_max = PRUNE_COUNT
        self.first = 0
        self.above: list[int] = []
        self.asked = 0

    def unfinished(self) -> tuple[int, list[int]]:
        self.asked += 1
        return self.first, self.above


@given(now_ms=st.integers(0, 10**13), ttl_ms=st.integers(1, 2**32 - 1))
def test_an_entry_is_looked_for_soon_after_its_end(now_ms: int, ttl_ms: int) -> None:
    expires_ms = now_ms + ttl_ms
    late_ms = 1000 * due_s(expires_ms, ttl_ms) - expires_ms
    assert 0 <= late_ms <= max(1_000, min(ttl_ms / LATE_PARTS, STEP_S_MAX * 1_000))


def test_few_seconds_are_in_use_whatever_the_times_to_live() -> None:
    """A peer that draws each time to live at will makes no more slots than this."""
    now_ms = 1_234_567
    seconds = {due_s(now_ms + ttl_ms, ttl_ms) for ttl_ms in range(1, 7_200_000, 137)}
    assert len(seconds) <= 64 * 8 + 64


@settings(max_examples=today.drawn(67))
@given(
    noted=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20 * BLOCK_COUNT), st.integers(1, 50)), max_size=200),
    forgotten=st.integers(0, 2),
)
def test_each_block_comes_once_at_the_soonest_of_its_entries(noted: list[Any], forgotten: int) -> None:
    wheel, queues = Wheel(), [Blocks() for _ in range(3)]
    expected: dict[tuple[int, int], int] = {}
    for index, sequence, second in noted:
        wheel.note(queues[index], sequence, second)
        key = index, sequence // BLOCK_COUNT
        expected[key] = min(second, expected.get(key, second))
    wheel.forget(queues[forgotten])
    expected = {key: second for key, second in expected.items() if key[0] != forgotten}
    found: dict[tuple[int, int], int] = {}
    for second in range(51):
        while (item := wheel.take(second)) is not None:
            found[queues.index(item[0]), item[1]] = second
    assert found == expected and wheel.first_s() is None
    assert not any(queue.expiring for queue in queues)


def test_blocks_of_what_consumers_took_are_forgotten() -> None:
    """A queue through which messages flow for ever keeps as many blocks as it has messages."""
    wheel, queue = Wheel(), Blocks()
    for sequence in range(0, 10_000 * BLOCK_COUNT, BLOCK_COUNT // 2):
        queue.first = sequence - 10 * BLOCK_COUNT
        queue.above = [5 * BLOCK_COUNT]
        wheel.note(queue, sequence, 1_000_000 + sequence)
        assert len(queue.expiring) <= PRUNE_COUNT + 1
    assert 5 in queue.expiring and len(wheel._slots) <= PRUNE_COUNT + 1 and len(wheel._seconds) <= PRUNE_COUNT + 1


@pytest.mark.parametrize("alive", [1, PRUNE_COUNT, 8 * PRUNE_COUNT])
def test_blocks_are_looked_through_seldom_however_many_there_are(alive: int) -> None:
    """All of them are looked through when there are twice as many: each note pays for a few."""
    wheel, queue = Wheel(), Blocks()
    count = 16 * PRUNE_COUNT
    for block in range(count):
        queue.first = (block - alive) * BLOCK_COUNT
        wheel.note(queue, block * BLOCK_COUNT, block)
    assert queue.asked <= 2 * count / PRUNE_COUNT
    assert len(queue.expiring) <= max(PRUNE_COUNT, 2 * alive) + 1
