"""LMDB's store beside the one in memory: whatever is done to both, both answer the same."""

import tempfile
from pathlib import Path

from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.engine.port import TABLES, Batch
from holdfast.storage.layout.records import CHUNK_BYTES, WHOLE_BYTES
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.memory import MemoryStore
from holdfast.units import MIB
from support import today

QUEUES = st.sampled_from([0, 1, 2, 7, 2**32 - 1])
SEQUENCES = st.integers(0, 30) | st.sampled_from([2**64 - 1, 255, 256])
SIZES = st.integers(0, 3_000) | st.sampled_from(
    [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, WHOLE_BYTES - 6, WHOLE_BYTES - 5, 150_000]
)
VALUES = st.builds(lambda size, byte: bytes([byte]) * size, SIZES, st.integers(0, 255))
STEPS = st.sampled_from([1, 1, 2, 3, 7])
ROWS = st.tuples(st.sampled_from(TABLES), st.binary(min_size=1, max_size=2))
BLOBS = st.sampled_from([0, 1, 2, 2**64 - 1])
INDICES = st.integers(0, 6) | st.just(2**32 - 1)
BATCHES = st.builds(
    Batch,
    appends=st.lists(st.tuples(QUEUES, SEQUENCES, VALUES), max_size=8),
    retires=st.lists(st.tuples(QUEUES, SEQUENCES), max_size=8),
    puts=st.dictionaries(ROWS, st.binary(max_size=10), max_size=4),
    deletes=st.lists(ROWS, max_size=4),
    pieces=st.lists(st.tuples(BLOBS, INDICES, st.binary(min_size=1, max_size=5)), max_size=6),
    drops=st.lists(st.tuples(BLOBS, INDICES, INDICES), max_size=3),
)


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.plain = MemoryStore()
        self.disk = self.opened()

    def opened(self) -> LmdbStore:
        return LmdbStore(Path(self.directory.name), bytes_max=256 * MIB, ahead_bytes=MIB)

    def teardown(self) -> None:
        self.disk.close()
        self.directory.cleanup()

    @rule(batch=BATCHES)
    def commit(self, batch: Batch) -> None:
        self.plain.commit(batch)
        self.disk.commit(batch)

    @rule(queue=QUEUES, first=SEQUENCES, sizes=st.lists(st.integers(0, 700), min_size=2, max_size=60), step=STEPS)
    def commit_a_run(self, queue: int, first: int, sizes: list[int], step: int) -> None:
        """Consecutive entries, which share records; every `step`th before them leaves, or all."""
        appends = [(queue, first + index, bytes([index]) * size) for index, size in enumerate(sizes)]
        retires = [(queue, sequence) for sequence in range(max(0, first - 40), first, step)]
        self.commit(Batch(appends=[item for item in appends if item[1] < 2**64], retires=retires))

    @rule(queue=QUEUES, first=SEQUENCES, count=st.integers(1, 60), step=STEPS)
    def retire_a_run(self, queue: int, first: int, count: int, step: int) -> None:
        places = [(queue, sequence) for sequence in range(first, first + count, step) if sequence < 2**64]
        self.commit(Batch(retires=places))

    @rule(queue=QUEUES, first=SEQUENCES, count=st.integers(1, 80), size=st.integers(1, 300_000))
    def read(self, queue: int, first: int, count: int, size: int) -> None:
        expected = self.plain.read(queue, first, count_max=count, bytes_max=size)
        assert self.disk.read(queue, first, count_max=count, bytes_max=size) == expected
        scattered = [first + 3 * step for step in range(min(count, 20)) if first + 3 * step < 2**64][::-1]
        expected_of = self.plain.get_all(queue, scattered, bytes_max=size)
        assert self.disk.get_all(queue, scattered, bytes_max=size) == expected_of

    @rule(queue=QUEUES, sequence=SEQUENCES)
    def get(self, queue: int, sequence: int) -> None:
        assert self.disk.get(queue, sequence) == self.plain.get(queue, sequence)

    @rule(blob=BLOBS, index=INDICES)
    def piece(self, blob: int, index: int) -> None:
        assert self.disk.piece(blob, index) == self.plain.piece(blob, index)

    @rule()
    def open_again(self) -> None:
        before = self.disk.uuid
        self.disk.close()
        self.disk = self.opened()
        assert self.disk.uuid == before

    @invariant()
    def tables_agree(self) -> None:
        for name in TABLES:
            assert list(self.disk.table(name)) == list(self.plain.table(name))

    @invariant()
    def rows_belong_together(self) -> None:
        """Each piece and each set of gaps belongs to a record that needs it; no two records cover one place."""
        entries = self.disk._entries
        with self.disk._env.begin() as txn:
            handles = (entries._entries, entries._chunks, entries._gaps)
            records, chunks, gaps = [dict(txn.cursor(db=handle)) for handle in handles]
        counts = {key: int.from_bytes(record[:2], "big") for key, record in records.items()}
        assert all(counts[place[:12]] == 0 for place in chunks)
        assert all(0 < int.from_bytes(gone, "little") < (1 << counts[key]) - 1 for key, gone in gaps.items())
        covered = [
            (key[:4], int.from_bytes(key[4:], "big") + index) for key in records for index in range(counts[key] or 1)
        ]
        assert len(covered) == len(set(covered))


TestStoresAgree = seed(today.number)(StoresAgree).TestCase
TestStoresAgree.settings = settings(max_examples=today.drawn(20), stateful_step_count=25, deadline=None)
