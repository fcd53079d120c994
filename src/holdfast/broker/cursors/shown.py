"""What a cursor has shown, as far as the disk knows it: its watermark, and how often deliveries of entries have failed
(CUSTODY, "Readers").

Rules of this file: after a crash everything below the stored watermark counts as shown; if deliveries are bounded, this
is stored for each entry.
"""

from collections.abc import Iterable
from typing import Any, Final

from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.entry_consumer import UNLIMITED, EntryConsumer
from holdfast.broker.cursors.owner import Owner
from holdfast.broker.entries.entry_log import EntryLog

LINK_PREFIX: Final = "$link:"
"""Of the name of a cursor that a link between queues copies by; no client's subscription begins with `$`
(names.check_name)."""

WATERMARK_AHEAD: Final = 256
"""A watermark is stored at least that far ahead of a cursor that reads a backlog, so that it is not stored for each."""


class Shown:
    """`name` is empty for the queue's shared cursor."""

    __slots__ = (
        "_smallest", "consumers", "counts", "is_links", "lives", "name", "owner", "queue", "shown_below", "watermark",
        "watermark_stored",
    )  # fmt: skip

    def __init__(self, queue: EntryLog, owner: Owner[Any], name: str) -> None:
        self.queue = queue
        self.owner = owner
        """The queue, as a cursor calls it."""
        self.name = name
        self.is_links = name.startswith(LINK_PREFIX)
        """Whether a link between queues copies by it: then deliveries are not counted."""
        self.consumers: dict[EntryConsumer, None] = {}
        """All consumers, in the order in which they were attached."""
        self._smallest: tuple[int | None, ...] = ()
        """`smallest_limit`; empty if it is not known."""
        self.counts: dict[int, int] = {}
        """Failed deliveries of requeued entries, without those that follow from `lives`; a DeliveryCounts if their
        number is bounded and stored."""
        self.lives: tuple[int, ...] = ()
        """For each earlier run of the node, the highest first: entries below were possibly shown when that run ended,
        and their deliveries failed."""
        self.watermark = self.watermark_stored = 0
        self.shown_below = 0
        """Entries below were possibly shown before the node was last started."""

    def failures(self, sequence: int) -> int | None:
        """Failed deliveries so far of an entry that was shown before; None for one that never was."""
        if sequence < self.shown_below:
            return max(1, self.counts.get(sequence, 0) + self._failed_by_ends(sequence))
        return self.counts.get(sequence)

    def _failed_by_ends(self, sequence: int) -> int:
        """In how many earlier runs of the node the entry may have been shown at their end."""
        return sum(1 for end in self.lives if sequence < end)

    @property
    def is_counted(self) -> bool:
        """Whether failed deliveries are stored, and it is known for each run of the node what may have been shown."""
        return isinstance(self.counts, DeliveryCounts)

    @property
    def smallest_limit(self) -> int | None:
        """The largest delivery that all consumers accept; None if they accept any."""
        if not self._smallest:
            limit = min([consumer.bytes_max for consumer in self.consumers], default=UNLIMITED)
            self._smallest = (None if limit == UNLIMITED else limit,)
        return self._smallest[0]

    def consumers_differ(self) -> None:
        """Some came or left."""
        self._smallest = ()

    def count_deliveries(self) -> None:
        """Begins to count and store failed deliveries."""
        config = self.queue.config
        if self.is_links:
            return
        if config.durable and config.deliveries_max is not None and not isinstance(self.counts, DeliveryCounts):
            self.counts = DeliveryCounts(self.counts)
            self.queue.touch_counters()

    def is_exhausted(self, failures: int | None) -> bool:
        """Whether an entry with so many failed deliveries must no longer be offered."""
        most = None if self.is_links else self.queue.config.deliveries_max
        return failures is not None and most is not None and failures >= most

    def mark_shown(self, sequences: Iterable[int]) -> None:
        """Requests that it is stored that these entries are shown."""
        if isinstance(self.counts, DeliveryCounts) and self.counts.mark(sequences):
            self.queue.touch_counters()
            self.queue.work.request_commit()

    def may_be_shown(self, sequence: int) -> bool:
        """Whether it is on disk that the entry may have been shown, and how often its delivery has failed."""
        counts = self.counts
        if not isinstance(counts, DeliveryCounts):
            return not self.queue.config.durable or sequence < self.watermark_stored
        if sequence in counts.unstored:
            return False
        return sequence < self.watermark_stored or sequence in counts.marked_stored

    def may_be_moved(self, sequence: int) -> bool:
        """As `may_be_shown`, for a consumer that does not deliver the entry to a client: then the mark need not be on
        disk."""
        counts = self.counts
        return sequence not in counts.unstored if isinstance(counts, DeliveryCounts) else self.may_be_shown(sequence)

    def ask_watermark(self, ahead: int) -> None:
        """Requests a stored watermark up to `ahead`; the queue writes it with its counters."""
        if ahead > self.watermark and self.consumers:
            if self.name:
                self.owner.dirty(self)
            else:
                self.queue.touch_counters()
            self.watermark = min(ahead, max(self.queue.next_sequence, self.watermark))
            self.queue.work.request_commit()
