"""A simulated disk with LMDB's store behind it: each batch goes to both, and what the node reads must be the same.

Rules of this file: the store in memory is the model. It has the faults, the room and the UUID; LMDB's store lies on a
file system of the machine, takes what the model took, and is opened anew with each life of the node. Where the two
differ the run fails, and the node goes on with what the model says.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from holdfast.engine.port import TABLES, Batch
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.check import check
from holdfast.units import MIB
from holdfast_lab.base.client_history import Violation
from holdfast_lab.sim.store import SimStore, Snapshot
from holdfast_lab.sim.world import World

BYTES_MAX: Final = 256 * MIB
"""Far beyond what a run stores: only the model is ever full."""
IN_MEMORY: Final = Path("/dev/shm")  # a sync costs nothing there


class PagedStore(SimStore):
    """Made as a SimStore; its directory is there until `take_away`."""

    def __init__(
        self, world: World, random: Random, mint: Callable[[], UUID], applied: Callable[[Batch], None]
    ) -> None:
        super().__init__(world, random, mint, applied)
        place = IN_MEMORY if IN_MEMORY.is_dir() else None
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=place))
        self._pages = self._opened()

    def _opened(self) -> LmdbStore:
        return LmdbStore(self._directory, bytes_max=BYTES_MAX, ahead_bytes=MIB)

    def _same(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.world.fail(Violation(f"LMDB's store differs in {what}: {found!r:.200} is not {expected!r:.200}"))

    # ------------------------------------------------------------------------------------------------ reading

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.table`."""
        expected = list(super().table(name))
        self._same(f"table {name}", list(self._pages.table(name)), expected)
        return iter(expected)

    def read(self, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """See `EntryReader.read`."""
        expected = super().read(queue_id, first, count_max=count_max, bytes_max=bytes_max)
        found = self._pages.read(queue_id, first, count_max=count_max, bytes_max=bytes_max)
        self._same(f"queue {queue_id} from {first}", found, expected)
        return expected

    def get(self, queue_id: int, sequence: int) -> bytes | None:
        """See `EntryReader.get`."""
        expected = super().get(queue_id, sequence)
        self._same(f"entry {sequence} of queue {queue_id}", self._pages.get(queue_id, sequence), expected)
        return expected

    def get_all(self, queue_id: int, sequences: Sequence[int], *, bytes_max: int) -> dict[int, bytes]:
        """See `EntryReader.get_all`."""
        expected = super().get_all(queue_id, sequences, bytes_max=bytes_max)
        found = self._pages.get_all(queue_id, sequences, bytes_max=bytes_max)
        self._same(f"entries {sequences} of queue {queue_id}", found, expected)
        return expected

    def piece(self, blob: int, index: int) -> bytes | None:
        """See `EntryReader.piece`."""
        expected = super().piece(blob, index)
        self._same(f"piece {index} of blob {blob}", self._pages.piece(blob, index), expected)
        return expected

    # ------------------------------------------------------------------------------------------------ writing

    def commit(self, batch: Batch) -> None:
        """See `Store.commit`."""
        super().commit(batch)
        self.world.judge(self._pages.commit, batch)

    def open_again(self) -> None:
        """A life of the node begins: it finds what is on disk."""
        self._pages.close()
        self._pages = self._opened()
        self._compare()

    def restore(self, snapshot: Snapshot) -> None:
        """See `SimStore.restore`."""
        self._pages.close()
        shutil.rmtree(self._directory)
        self._pages = self._opened()
        super().restore(snapshot)

    def check(self) -> None:
        """The run is over: Violation where LMDB's store holds something else, or its pages or rows are wrong."""
        self._compare()
        self._pages.close()
        wrong = check(self._directory).findings
        self._pages = self._opened()
        if wrong:
            raise Violation(f"the store's check finds: {wrong[0]}")
        if self.world.failure is not None:  # no event comes any more that would raise it
            raise self.world.failure

    def _compare(self) -> None:
        for name in TABLES:
            self.table(name)
        for queue_id, queue in self._queues.items():
            found: dict[int, bytes] = {}
            first = 0
            while rows := self._pages.read(queue_id, first, count_max=1_000, bytes_max=MIB):
                found.update(rows)
                first = rows[-1][0] + 1
                if first >= 2**64:
                    break
            self._same(f"queue {queue_id}", found, queue.values)
        for blob, pieces in self._blobs.items():
            for index in pieces:
                self.piece(blob, index)

    def take_away(self) -> None:
        """See `SimStore.take_away`."""
        self._pages.close()
        shutil.rmtree(self._directory, ignore_errors=True)
