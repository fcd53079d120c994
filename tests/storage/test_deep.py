"""A deep store: what a node's start reads of it, and what it keeps in memory (five million: benchmarks/macro)."""

from pathlib import Path

import pytest

from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.check import check
from support.stores import LoneNode

DEEP = 200_000
QUEUES = 2_000


def test_a_start_reads_no_entry_however_deep_a_queue_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a turn, a deadline or a stop; a queue's report reads its oldest."""
    node = LoneNode(tmp_path, telemetry=False)
    node.fill("deep", DEEP, size=20)
    for number in range(QUEUES):
        node.fill(f"q{number:05}", 1, size=20, commit=False)
    node.stop()
    reads: list[int] = []
    read = LmdbStore.read

    def counted(store: LmdbStore, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> object:
        reads.append(count_max)
        return read(store, queue_id, first, count_max=count_max, bytes_max=bytes_max)

    monkeypatch.setattr(LmdbStore, "read", counted)
    node = LoneNode(tmp_path, telemetry=False)
    assert node.core.next_deadline() is not None
    node.turn()
    assert len(node.core.catalog.queues) == QUEUES + 1
    assert reads == []
    told = node.core.queue_status.of(node.queue("deep"))
    assert (told["messages"], told["next_sequence"]) == (DEEP, DEEP + 1) and reads == [1]
    assert node.queue("deep").head() == 1 and reads == [1, 64]
    node.stop()
    assert reads == [1, 64]
    monkeypatch.undo()
    checked = check(tmp_path)
    assert checked.findings == [] and (checked.entries, checked.queues) == (DEEP + QUEUES, QUEUES + 1)


def test_a_deep_queue_drains_and_its_pages_are_used_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, ahead_bytes=1 << 20)
    sizes = []
    for life in range(2):
        first = life * DEEP
        for start in range(first, first + DEEP, 10_000):
            store.commit(Batch(appends=[(1, sequence, bytes(60)) for sequence in range(start, start + 10_000)]))
        sizes.append(store.bytes_on_disk())
        for start in range(first, first + DEEP, 2_000):
            store.commit(Batch(retires=[(1, sequence) for sequence in range(start, start + 2_000)]))
        assert store.read(1, 0, count_max=1, bytes_max=1) == []
    assert sizes[1] <= sizes[0] * 1.2 + (4 << 20)
    store.close()
    assert check(tmp_path).findings == []
