"""Sequences of a range for which no message came: noted while it is read, and told with the reasons that its node
knows.

Rules of this file: what is noted is bounded. Messages that were dropped are data loss; those that expired are not,
since their sender said so; of others nobody knows.
"""

import logging
from collections.abc import Iterator
from typing import Final

from holdfast.errors import HoldfastError
from pyspark_holdfast.bus import Bus, Entry
from pyspark_holdfast.offsets import key_of, shown
from pyspark_holdfast.ranges import QueueRange

log = logging.getLogger(__name__)

GAPS_MAX: Final = 256
"""Gaps of one range that are told apart; with more of them the last one goes to the end of the last."""


class Gaps:
    """Those of one range, while its entries go through."""

    def __init__(self, wanted: QueueRange, node: str) -> None:
        self._wanted = wanted
        self._where = shown(key_of(node, wanted.address))
        self._next = wanted.start
        self._missing = 0
        self.found: list[tuple[int, int]] = []
        """First sequence of each gap, and the one behind its last."""

    def through(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The same entries."""
        for entry in entries:
            if entry.sequence > self._next:
                self._note(entry.sequence)
            self._next = entry.sequence + 1
            yield entry
        if self._wanted.end > self._next:
            self._note(self._wanted.end)

    def _note(self, end: int) -> None:
        self._missing += end - self._next
        if len(self.found) < GAPS_MAX:
            self.found.append((self._next, end))
        else:
            self.found[-1] = self.found[-1][0], end

    def tell(self, bus: Bus, *, fail_on_data_loss: bool) -> None:
        """Logs what is missing, and why; HoldfastError where messages were dropped and this ends the query."""
        lease = self._wanted.lease
        if not self.found or lease is None:
            return
        expired, dropped = bus.gaps(lease, self.found)
        parts = [f"{expired} expired"] if expired else []
        parts += [f"{dropped} dropped to make room for later ones"] if dropped else []
        unknown = self._missing - expired - dropped
        parts += [f"{unknown} for reasons that are not known"] if unknown > 0 else []
        first, last = self.found[0][0], self.found[-1][1] - 1
        text = f"{self._where}: of the messages from {first} to {last} {self._missing} are missing: {', '.join(parts)}"
        if dropped and fail_on_data_loss:
            raise HoldfastError(f"{text}; with failOnDataLoss false the query goes on without them")
        log.warning("%s", text)
