"""What the broker asks of a store: one batch a turn, and entries read back by sequence.

Rules of this file: types only; `storage/port.py` adds what a driver needs. A store knows bytes and order; what
keys and values mean belongs to `broker/` alone.
"""

from dataclasses import dataclass, field
from typing import Protocol

TABLES = ("queues", "subscriptions", "custody", "origins", "producers", "node")
"""The small tables. Keys of 1 to 400 bytes; values of at most 1 MiB."""


@dataclass(slots=True)
class Batch:
    """What one turn of the loop writes. Applied in this order: deletes, puts, retires, appends.

    `appends`: (queue id, sequence, value); values of any size, the store chunks what is large.
    `retires`: (queue id, sequence); retiring what is not there is no error.
    `puts`, `deletes`: (table, key[, value]); the last put of a key wins.
    """

    appends: list[tuple[int, int, bytes]] = field(default_factory=list)
    retires: list[tuple[int, int]] = field(default_factory=list)
    puts: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    deletes: list[tuple[str, bytes]] = field(default_factory=list)
    bytes_appended: int = 0

    def __bool__(self) -> bool:
        return bool(self.appends or self.retires or self.puts or self.deletes)


class EntryReader(Protocol):
    """Read side, called on the loop's thread; no read transaction outlives the call."""

    def read(self, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Entries of `queue_id` with sequence >= `first`, ascending, as (sequence, value).

        At least one where there is one, then as many as fit both bounds.
        """

    def get(self, queue_id: int, sequence: int) -> bytes | None:
        """One entry's value, or None."""
