"""A NodeCore on a store on disk, without a wire: what a node leaves there, for tests of stores.

Rules of this file: virtual time; every turn is committed before the next.
"""

from pathlib import Path
from random import Random
from typing import Any

from holdfast.broker.cursors.entry_consumer import UNLIMITED
from holdfast.broker.entries import entry, packed
from holdfast.broker.queue import Queue
from holdfast.core import NodeCore
from holdfast.engine import events
from holdfast.engine.port import Batch
from holdfast.settings.node import NodeConfig
from holdfast.storage.lmdb import LmdbStore

WALL_MS = 1_700_000_000_000


def bare_of(size: int) -> bytes:
    """A bare message with one data section of `size` bytes."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)


class LoneNode:
    """`path`: the store's directory. Bounds of the store and limits of the node as given."""

    def __init__(self, path: Path, *, store: dict[str, Any] | None = None, **config: Any) -> None:
        self.store = LmdbStore(path, **(store or {"ahead_bytes": 1 << 20}))
        self.now = 0.0
        self.commits: list[Batch] = []
        settings = {"name": "alone", "create_queues": True} | config
        self.core = NodeCore(NodeConfig(**settings), self.store, rng=Random(1), wall_ms=WALL_MS, now=0.0)
        self.records: list[tuple[str, dict[str, Any]]] = []

    def turn(self, passed_s: float = 0.1) -> None:
        """One turn, and its commit."""
        self.now += passed_s
        self.do(events.TurnEnded(wall_ms=WALL_MS + int(self.now * 1000)))

    def do(self, event: events.Event) -> None:
        for command in self.core.handle(event, self.now):
            if isinstance(command, events.Commit):
                self.commits.append(command.batch)
                self.store.commit(command.batch)
                self.do(events.Committed(number=command.number, room_bytes=self.store.room_bytes()))
            elif isinstance(command, events.Record):
                self.records.append((command.kind, command.fields))

    def settle(self) -> int:
        """Turns until nothing is left to do at once; their number."""
        turns = 0
        while turns < 100_000:
            self.turn()
            turns += 1
            if not self.core.work.dirty_queues and not self.core.jobs.busy and not self.core.turns.gathered:
                return turns
        raise AssertionError("it never ends")

    def queue(self, name: str) -> Queue:
        found = (
            self.core.catalog.local("", name) if not name.startswith("@") else self.core.catalog.transmission(name[1:])
        )
        assert found is not None
        return found

    def fill(self, name: str, count: int, *, size: int = 100, expires_ms: int = 0, commit: bool = True) -> None:
        """`count` messages of `size` bytes into a queue; for `@NODE` in custody. A last turn ends it if `commit`."""
        queue = self.queue(name)
        bare = bare_of(size)
        for number in range(count):
            given = self.core.identities.next(name[1:]) if name.startswith("@") else None
            value = entry.pack(
                flags=entry.DURABLE,
                enqueued_ms=WALL_MS,
                bare=bare,
                expires_ms=expires_ms,
                identity=given,
                to="" if given is None else "work",
            )
            queue.append(value, packed.size_of(value))
            if number % 5_000 == 4_999:
                self.turn()
        if commit:
            self.turn()

    def sequences(self, name: str) -> list[int]:
        queue = self.core.catalog.queues[name]
        found: list[int] = []
        first = 0
        while chunk := self.store.read(queue.queue_id, first, count_max=10_000, bytes_max=1 << 30):
            found += [sequence for sequence, _ in chunk]
            first = found[-1] + 1
        return found

    def stop(self) -> None:
        """A proper stop."""
        self.do(events.Stopping())
        self.turn()
        self.store.close()

    def crash(self) -> None:
        """As a kill: nothing more is handed to the core."""
        self.store.close()


class Idle:
    """A consumer that holds what it is given; `credit` entries at most."""

    def __init__(self, credit: int) -> None:
        self.excluded: set[int] = set()
        self.bytes_max = UNLIMITED
        self.credit = credit
        self.taken: list[int] = []
        self.run_bytes_max = self.room_bytes = 65_536
        self.deferred = False

    def wants(self) -> int:
        return self.credit - len(self.taken)

    will_want = wants

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        return len(value)

    def count_held(self, size: int) -> None:
        """It counts nothing."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        self.taken.append(sequence)

    def take_all(self, sequences: Any, values: Any) -> int:
        room = min(self.wants(), len(sequences))
        self.taken += sequences[:room]
        return room
