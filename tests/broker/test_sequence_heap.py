"""Sequences of which any may be removed, against a set (broker/cursors/sequence_heap.py)."""

from collections.abc import Iterable
from random import Random

import pytest

from holdfast.broker.cursors import sequence_heap
from holdfast.broker.cursors.sequence_heap import SequenceHeap
from support import today


@pytest.mark.parametrize("seed", today.some(range(30), 6))
def test_it_is_as_a_set_and_its_lowest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(sequence_heap, "SPARE", random.choice((0, 3, 64)))
    heap, known = SequenceHeap(), set[int]()
    most = random.choice((5, 200))
    for _ in range(500):
        act, sequence = random.randrange(8), random.randrange(most)
        if act < 4:
            heap.add(sequence)
            known.add(sequence)
        elif act < 7:
            sequence = min(known) if act == 4 and known else sequence
            heap.discard(sequence)
            known.discard(sequence)
        elif random.random() < 0.2:
            keep = random.choice(("keep_below", "keep_from"))
            getattr(heap, keep)(sequence)
            known = {item for item in known if (item < sequence) == (keep == "keep_below")}
        assert {*heap} == known and len(heap) == len(known) and heap.first == min(known, default=None)
        assert sequence in known or sequence not in heap


def test_what_is_added_and_removed_again_and_again_takes_no_more_memory() -> None:
    heap = SequenceHeap()
    heap.add(0)
    for _ in range(1_000):
        heap.add(9)
        heap.discard(9)
    assert len(heap._heap) <= 2 * len(heap) + sequence_heap.SPARE + 1


def test_removing_one_of_many_costs_little_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    replace = SequenceHeap.replace

    def counting(heap: SequenceHeap, sequences: Iterable[int]) -> None:
        replace(heap, sequences)
        built.append(len(heap))

    monkeypatch.setattr(SequenceHeap, "replace", counting)
    heap = SequenceHeap()
    for sequence in range(10_000):
        heap.add(sequence)
    for sequence in range(9_999, 0, -1):
        heap.discard(sequence)
    assert sum(built) < 10_000 and heap.first == 0 and len(heap) == 1
