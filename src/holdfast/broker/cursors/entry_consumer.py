"""The consumers of a cursor's entries.

Rules of this file: only protocols, and the record of an acquired entry. A selector that is no client's inherits from
`EntrySelector`.
"""

from collections.abc import Iterable, Iterator, Sequence
from sys import maxsize
from typing import Final, NamedTuple, Protocol

from holdfast.broker.entries import packed
from holdfast.broker.subjects import Pattern

UNLIMITED: Final = maxsize

BESIDE_BYTES: Final = 512
"""An upper bound for the bytes of a delivery besides those that its queue counts."""


class EntryConsumer(Protocol):
    """A consumer of entries: a client's link, a link between queues, or the custody link to a neighbour."""

    excluded: set[int]
    """Sequences that are not offered to it; kept by `Exclusions`."""

    bytes_max: int
    """The largest delivery that it accepts, constant while it is a consumer; UNLIMITED for any size."""

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        """Bytes of the entry as a delivery, the same for every consumer of the cursor; only called if it has a size
        limit."""

    @property
    def run_bytes_max(self) -> int:
        """The longest value that `take_all` accepts; 0 if it accepts none."""

    @property
    def room_bytes(self) -> int:
        """Bytes of entries that it accepts now, of those that it `wants`; one entry may exceed it."""

    def wants(self) -> int:
        """How many entries it accepts now."""

    def will_want(self) -> int:
        """As `wants`, without the connection's limit for one turn. The watermark is stored that far ahead."""

    @property
    def deferred(self) -> bool:
        """Whether it accepts none only because of its limit for this turn: its queue is offered again in the next
        one."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        """Gives it an entry, which it holds until it is finished or requeued. `delivery_count` is None the first
        time."""

    def count_held(self, size: int) -> None:
        """The entry that it gets has `size` bytes, as the queue counts them."""

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        """Accepts entries that were never shown, as `take` would, from the first on; returns how many. It stops before
        the first entry that is not plain, and does not call the cursor.
        """


def refuses(consumer: EntryConsumer, sequence: int, value: bytes) -> bool:
    """Whether the entry is larger than the consumer accepts: then `take` delivers nothing, and its link ends."""
    limit = consumer.bytes_max
    return (
        limit != UNLIMITED
        and packed.size_of(value) + BESIDE_BYTES > limit
        and consumer.delivery_bytes(sequence, value) > limit
    )


class EntrySelector(Protocol):
    """Decides which entries a reader gets."""

    text: str
    """Equal for selectors that match the same entries."""

    weight: int
    """Bytes of a turn's work that matching costs for each byte of an entry."""

    def matches(self, value: bytes) -> bool:
        """Whether the reader gets this entry; depends on the bytes alone."""

    def each(self, values: Iterable[bytes]) -> Iterator[bool]:
        """As `matches`, of one after the other, when it is asked for."""
        return map(self.matches, values)


class SubjectSelector(EntrySelector, Protocol):
    """A selector that may have a pattern of subjects."""

    pattern: Pattern | None

    not_from: bytes
    """The publisher whose messages it excludes: one half of `annotate.publisher_of`; b"" for none."""

    @property
    def condition(self) -> str:
        """The condition besides the pattern, in canonical form; "" for none."""

    def subject(self, value: bytes) -> str:
        """The subject of an entry; the same for every selector."""

    def matches_beside(self, value: bytes) -> bool:
        """Whether an entry whose subject matches the pattern also matches the rest."""


class Acquired(NamedTuple):
    """An acquired entry and its holder, usually a consumer; `size` as the queue counts it."""

    consumer: object
    size: int
