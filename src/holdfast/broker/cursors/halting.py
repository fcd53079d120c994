"""When a cursor offers no new entries until some entries below are finished, and which account lacks room.

Rules of this file: a halted cursor continues when its own consumers finish entries, or when the account that lacks room
has room again; room in another account does not matter.
"""

from collections.abc import Iterator, Sized
from typing import Final, Protocol

from holdfast.accounts import Account
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.entries.withheld import Withheld

FINISHED_MAX: Final = 16_384
"""Ranges kept above the floor; at the bound nothing new is offered until entries below are finished."""

OUTSTANDING_MAX: Final = 32_768
"""Those ranges, plus unfinished entries that were shown, each of which may become a range: at the bound nothing new is
offered until some are finished. With them a cursor's record fits a row of the store (records.CURSOR_RANGES_MAX)."""

FINISHED_MIN: Final = 64
"""The same bound of ranges if the node's memory for them is used up, except for a bounded subscription."""

GIVEN_BACK_MIN: Final = 64
"""Requeued entries at which nothing new is offered if the node's memory for them is used up."""

FILLING_MAX: Final = 256
"""Acquired entries up to which a cursor that has finished too much out of order still gets entries that lie ahead of
its position, so that this becomes less."""


class Source(Protocol):
    """The queue of a cursor, and the accounts that its cursors share with others."""

    in_transit: bool
    ranges: Account
    withheld: Withheld


class Reader(Protocol):
    """The unfinished entries of a cursor, which may halt it."""

    counts: dict[int, int]
    exclusions: Exclusions
    is_bounded: bool
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
    """Whether entries that were never shown are not offered for now."""
    if _has_much_back(cursor) and not cursor.queue.withheld.given_back.room:
        return True
    return cursor.tracked and outstanding_room(cursor) == 0


def outstanding_room(cursor: Reader) -> int:
    """How many more entries a tracked cursor may hand out before some entries below are finished."""
    ranges = len(cursor.finished)
    most = FINISHED_MAX if cursor.is_bounded or cursor.queue.ranges.room else FINISHED_MIN
    outstanding = len(cursor.acquired) + len(cursor.requeued) + len(cursor.exclusions.aside)
    return 0 if ranges >= most else max(0, OUTSTANDING_MAX - ranges - outstanding)


def has_room_for_more(cursor: Reader) -> bool:
    """Whether a halted cursor may hand out entries that lie ahead of its position and were shown before: each of them
    may become a range."""
    return not cursor.tracked or outstanding_room(cursor) > 0 or len(cursor.acquired) < FILLING_MAX


def short_of(cursor: Reader) -> Iterator[Account]:
    """The accounts without room, each of which halts the cursor; none if the cursor itself holds too much."""
    given_back, ranges = cursor.queue.withheld.given_back, cursor.queue.ranges
    if _has_much_back(cursor) and not given_back.room:
        yield given_back
    if cursor.tracked and FINISHED_MIN <= len(cursor.finished) < FINISHED_MAX and not ranges.room:
        yield ranges


def _has_much_back(cursor: Reader) -> bool:
    if not cursor.counts:
        return False
    # Some counts of an earlier run of the node are ahead of the position: only entries below it can be finished first.
    given_back = min(len(cursor.counts) - len(cursor.exclusions.aside), len(cursor.acquired) + len(cursor.requeued))
    return given_back >= GIVEN_BACK_MIN and not cursor.queue.in_transit
