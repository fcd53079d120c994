"""LMDB's store beside the one in memory: whatever is done to both, both answer the same."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.broker.port import TABLES, Batch
from holdfast.storage.lmdb import CHUNK_BYTES, LmdbStore
from holdfast.storage.memory import MemoryStore
from holdfast.units import MIB

QUEUES = st.sampled_from([0, 1, 2, 7, 2**32 - 1])
SEQUENCES = st.integers(0, 30) | st.sampled_from([2**64 - 1, 255, 256])
SIZES = st.integers(0, 3_000) | st.sampled_from(
    [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 150_000]
)
VALUES = st.builds(lambda size, byte: bytes([byte]) * size, SIZES, st.integers(0, 255))
ROWS = st.tuples(st.sampled_from(TABLES), st.binary(min_size=1, max_size=2))
BATCHES = st.builds(
    Batch,
    appends=st.lists(st.tuples(QUEUES, SEQUENCES, VALUES), max_size=8),
    retires=st.lists(st.tuples(QUEUES, SEQUENCES), max_size=8),
    puts=st.dictionaries(ROWS, st.binary(max_size=10), max_size=4),
    deletes=st.lists(ROWS, max_size=4),
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

    @rule(queue=QUEUES, first=SEQUENCES, count=st.integers(1, 8), size=st.integers(1, 300_000))
    def read(self, queue: int, first: int, count: int, size: int) -> None:
        expected = self.plain.read(queue, first, count_max=count, bytes_max=size)
        assert self.disk.read(queue, first, count_max=count, bytes_max=size) == expected

    @rule(queue=QUEUES, sequence=SEQUENCES)
    def get(self, queue: int, sequence: int) -> None:
        assert self.disk.get(queue, sequence) == self.plain.get(queue, sequence)

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
    def no_piece_is_left_behind(self) -> None:
        """Each piece in `chunks` belongs to an entry that needs it."""
        with self.disk._env.begin() as txn:
            places = [key for key, _ in txn.cursor(db=self.disk._chunks)]
            heads = dict(txn.cursor(db=self.disk._entries))
        assert all(len(heads[place[:12]]) == CHUNK_BYTES for place in places)


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
