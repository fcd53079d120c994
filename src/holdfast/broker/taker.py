"""What a cursor hands its entries to.

Rules of this file: the contract alone, and what says that a taker has an entry.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Taker(Protocol):
    """What entries are handed to: a consumer's link, or the custody link to a neighbour."""

    excluded: set[int]
    """Sequences that are not offered to it; kept by `Exclusions`."""

    limited: bool
    """Whether it takes messages up to a size alone."""

    def fits(self, sequence: int, value: bytes) -> bool:
        """Whether the entry is not too large for it."""

    @property
    def run_bytes_max(self) -> int:
        """The longest value that `take_all` may take."""

    def wants(self) -> int:
        """How many entries it takes now."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        """An entry, now its own until finished or given back. `delivery_count` is None the first time."""

    def count_held(self, size: int) -> None:
        """What it takes is `size` bytes, as the queue counts them."""

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        """Takes entries that were never shown, as `take` would, from the first on; returns how many.

        It stops before the first that is not as plain as the others, and does not call the cursor.
        """


class Shown(NamedTuple):
    """An entry in a taker's hands; `size` as the queue counts it."""

    taker: Taker
    size: int
