"""Background work, a bounded share each turn: purges, outcomes, returned entries, departed nodes, renumbering,
deleted queues.

Rules of this file: a turn takes a bounded share, and none while its batch is deep already; what a restart must go on
with has a row in the store, what it may forget (a purge, whose answer nobody had) has none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.broker import entry
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.broker.read_ahead import READ_BYTES
from holdfast.broker.work import RETIRES_MAX
from holdfast.core.returns import Returns
from holdfast.core.settlements import Settlements

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

LEAVING_BYTES: Final = 4 * 1024 * 1024
"""What one turn reads of a deleted queue, to know what is there."""

ASKED_MAX: Final = 256
"""Requests that wait for the end of a purge, or of what is queued for a node that left, all together; one more is
refused."""


@dataclass(slots=True)
class Purge:
    """`place`: where it goes on; `end`: what came later stays; `before`: the tombstones that were there. `told` are
    called with how many left."""

    place: int
    end: int
    before: int
    gone: int = 0
    told: list[Callable[[int], None]] = field(default_factory=list)


class Chores:
    """Runs the background work of a node; `step` does one turn's share."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.purges: dict[Queue, Purge] = {}
        self.settlements = Settlements(core)
        self.returns = Returns(core)

    @property
    def pending(self) -> bool:
        """Whether there is anything here to be asked for its share."""
        catalog = self.core.catalog
        return bool(
            self.purges
            or self.settlements.waiting
            or self.returns.pending
            or self.core.departures.pending
            or catalog.leaving
            or catalog.renewals
        )

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here, or where what waits moves on (destination.py)."""
        core = self.core
        own = (
            self.purges
            or self.settlements.waiting
            or self.returns.waiting
            or core.catalog.leaving
            or core.identities.is_busy()
        )
        return bool(own) or core.departures.busy or core.destination.busy

    @property
    def full(self) -> bool:
        """Whether as many wait for the end of something as may."""
        return sum(len(purge.told) for purge in self.purges.values()) + self.core.departures.asked >= ASKED_MAX

    def purge(self, queue: Queue, told: Callable[[int], None]) -> None:
        """Empties a queue but for what is in somebody's hands; in transmission, tombstones take the places, and stay.

        `told` is called in the turn that takes the last of it, with how many left. The caller has asked `full`.
        """
        purge = self.purges.get(queue) or Purge(0, queue.visible, queue.tombstones)
        _begin_purge(queue)
        self.purges[queue] = purge  # from here on nothing is called that could fail
        purge.end = max(purge.end, queue.visible)
        purge.told.append(told)

    def forget(self, queue: Queue) -> None:
        """The queue is deleted: what is left of it leaves as such."""
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
            purge.gone += len(gone)
            if queue.in_transit:
                self.core.endings.end_in_transit([(queue, sequence, value) for sequence, value in gone])
            if purge.place >= purge.end and not (queue.in_transit and self._waits(queue, purge)):
                self._over(purge)
                del self.purges[queue]
                self.offer_again(queue)
        self.core.departures.step()
        self.core.identities.renew_some()
        for queue_id in list(self.core.catalog.leaving):
            if not self._leave(queue_id):
                break

    def offer_again(self, queue: Queue) -> None:
        """One of the reasons why a queue offers nothing is over."""
        core = self.core
        queue.touch()
        renewed = queue.in_transit and queue.name[1:] in core.catalog.renewals
        queue.stopped = queue in self.purges or queue in core.departures.under_way or renewed

    def _waits(self, queue: Queue, purge: Purge) -> bool:
        """Whether what a purge of a transmission queue took is not gone yet: until then it is on disk, where the cursor
        would meet it, and a full disk may put it back, which then counts as not purged."""
        if self.core.turns.in_flight is not None or self.core.turns.gathered.moves:
            return True
        purge.gone = min(purge.gone, max(0, queue.tombstones - purge.before))
        return False

    def _over(self, purge: Purge) -> None:
        while purge.told:
            purge.told[0](purge.gone)
            del purge.told[0]

    def _leave(self, queue_id: int) -> bool:
        """A share of what a deleted queue left on disk; True once that is all."""
        catalog = self.core.catalog
        batch = self.core.work.batch
        if len(batch.retires) >= RETIRES_MAX:
            return False
        first = catalog.leaving[queue_id]
        found = catalog.store.read(queue_id, first, count_max=RECLAIM_COUNT, bytes_max=LEAVING_BYTES)
        if not found:
            catalog.has_left(queue_id)
            return True
        batch.retires += [(queue_id, sequence) for sequence, _ in found]
        catalog.leaving[queue_id] = found[-1][0] + 1
        return False


def _begin_purge(queue: Queue) -> None:
    """From now on nothing that is visible is offered any more.

    Of a transmission queue nothing at all is offered until the end: tombstones, which stay, go on from there.
    """
    shared = queue.shared
    shared.forget_read_ahead()
    if queue.in_transit:
        queue.stopped = True
    else:
        shared.position = max(shared.position, queue.visible)


def purge_some(queue: Queue, first: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
    """One turn's share of a purge of [first, end): what left, as (sequence, value), and where to go on.

    Stays: what a taker holds, tombstones, and everything once a named cursor is there. Values only of a transmission
    queue: of another, which may be large, nobody needs them.
    """
    work = queue.work
    if queue.named:
        return [], end
    if len(work.batch.retires) + len(work.moved) >= RETIRES_MAX:
        return [], first
    found, place = at_rest(queue, first, end, count_max=RECLAIM_COUNT, bytes_max=4 * READ_BYTES)
    gone: list[tuple[int, bytes]] = []
    size = 0
    for sequence, value in found:
        size += entry.size_of(value)
        gone.append((sequence, value if queue.in_transit else b""))
    if gone:  # all at once, and last: what left without its tombstone would be waited for
        sequences = [sequence for sequence, _ in gone]
        queue.shared.forget_all(sequences)
        queue.retire_all(sequences, size)
    return gone, place


def at_rest(
    queue: Queue, first: int, end: int, *, count_max: int, bytes_max: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Messages of [first, end) that no taker holds and that are not leaving, some of them, and where to go on."""
    found = queue.read(first, count_max=count_max, bytes_max=bytes_max)
    leaving = queue.leaving() if found else set()
    messages: list[tuple[int, bytes]] = []
    for sequence, value in found:
        if sequence >= end:
            return messages, end
        if not (value[1] & entry.TOMBSTONE or sequence in queue.shared.shown or sequence in leaving):
            messages.append((sequence, value))
    return messages, found[-1][0] + 1 if found else end
