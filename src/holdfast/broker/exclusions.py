"""Which takers of a cursor cannot have which entries, and the entries that wait because of it (AMQP 1.0 §3.4.5,
undeliverable-here; §2.7.3, max-message-size).

Rules of this file: an entry that no taker with credit can have is set aside and not looked at again until there is a
taker that has not refused it. A pump never reads what is set aside.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.taker import Taker


class Exclusions:
    """Of one cursor. Each taker keeps the sequences that it cannot have in its own `excluded`."""

    __slots__ = ("_looked", "aside", "live", "too_large")

    def __init__(self) -> None:
        self.aside: dict[int, None] = {}
        """Entries in nobody's hands that every taker which had credit when they were met cannot have."""
        self.live: set[int] = set()
        """Every entry that is excluded for a taker and is not done with; `excluded` may also hold others."""
        self.too_large: dict[Taker, list[int]] = {}
        """What is excluded for a taker because another one takes larger messages."""
        self._looked: set[Taker] = set()
        """Takers that can have nothing of what is set aside."""

    def exclude(self, taker: "Taker", sequences: Iterable[int]) -> None:
        """From now on `taker` is not offered these."""
        if not self.live and taker.excluded:  # nothing of it is left
            taker.excluded.clear()
        taker.excluded.update(sequences)
        self.live.update(sequences)

    def exclude_too_large(self, taker: "Taker", sequence: int) -> None:
        """The same, as long as no other taker leaves."""
        self.exclude(taker, (sequence,))
        self.too_large.setdefault(taker, []).append(sequence)

    def count(self, taker: "Taker") -> int:
        """How many entries that are not done with `taker` cannot have."""
        taker.excluded.intersection_update(self.live)
        return len(taker.excluded)

    def done(self, sequences: Iterable[int]) -> None:
        """These entries are done with, or left the queue."""
        self.live.difference_update(sequences)
        if self.aside:
            for sequence in sequences:
                self.aside.pop(sequence, None)

    def set_aside(self, sequences: list[int]) -> None:
        """No taker that wants something now can have these."""
        looked = {taker for taker in self._looked if taker.excluded.issuperset(sequences)}
        self.aside.update(dict.fromkeys(sequences))
        self._looked = looked

    def offer_to(self, takers: list["Taker"], limit: int) -> list[int]:
        """Takes back what one of `takers` can have, for each at most what it wants, and `limit` in all."""
        back: dict[int, None] = {}
        for taker in takers:
            if taker in self._looked or len(back) >= limit:
                continue
            found = [sequence for sequence in self.aside if sequence not in taker.excluded and sequence not in back]
            if not found:
                if not back:
                    self._looked.add(taker)
                continue
            found.sort()
            del found[min(limit - len(back), taker.wants()) :]
            back.update(dict.fromkeys(found))
        for sequence in back:
            del self.aside[sequence]
        return list(back)

    def left(self, taker: "Taker") -> list[int]:
        """`taker` is gone; returns what is to be offered anew, because it was the one that could take it."""
        taker.excluded.clear()
        self._looked.discard(taker)
        self.too_large.pop(taker, None)
        if not self.too_large:
            return []
        for other, sequences in self.too_large.items():
            other.excluded.difference_update(sequences)
        self.too_large.clear()
        return self.take_back()

    def take_back(self) -> list[int]:
        """All that was set aside."""
        back = list(self.aside)
        self.aside.clear()
        self._looked.clear()
        return back
