"""The named producers: which numbers of each are stored (CLIENTS 13 to 17).

Rules of this file: a row is in the batch that stores its messages. At the bound the producer that was idle the longest
is forgotten.
"""

from collections.abc import Iterable

from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.stored.producers import Producer
from holdfast.engine.clock import Clock
from holdfast.peers.limits.memory import Memory
from holdfast.state.turns import Turn, Undone

TABLE = "producers"


class NamedProducers(dict[bytes, Producer]):
    """The producers by key, the one that was idle the longest first. `producers_max`: their maximum number."""

    def __init__(self, producers_max: int, clock: Clock, work: Work[Queue], memory: Memory) -> None:
        super().__init__()
        self._producers_max = producers_max
        self._clock = clock
        self._work = work
        self._memory = memory
        memory.held_in(memory.ranges, lambda: sum(producer.counted_bytes for producer in self.values()))

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Loads the producers from the store."""
        found = [(records.unpack_producer(data), key) for key, data in rows]
        for (epoch, used_ms, stored_numbers), key in sorted(found, key=lambda item: item[0][1]):
            name, _, address = key.decode().partition("\0")
            producer = self[key] = Producer(name, address, epoch, used_ms, stored_numbers)
            self._memory.count_ranges(producer, producer.stored)

    def named(self, name: str, address: str) -> Producer:
        """The producer of that name at that address, created if there is none."""
        made = Producer(name, address)
        producer = self.get(made.key)
        if producer is not None:
            return producer
        if len(self) >= self._producers_max:
            oldest = next((item for item in self.values() if item.holder is None), None)
            if oldest is not None:
                self._forget(oldest.key)
        self[made.key] = made
        return made

    def _forget(self, key: bytes) -> None:
        producer = self.pop(key)
        self._memory.ranges.refund(producer.counted_bytes)
        producer.counted_bytes = 0
        self._work.batch.puts.pop((TABLE, key), None)
        self._work.batch.deletes.append((TABLE, key))

    def put(self, producer: Producer) -> None:
        """Adds its row to the gathered turn."""
        producer.used_ms = self._clock.wall_ms
        self._memory.count_ranges(producer, producer.stored)
        if self.pop(producer.key, None) is not None:
            self[producer.key] = producer  # ordered by use
        record = records.pack_producer(producer.epoch, producer.used_ms, producer.stored)
        self._work.batch.puts[TABLE, producer.key] = record

    # ------------------------------------------------------------------------------------------------ turns

    def before_commit(self, turn: Turn) -> None:
        for producer in turn.producers:
            if self.get(producer.key) is producer:
                self.put(producer)

    def undo(self, undone: Undone) -> None:
        """Reverts the numbers of those turns."""
        for turn in undone.turns:
            for producer, stored in turn.producers.items():
                producer.stored = stored
                if self.get(producer.key) is producer:
                    self.put(producer)
