"""The numbers of a spool's messages: which of them may have been sent, and which are still to be given.

Rules of this file: pure; nothing is stored here. `SpoolFile` writes `as_dict` and syncs it where these texts say "on
the disk". A *local* is a message's place in the spool, 1, 2, 3…; its *number* is what the node knows it by. A run is
one life of a SpoolFile, from its opening to its end.

A crash of the machine may take the end of the file and with it messages that were sent. So locals are reserved in
blocks that are on the disk before a message of the block is sent; a run that follows one without a proper end begins
behind the block, and its messages get numbers when the node has said which it has: the next free ones, without a gap
(docs/adr/0032-reserved-numbers.md).
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.broker.stored.ranges import RangeSet

BLOCK: Final = 65_536
"""Numbers reserved at a time: one synced write for so many messages."""


class Numbering:
    """`next_local` is what the next message gets. `unnumbered`: the first local that has no number yet, None where all
    have one; nothing from there on was ever sent. `reserved`: the highest local that may be sent. `closed`: the latest
    run ended properly, and used no local from `next_local` on."""

    def __init__(self) -> None:
        self.next_local = 1
        self.unnumbered: int | None = 1
        self.reserved = 0
        self.closed = False
        self.may_have_sent: int | None = None
        """The highest number that the runs before this one may have sent; None where none was ever attached."""
        self._bases: list[tuple[int, int]] = []
        self._is_older = False

    @property
    def base(self) -> int | None:
        """The latest difference between a number and its local; None before the first attach."""
        return self._bases[-1][1] if self._bases else None

    def number(self, local: int) -> int | None:
        """The number of the message in that place; None before it has one."""
        if self.unnumbered is not None and local >= self.unnumbered:
            return None
        return next((base + local for first, base in reversed(self._bases) if local >= first), None)

    def assign(self, last: int, kept: RangeSet) -> None:
        """Gives numbers to all that have none: the node has numbers up to `last`.

        `kept`: locals of earlier runs that are not done. On the disk before anything is sent.
        """
        assert self.unnumbered is not None, "numbers are given once"
        first = self.unnumbered
        older = [local for low, high in kept if low < first for local in (low, min(high, first - 1))]
        free = max([last, *(self.number(local) or 0 for local in older)]) + 1
        # Of the older bases those that a message in the file still needs.
        needed = sum(place <= min(older) for place, _ in self._bases) if older else len(self._bases) + 1
        del self._bases[: max(0, needed - 1)]
        self._bases.append((first, free - first))
        self.unnumbered = None
        self.reserve()

    def needs_block(self) -> bool:
        """The next message may not be sent before another block is on the disk."""
        return self.unnumbered is None and self.next_local > self.reserved

    def reserve(self) -> None:
        """A block from the next local on. On the disk before one of it is sent."""
        self.reserved = self.next_local - 1 + BLOCK
        self.closed = False

    def recovered(self, highest: int) -> bool:
        """All is read, and `highest` is the highest local in it. True if `as_dict` has changed by this."""
        if self._is_older:
            self.reserved = max(self.next_local - 1, highest) + BLOCK
        changed = False
        if self.unnumbered is not None:  # of these nothing was sent
            self.next_local = max(self.next_local, highest + 1)
        elif not self.closed:
            self.next_local = self.unnumbered = max(self.reserved, highest) + 1
            changed = True
        if self._bases:
            self.may_have_sent = self._bases[-1][1] + (self.unnumbered or self.next_local) - 1
        return changed

    def as_dict(self) -> dict[str, Any]:
        """Of JSON, for `load`. Earlier versions read `next` and `base`."""
        return {
            "base": self.base,
            "next": self.next_local if self.closed or self.unnumbered is not None else self.reserved + 1,
            "bases": self._bases,
            "unnumbered": self.unnumbered,
            "closed": self.closed,
        }

    def load(self, held: Mapping[str, Any]) -> None:
        """Takes in what `as_dict` made, or what an earlier version wrote, which reserved nothing: a block is left out.

        Raises ValueError, KeyError or TypeError for what is neither.
        """
        base, self.next_local = held["base"], _whole(held["next"])
        self._is_older = "bases" not in held
        self.reserved = self.next_local - 1
        if self._is_older:
            self._bases = [] if base is None else [(1, _whole(base))]
            self.unnumbered = 1 if base is None else None
            self.closed = False
            return
        self._bases = [(_whole(first), _whole(difference)) for first, difference in held["bases"]]
        self.unnumbered = None if held["unnumbered"] is None else _whole(held["unnumbered"])
        self.closed = held["closed"] is True
        if self.unnumbered is None and not self._bases:
            raise ValueError("numbers without a base")


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value
