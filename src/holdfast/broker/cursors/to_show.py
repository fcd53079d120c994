"""Which entries the consumers of a cursor are about to be handed: no others are stored as shown where deliveries are
counted, because those count as failed if the node is killed (docs/adr/0066).

Rules of this file: nothing is handed out or changed here.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, refuses
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.entries import packed

MARKS_MAX: Final = 256
"""Entries that are marked as shown at once, where that is stored for each."""


class Shared(Protocol):
    """A cursor, as far as it is asked here."""

    counts: dict[int, int]
    exclusions: Exclusions
    watermark: int

    @property
    def smallest_limit(self) -> int | None: ...


def take_alike(cursor: Shared) -> bool:
    """Whether each consumer can have every entry."""
    return not cursor.exclusions.live and cursor.smallest_limit is None


def has_unshown_aside(cursor: Shared) -> bool:
    """Whether entries are set aside that count as never shown, and that a higher watermark would cover."""
    marked = cursor.counts.marked if isinstance(cursor.counts, DeliveryCounts) else ()
    for sequence in reversed(cursor.exclusions.aside):
        if sequence < cursor.watermark:
            return False
        if sequence not in marked:
            return True
    return False


def end_for_all(cursor: Shared, known: Iterable[tuple[int, bytes]], first: int, end: int) -> int:
    """How far from `first` on, at most to `end`, a watermark covers only entries that every consumer can have. `known`:
    all entries that are there, as far as they are known."""
    smallest, live = cursor.smallest_limit, cursor.exclusions.live
    for sequence, value in known:
        is_large = smallest is not None and packed.size_of(value) + BESIDE_BYTES > smallest
        if sequence >= end or (sequence >= first and (is_large or sequence in live)):
            break
        first = max(first, sequence + 1)
    return first


class Credit:
    """What is left of the credit of some consumers, while entries are assigned to them in turn."""

    __slots__ = ("_left", "consumers")

    def __init__(self, consumers: Iterable[EntryConsumer]) -> None:
        self._left = {consumer: wanted for consumer in consumers if (wanted := consumer.will_want()) > 0}
        self.consumers = [*self._left]
        """Those that have some left, the next one first."""

    def assign(self, consumer: EntryConsumer) -> None:
        """That consumer gets the next entry."""
        self._left[consumer] -= 1
        self.consumers.remove(consumer)
        if self._left[consumer]:
            self.consumers.append(consumer)


def with_their_credit(
    consumers: Iterable[EntryConsumer], entries: Iterable[tuple[int, bytes]],
    choose: Callable[[list[EntryConsumer], int, bytes], EntryConsumer | None],
) -> list[int]:  # fmt: skip
    """Those of these entries that the consumers get with the credit that they have, up to one that ends a link because
    it is too large for it. `choose`: the one of some consumers that is handed an entry."""
    credit, found = Credit(consumers), list[int]()
    for sequence, value in entries if credit.consumers else ():
        consumer = choose(credit.consumers, sequence, value)
        if consumer is not None:
            if refuses(consumer, sequence, value):
                break
            credit.assign(consumer)
            found.append(sequence)
            if not credit.consumers:
                break
    return found
