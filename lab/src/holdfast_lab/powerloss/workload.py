"""What the recorded process does with its store, drawn from a seed, and the same on a dict for comparison.

    python -m holdfast_lab.powerloss.workload STORE LOG SEED FIRST LAST

Rules of this file: step N is a function of (seed, N, what is stored), so that who replays the log knows every
state the store may be in. What a step began and what came of it is written into the log between the calls that
the store made, by `mark`.
"""

import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast.engine.port import PIECE_BYTES, TABLES, Batch
from holdfast.errors import StorageFull
from holdfast.storage.layout.records import CHUNK_BYTES, WHOLE_BYTES
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.port import Store
from holdfast.storage.upkeep.compaction import compact
from holdfast.units import KIB, MIB
from holdfast_lab.powerloss.calls import mark_bytes

BYTES_MAX: Final = 3 * MIB
AHEAD_BYTES: Final = 64 * KIB
"""Small, so that the file grows several times and fills."""

QUEUES: Final = (1, 2, 7)
MIDDLE: Final = 7
"""The queue whose appends fall between what is there."""

MINT_EVERY: Final = 13
REOPEN_EVERY: Final = 19
COMPACT_EVERY: Final = 38
"""Of every second time that the store is closed it is compacted before it is opened again."""
TIDE: Final = 30
"""Steps of a tide: two thirds flood, one third ebb."""

SIZES: Final = (0, 40, 200, 1_000, 1_400, 4_070, 9_000, WHOLE_BYTES - 6, WHOLE_BYTES - 5, 2 * CHUNK_BYTES, 150_000)
WEIGHTS: Final = (1, 4, 4, 6, 4, 3, 3, 1, 1, 1, 2)
BLOBS: Final = (1, 2, 2**40)
PIECES_MAX: Final = 8
ROW: Final = ("node", b"step")
"""Holds the number of the last batch."""
MINT_ROW: Final = ("custody", b"minted")
"""Holds the number of the last step that minted a UUID: there with that UUID, or not at all."""


@dataclass(slots=True)
class State:
    """All that a store holds. `uuid` is empty before there is one."""

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    tables: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    uuid: str = ""
    pieces: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def after(self, batch: Batch) -> "State":
        """A new state: this one with `batch`, in the order that `Batch` promises."""
        entries, tables, pieces = dict(self.entries), dict(self.tables), dict(self.pieces)
        for row in batch.deletes:
            tables.pop(row, None)
        tables.update(batch.puts)
        for place in batch.retires:
            entries.pop(place, None)
        for blob, first, end in batch.drops:
            pieces = {place: data for place, data in pieces.items() if place[0] != blob or not first <= place[1] < end}
        entries.update({(queue, sequence): value for queue, sequence, value in batch.appends})
        pieces.update({(blob, index): data for blob, index, data in batch.pieces})
        return State(entries, tables, self.uuid, pieces)

    def digest(self) -> str:
        """Of entries, tables and blobs; not of the UUID, which nobody can foretell."""
        found = hashlib.blake2b(digest_size=16)
        for (queue, sequence), value in sorted(self.entries.items()):
            found.update(b"e%d %d %d " % (queue, sequence, len(value)) + value)
        for (table, key), value in sorted(self.tables.items()):
            found.update(b"t%s %d %d " % (table.encode(), len(key), len(value)) + key + value)
        for (blob, index), data in sorted(self.pieces.items()):
            found.update(b"p%d %d %d " % (blob, index, len(data)) + data)
        return found.hexdigest()

    def minted(self, number: int, uuid: str) -> "State":
        """A new state: this one once step `number` has minted that UUID."""
        return State(self.entries, {**self.tables, MINT_ROW: b"%d" % number}, uuid, self.pieces)

    @property
    def step(self) -> int:
        return int(self.tables.get(ROW, b"0"))


def read_state(store: Store) -> State:
    """What `store` holds, read through its own methods."""
    entries = {
        (queue, sequence): value
        for queue in QUEUES
        for sequence, value in store.read(queue, 0, count_max=1_000_000, bytes_max=1 << 40)
    }
    tables = {(table, key): value for table in TABLES for key, value in store.table(table)}
    pieces = {
        (blob, index): data
        for blob in BLOBS
        for index in range(PIECES_MAX)
        if (data := store.piece(blob, index)) is not None
    }
    return State(entries, tables, store.uuid.hex, pieces)


def is_mint(number: int) -> bool:
    """Whether step `number` mints a UUID instead of committing a batch."""
    return number % MINT_EVERY == 5


def draw_batch(seed: int, number: int, state: State) -> Batch:
    """Step `number` of `seed` on `state`: appends of all sizes, retirements, rows; at flood more comes than goes."""
    random = Random(f"batch {seed} {number}")
    batch = Batch()
    flood = number % TIDE < TIDE * 2 // 3
    present = sorted(state.entries)
    for place in range(random.randint(0, 24 if flood else 3)):
        queue = random.choice(QUEUES)
        sequence = random.randrange(10**6) if queue == MIDDLE else number * 100 + place
        if present and random.random() < 0.05:
            queue, sequence = random.choice(present)  # written anew
        size = random.choices(SIZES, WEIGHTS)[0]
        batch.appends.append((queue, sequence, random.randbytes(size)))
    goes = min(len(present), random.randint(0, 6 if flood else 40))
    order = random.random()
    batch.retires = present[:goes] if order < 0.5 else random.sample(present, goes)
    batch.retires.append((1, 10**9))  # never there
    batch.puts[ROW] = b"%d" % number
    for _ in range(random.randint(0, 3)):
        row = (random.choice(TABLES), b"row %d" % random.randrange(20))
        batch.puts[row] = random.randbytes(random.choice((0, 10, 100, 3_000)))
    batch.deletes = [(random.choice(TABLES), b"row %d" % random.randrange(20)) for _ in range(random.randint(0, 2))]
    for _ in range(random.randint(0, 4 if flood else 1)):
        size = random.choice((1, 3_000, PIECE_BYTES, PIECE_BYTES))
        batch.pieces.append((random.choice(BLOBS), random.randrange(PIECES_MAX), random.randbytes(size)))
    for _ in range(random.randint(0, 1 if flood else 4)):
        first = random.randrange(PIECES_MAX)
        batch.drops.append((random.choice(BLOBS), first, first + random.randint(0, 4)))
    return batch


def open_store(path: Path) -> LmdbStore:
    """The store under test, as recorder and checker open it."""
    return LmdbStore(path, bytes_max=BYTES_MAX, ahead_bytes=AHEAD_BYTES)


class Life:
    """One run of the process: steps `first` to `last` on the store in `path`, marked in `log` (a descriptor)."""

    def __init__(self, path: Path, log: int, seed: int) -> None:
        self.path = path
        self.log = log
        self.seed = seed
        self.store, self.state = self._open()

    def mark(self, **fields: Any) -> None:
        """One record of kind 'M', in one call: it lies between those of the store."""
        os.write(self.log, mark_bytes(**fields))

    def _open(self) -> tuple[LmdbStore, State]:
        store = open_store(self.path)
        state = read_state(store)
        self.mark(did="open", step=state.step, uuid=state.uuid)
        return store, state

    def run(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self._step(number)
            if number % REOPEN_EVERY == 0:
                self.store.close()
                if number % COMPACT_EVERY == 0:
                    compact(self.path)
                    self.mark(did="compacted")
                self.store, self.state = self._open()
        self.store.close()
        self.mark(did="end")

    def _step(self, number: int) -> None:
        self.mark(did="begin", step=number)
        if is_mint(number):
            self.state = self.state.minted(number, self.store.mint(lambda _: {MINT_ROW: b"%d" % number}).hex)
            self.mark(did="mint", step=number, uuid=self.state.uuid)
            return
        batch = draw_batch(self.seed, number, self.state)
        try:
            self.store.commit(batch)
        except StorageFull:
            self.mark(did="full", step=number)
        else:
            self.state = self.state.after(batch)
            self.mark(did="commit", step=number)


def main(arguments: list[str]) -> int:
    path, log, seed, first, last = arguments
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    Life(Path(path), descriptor, int(seed)).run(int(first), int(last))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
