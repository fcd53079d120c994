"""What a cursor hands its entries to.

Rules of this file: the contract alone, and what says that a consumer has an entry.
"""

from collections.abc import Sequence
from sys import maxsize
from typing import Final, NamedTuple, Protocol

from holdfast.broker.subjects import Pattern

UNLIMITED: Final = maxsize

BESIDE_BYTES: Final = 512
"""More than a delivery to a consumer has beside what its queue counts of the message."""


class EntryConsumer(Protocol):
    """What entries are handed to: a consumer's link, or the custody link to a neighbour."""

    excluded: set[int]
    """Sequences that are not offered to it; kept by `Exclusions`."""

    bytes_max: int
    """The largest delivery that it takes, as long as it is a consumer; UNLIMITED where it takes any."""

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        """Bytes of the entry as a delivery, the same for every consumer of the cursor; asked of those with a limit."""

    @property
    def run_bytes_max(self) -> int:
        """The longest value that `take_all` may take."""

    @property
    def room_bytes(self) -> int:
        """Bytes of entries that it takes now, of those that it `wants`; one entry may go beyond."""

    def wants(self) -> int:
        """How many entries it takes now."""

    def will_want(self) -> int:
        """As `wants`, without the limit of one turn for its connection. Watermarks are stored so far ahead."""

    @property
    def deferred(self) -> bool:
        """Whether it takes none for this turn's sake alone: its queue is offered again in the next."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        """An entry, now its own until finished or given back. `delivery_count` is None the first time."""

    def count_held(self, size: int) -> None:
        """What it takes is `size` bytes, as the queue counts them."""

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        """Takes entries that were never shown, as `take` would, from the first on; returns how many.

        It stops before the first that is not as plain as the others, and does not call the cursor.
        """


class EntrySelector(Protocol):
    """Says which entries a reader is given."""

    text: str
    """The same for those that say the same."""

    weight: int
    """As how many bytes each byte of an entry counts that it is asked about, in the work of a turn."""

    def matches(self, value: bytes) -> bool:
        """Whether it is given this one; the same for the same bytes."""


class SubjectSelector(EntrySelector, Protocol):
    """One that may look at subjects, by a pattern."""

    pattern: Pattern | None

    not_from: bytes
    """Whose messages it is not given: a half of what `annotate.publisher_of` tells; b"" for nobody's."""

    def subject(self, value: bytes) -> str:
        """The subject of an entry; the same whoever is asked."""

    def matches_beside(self, value: bytes) -> bool:
        """Whether an entry whose subject matches the pattern is given."""


class Acquired(NamedTuple):
    """An entry in somebody's hands, mostly a consumer's; `size` as the queue counts it."""

    consumer: object
    size: int
