"""A simulated disk under a node's store: commits take time, and what a crash finds unsynced may be gone.

Rules of this file: a commit changes what `read` gives only when its sync has come back. The fate of one that a crash
meets is drawn from the seed: never written, torn (recovery drops it), or whole without a report.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from random import Random
from typing import Final
from uuid import UUID

from holdfast.engine.port import Batch
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.memory import MemoryStore
from holdfast_lab.sim.world import Timer, World

SYNC_S: Final = 0.002
BYTES_PER_S: Final = 200e6


class Fate(Enum):
    """The outcome of a commit that was in flight when the node died."""

    NONE = "nothing under way"
    LOST = "never written"
    TORN = "torn, dropped by recovery"
    WHOLE = "whole, its answer lost"


class SimStore(MemoryStore):
    """Outlives its node's crashes. `applied` is called with each batch that is on disk, in order."""

    def __init__(
        self, world: World, random: Random, mint: Callable[[], UUID], applied: Callable[[Batch], None]
    ) -> None:
        super().__init__(mint_from=mint)
        self.world = world
        self.random = random
        self.applied = applied
        self.slow = 1.0
        self.fail_next_sync = False
        self.refuse_appends = 0
        """So many of the next commits that append something find no space."""
        self.refuse_all = False
        """Whether no commit at all finds space, not even one that appends nothing."""
        self.held = False
        self.stalled = False
        """No commit at all comes back, over crashes of the node too, until it is `unstall`ed."""
        self._ready: tuple[Batch, Callable[[Exception | None], None]] | None = None
        self._under_way: tuple[Batch, Timer] | None = None

    # ------------------------------------------------------------------------------------------------ commits

    def begin(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        """Commits; `done(None)` after the sync, else with the error: StorageFull changed nothing."""
        assert self._under_way is None, "one commit at a time"
        seconds = (SYNC_S + batch.bytes_appended / BYTES_PER_S) * self.slow * self.random.uniform(0.5, 2.0)
        self._under_way = batch, self.world.after(seconds, self._finish, batch, done)

    @property
    def under_way(self) -> Batch | None:
        """The batch that is being committed."""
        return self._under_way[0] if self._under_way is not None else None

    def hold(self) -> None:
        """Commits with appends do not return from now on: it stays under way until `release` or a crash."""
        self.held = True

    def release(self) -> None:
        """Commits come back again, the one that was held at once."""
        self.held = False
        self._go_on()

    def stall(self) -> None:
        """The disk does not answer from now on."""
        self.stalled = True

    def unstall(self) -> None:
        """The disk answers again."""
        self.stalled = False
        self._go_on()

    def _go_on(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            self._under_way = ready[0], self.world.after(0.0, self._finish, *ready)

    def _finish(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        if self.stalled or (self.held and (batch.appends or batch.pieces)):
            self._ready = batch, done
            return
        self._under_way = None
        refused = self.refuse_all
        if self.refuse_appends and (batch.appends or batch.pieces):
            self.refuse_appends -= 1
            refused = True
        if refused:
            done(StorageFull("the simulated disk has no space for this commit"))
            return
        if self.fail_next_sync:
            self.fail_next_sync = False
            if self.random.random() < 0.5:  # the sync failed, the write may still be there
                with suppress(StorageFull):
                    self._apply_now(batch)
            done(StorageError("the simulated disk failed at a sync"))
            return
        try:
            self._apply_now(batch)
        except StorageFull as error:
            done(error)
            return
        done(None)

    def open_again(self) -> None:
        """A life of the node begins."""

    def check(self) -> None:
        """The run is over: Violation where the disk holds something else than was committed."""

    def take_away(self) -> None:
        """Nothing is left of it on the machine's own disks; it must not be used afterwards."""

    def _apply_now(self, batch: Batch) -> None:
        self.commit(batch)
        self.applied(batch)

    def crash(self) -> Fate:
        """The node is gone; what was under way ends as the seed says."""
        if self._under_way is None:
            return Fate.NONE
        batch, timer = self._under_way
        self._under_way = self._ready = None
        timer.cancel()
        fate = (Fate.LOST, Fate.TORN, Fate.WHOLE)[self.random.randrange(3)]
        if fate is Fate.WHOLE:
            try:
                self._apply_now(batch)
            except StorageFull:
                return Fate.LOST
        return fate

    # ------------------------------------------------------------------------------------------------ faults

    def fill(self, room_bytes: int | None) -> None:
        """Limits the room that the disk has left; None: no limit again."""
        with self._lock:
            self._bytes_max = None if room_bytes is None else self._bytes_used + room_bytes

    def bound(self, bytes_max: int) -> None:
        """Sets the size of the disk, whatever it holds."""
        with self._lock:
            self._bytes_max = bytes_max

    def snapshot(self) -> "Snapshot":
        """A backup of what is on disk now."""
        with self._lock:
            queues = {number: dict(queue.values) for number, queue in self._queues.items()}
            blobs = {number: dict(pieces) for number, pieces in self._blobs.items()}
            return Snapshot(self.uuid, queues, dict(self._tables), blobs)

    def restore(self, snapshot: "Snapshot") -> None:
        """The disk becomes what it was, behind the node's back: not even the UUID is new. The node must be down.

        What lay there has room, however full the disk is now.
        """
        assert self._under_way is None
        bytes_max, self._bytes_max = self._bytes_max, None
        with self._lock:
            self._queues.clear()
            self._tables.clear()
            self._blobs.clear()
            self._bytes_used = 0
        self.uuid = snapshot.uuid
        batch = Batch()
        batch.puts.update(snapshot.tables)
        for number, values in snapshot.queues.items():
            batch.appends += [(number, sequence, values[sequence]) for sequence in sorted(values)]
        for blob, pieces in snapshot.blobs.items():
            batch.pieces += [(blob, index, pieces[index]) for index in sorted(pieces)]
        self.commit(batch)
        self._bytes_max = bytes_max


class Snapshot:
    """What `SimStore.snapshot` took."""

    __slots__ = ("blobs", "queues", "tables", "uuid")

    def __init__(
        self,
        uuid: UUID,
        queues: dict[int, dict[int, bytes]],
        tables: dict[tuple[str, bytes], bytes],
        blobs: dict[int, dict[int, bytes]],
    ) -> None:
        self.uuid = uuid
        self.queues = queues
        self.tables = tables
        self.blobs = blobs
