"""When a cursor offers nothing new before some of what lies below is done, and for want of whose room.

Rules of this file: a cursor that is halted goes on by what its own consumers do, or once the very account has room
again that it is short of: another account's room says nothing.
"""

from collections.abc import Iterator, Sized
from typing import Final, Protocol

from holdfast.accounts import Account
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.entries.withheld import Withheld

FINISHED_MAX: Final = 16_384
"""Ranges kept above the floor; at the bound nothing new is offered until what lies below is done."""

OUTSTANDING_MAX: Final = 32_768
"""Those ranges, and entries that were shown and are not done, of which each may become a range: at the bound nothing
new is offered until some are done. With them a cursor's record fits a row of the store (records.CURSOR_RANGES_MAX)."""

FINISHED_MIN: Final = 64
"""The ranges where the node's memory for them is used up."""

GIVEN_BACK_MIN: Final = 64
"""With so many that were given back nothing new is offered where the node's memory for them is used up."""


class Source(Protocol):
    """What a cursor reads, and the accounts that its cursors share with others."""

    in_transit: bool
    ranges: Account
    withheld: Withheld


class Reader(Protocol):
    """What a cursor holds that is not done: all of it may halt it."""

    counts: dict[int, int]
    exclusions: Exclusions
    tracked: bool

    @property
    def queue(self) -> Source: ...
    @property
    def finished(self) -> Sized: ...
    @property
    def acquired(self) -> Sized: ...
    @property
    def requeued(self) -> Sized: ...


def is_halted(cursor: Reader) -> bool:
    """Whether nothing that was never shown is offered for now."""
    if _has_much_back(cursor) and not cursor.queue.withheld.given_back.room:
        return True
    return cursor.tracked and outstanding_room(cursor) == 0


def outstanding_room(cursor: Reader) -> int:
    """How many more entries a tracked cursor may hand out before some of what lies below is done."""
    ranges = len(cursor.finished)
    most = FINISHED_MAX if cursor.queue.ranges.room else FINISHED_MIN
    outstanding = len(cursor.acquired) + len(cursor.requeued) + len(cursor.exclusions.aside)
    return 0 if ranges >= most else max(0, OUTSTANDING_MAX - ranges - outstanding)


def short_of(cursor: Reader) -> Iterator[Account]:
    """The accounts without room of which each alone halts the cursor; none where it holds too much by itself."""
    given_back, ranges = cursor.queue.withheld.given_back, cursor.queue.ranges
    if _has_much_back(cursor) and not given_back.room:
        yield given_back
    if cursor.tracked and FINISHED_MIN <= len(cursor.finished) < FINISHED_MAX and not ranges.room:
        yield ranges


def _has_much_back(cursor: Reader) -> bool:
    if not cursor.counts:
        return False
    # Of an earlier life's counts some lie ahead: only what is below can be done first.
    given_back = min(len(cursor.counts) - len(cursor.exclusions.aside), len(cursor.acquired) + len(cursor.requeued))
    return given_back >= GIVEN_BACK_MIN and not cursor.queue.in_transit
