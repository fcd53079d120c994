"""Background work, a bounded share each turn: purges, outcomes, returned entries, departed nodes, renumbering,
deleted queues.

Rules of this file: a turn does a bounded share, and none while its batch is large already. Work that must continue
after a restart has a row in the store; work that may be forgotten (an unanswered purge) has none.
"""

from bisect import bisect_left
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, Protocol

from holdfast.accounts import Account
from holdfast.broker.entries.work import Work
from holdfast.broker.purge import begin_purge, leave_some, purge_some
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.names.identity import Identities
from holdfast.custody.returns import Returns
from holdfast.endpoints.settlements import Settlements
from holdfast.settings.limits import Limits
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

ASKED_MAX: Final = 256
"""Requests that wait for the end of a purge, or of the deletion of messages for a node that left, all together; one
more is refused."""


@dataclass(slots=True)
class AskedPurge:
    """A request: for messages up to `end`, of which those are counted that no earlier request asked for. `done` is
    called with the number of messages deleted."""

    end: int
    done: Callable[[int], None]
    gone: int = 0


@dataclass(slots=True)
class Purge:
    """`place`: where it continues; `end`: later messages stay; `before`: the tombstones that existed. `asked`: the
    requests for it, in ascending order of their ends."""

    place: int
    end: int
    before: int
    asked: list[AskedPurge] = field(default_factory=list)

    def count(self, gone: list[tuple[int, bytes]]) -> None:
        """Counts these messages, in ascending order, which were deleted, for the requests."""
        counted = 0
        for asked in self.asked:
            upto = bisect_left(gone, asked.end, key=itemgetter(0))
            asked.gone += upto - counted
            counted = upto

    def count_at_most(self, count: int) -> None:
        """Lowers the counts, of later requests first, so that they add up to at most `count`."""
        for asked in self.asked:
            asked.gone = min(asked.gone, count)
            count -= asked.gone


class Busy(Protocol):
    """A part that may have something to do in the next turn."""

    @property
    def busy(self) -> bool: ...


class Departing(Busy, Protocol):
    """The deletion of messages for nodes that left. `under_way`: the queues in progress; `asked`: how many requests
    wait for its end."""

    @property
    def under_way(self) -> Container[Queue]: ...
    @property
    def asked(self) -> int: ...
    @property
    def pending(self) -> bool: ...
    def step(self) -> None: ...


class BackgroundJobs:
    """Runs the background work of a node; `step` does one turn's share."""

    _departures: Departing
    _moving: Busy

    def __init__(
        self,
        limits: Limits,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        dead_lettering: DeadLettering,
        identities: Identities,
        settling: Account,
    ) -> None:
        """`settling` bounds the outcomes that wait (settlements.py)."""
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._turns = turns
        self._work = work
        self._dead_lettering = dead_lettering
        self._identities = identities
        self.purges: dict[Queue, Purge] = {}
        self.settlements = Settlements(limits, catalog, turns, dead_lettering, settling)
        self.returns = Returns(catalog)

    def join(self, departures: Departing, moving: Busy) -> None:
        """Called before the first turn. `moving` has its own place in the turn."""
        self._departures = departures
        self._moving = moving

    @property
    def pending(self) -> bool:
        """Whether `step` has anything to do."""
        catalog = self._catalog
        return bool(
            self.purges
            or self.settlements.waiting
            or self.returns.pending
            or self._departures.pending
            or catalog.leaving
            or catalog.ledger.renewals
        )

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here, or waiting messages to move
        (custody/arrival/destination.py)."""
        own = (
            self.purges
            or self.settlements.waiting
            or self.returns.lanes
            or self._catalog.leaving
            or self._identities.is_busy()
        )
        return bool(own) or self._departures.busy or self._moving.busy

    @property
    def goes_on(self) -> bool:
        """Whether the next turn has something to do here although a commit is in progress."""
        return bool(self.returns.lanes) or self.settlements.goes_on

    @property
    def full(self) -> bool:
        """Whether the maximum number of requests waits."""
        return sum(len(purge.asked) for purge in self.purges.values()) + self._departures.asked >= ASKED_MAX

    def purge(self, queue: Queue, done: Callable[[int], None]) -> None:
        """Empties a queue except for acquired entries; in a transmission queue, tombstones take their places and stay.
        `done` is called in the turn that deletes the last entry, with the number of messages deleted, without those of
        an earlier request that is under way, which counts them. The caller has checked `full`.
        """
        purge = self.purges.get(queue) or Purge(0, queue.visible, queue.tombstones)
        begin_purge(queue)
        self.purges[queue] = purge  # from here on nothing is called that could fail
        purge.end = max(purge.end, queue.visible)
        purge.asked.append(AskedPurge(purge.end, done))

    def forget(self, queue: Queue) -> None:
        """The queue was deleted: its remaining entries leave with it."""
        purge = self.purges.get(queue)
        if purge is not None:
            self._over(purge)
            del self.purges[queue]

    def step(self) -> None:
        """This turn's share of all of it."""
        self.settlements.step()
        self.returns.step()
        for queue, purge in list(self.purges.items()):
            gone, purge.place = purge_some(queue, purge.place, purge.end)
            purge.count(gone)
            if queue.in_transit:
                self._dead_lettering.end_in_transit([(queue, sequence, value) for sequence, value in gone])
            if purge.place >= purge.end and not (queue.in_transit and self._waits(queue, purge)):
                self._over(purge)
                del self.purges[queue]
                self.offer_again(queue)
        self._departures.step()
        self._identities.renew_some()
        for queue_id in list(self._catalog.leaving):
            if not self._leave(queue_id):
                break

    def wake(self) -> None:
        """All queues offer entries again, except those that are stopped for another reason."""
        for queue in self._catalog.queues.values():
            self.offer_again(queue)

    def offer_again(self, queue: Queue) -> None:
        """One of the reasons why a queue offers nothing has ended."""
        queue.touch()
        renewed = queue.in_transit and queue.destination in self._ledger.renewals
        queue.stopped = queue in self.purges or queue in self._departures.under_way or renewed

    def _waits(self, queue: Queue, purge: Purge) -> bool:
        """Whether entries that a purge of a transmission queue took are still on disk, where the cursor would find
        them; if the disk is full, they come back and do not count as purged."""
        if self._turns.in_flight is not None or self._turns.gathered.moves:
            return True
        purge.count_at_most(max(0, queue.tombstones - purge.before))
        return False

    def _over(self, purge: Purge) -> None:
        while purge.asked:
            purge.asked[0].done(purge.asked[0].gone)
            del purge.asked[0]

    def _leave(self, queue_id: int) -> bool:
        """Deletes a share of a deleted queue's entries; True at the end."""
        catalog = self._catalog
        following = leave_some(catalog.store, self._work, queue_id, catalog.leaving[queue_id])
        if following is None:
            catalog.has_left(queue_id)
            return True
        catalog.leaving[queue_id] = following
        return False
