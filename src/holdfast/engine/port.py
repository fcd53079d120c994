"""What the broker needs of a store (one batch for each turn, entries read by sequence) and of a queue's configuration.

Rules of this file: types only; `storage/port.py` adds what a driver needs. A store only knows bytes and order; only
`broker/` knows what keys and values mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

TABLES = (
    "queues", "subscriptions", "custody", "origins", "producers", "node", "blobs", "losses", "windows", "bindings",
)  # fmt: skip
"""The small tables. Keys of 1 to 400 bytes; values of at most 1 MiB."""

PIECE_BYTES: Final = 65_520
"""A blob is cut into pieces of so many bytes, of which the last may be shorter: sixteen pages of 4 KiB less the
header that a store puts before them."""


@dataclass(slots=True)
class Batch:
    """What one turn of the loop writes. Applied in this order: deletes, puts, retires, drops, appends, pieces.

    `appends`: (queue id, sequence, value); values of any size, the store chunks what is large. `retires`: (queue id,
    sequence); retiring what is not there is no error. `puts`, `deletes`: (table, key[, value]); the last put of a key
    wins. `pieces`: (blob, index, bytes) of 1 to PIECE_BYTES; a blob is what is too large to be a value
    (broker/entries/blob.py). `drops`: (blob, first, end): the pieces with first <= index < end go; dropping what is not
    there is no error. A drop costs the store time for each piece, so the caller limits how many it drops at once.
    `bytes_appended`: of appends and pieces, as their callers count them.
    """

    appends: list[tuple[int, int, bytes]] = field(default_factory=list)
    retires: list[tuple[int, int]] = field(default_factory=list)
    puts: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    deletes: list[tuple[str, bytes]] = field(default_factory=list)
    pieces: list[tuple[int, int, bytes]] = field(default_factory=list)
    drops: list[tuple[int, int, int]] = field(default_factory=list)
    bytes_appended: int = 0
    mint: UUID | None = None
    """Who the store is from this batch on: drawn by `Store.draw_uuid`, stored with all else in it or not at all."""

    def __bool__(self) -> bool:
        changes = self.appends or self.retires or self.puts or self.deletes or self.pieces or self.drops
        return bool(changes or self.mint)


Rows = Mapping[tuple[str, bytes], bytes]
"""Rows of the small tables, by (table, key)."""


class Space(NamedTuple):
    """The disk space of a store, in bytes: its file's size, that file's maximum, what the file system has free, and the
    largest file that the process may write, None for any."""

    file_bytes: int
    bytes_max: int
    free_bytes: int
    file_limit_bytes: int | None = None


class EntryReader(Protocol):
    """Read side, called on the loop's thread; no read transaction outlives the call."""

    def read(self, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Entries of `queue_id` with sequence >= `first`, ascending, as (sequence, value).

        At least one where there is one, then as many as fit both bounds.
        """

    def get(self, queue_id: int, sequence: int) -> bytes | None:
        """One entry's value, or None."""

    def get_all(self, queue_id: int, sequences: Sequence[int], *, bytes_max: int) -> dict[int, bytes]:
        """The entries that exist, up to the one with which they exceed `bytes_max`."""

    def piece(self, blob: int, index: int) -> bytes | None:
        """One piece of a blob, or None."""


class Settings(Protocol):
    """The part of its configuration that a queue reads (`settings.QueueConfig`)."""

    @property
    def bytes_max(self) -> int | None: ...
    @property
    def messages_max(self) -> int | None: ...
    @property
    def when_full(self) -> str: ...
    @property
    def order(self) -> str: ...
    @property
    def order_wait_s(self) -> float: ...
    @property
    def durable(self) -> bool: ...
    @property
    def deliveries_max(self) -> int | None: ...
    @property
    def priorities(self) -> bool: ...
    @property
    def room_low(self) -> float: ...
    @property
    def room_normal(self) -> float: ...
    @property
    def room_quiet_s(self) -> float: ...
