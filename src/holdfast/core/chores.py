"""What is too much for one turn and is done bit by bit: purges, and the entries of queues that were deleted.

Rules of this file: a turn takes a bounded share, and none while its batch is deep already; what a restart must go on
with has a row in the store, what it may forget (a purge, whose answer nobody had) has none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.broker.cursor import RETIRES_MAX
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.core.endings import end_in_transit

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

LEAVING_BYTES: Final = 4 * 1024 * 1024
"""What one turn reads of a deleted queue, to know what is there."""

ASKED_MAX: Final = 256
"""Requests that wait for the end of a purge, all purges together; one more is refused."""


@dataclass(slots=True)
class Purge:
    """`place`: where it goes on; `end`: what came later stays. `told` are called with how many left."""

    place: int
    end: int
    gone: int = 0
    told: list[Callable[[int], None]] = field(default_factory=list)


class Chores:
    """Of one node."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.purges: dict[Queue, Purge] = {}

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here."""
        return bool(self.purges or self.core.catalog.leaving)

    @property
    def full(self) -> bool:
        """Whether as many wait for the end of a purge as may."""
        return sum(len(purge.told) for purge in self.purges.values()) >= ASKED_MAX

    def purge(self, queue: Queue, told: Callable[[int], None]) -> None:
        """Empties a queue but for what is in somebody's hands; in transmission, tombstones take the places, and stay.

        `told` is called in the turn that takes the last of it, with how many left. The caller has asked `full`.
        """
        purge = self.purges.get(queue)
        end = queue.begin_purge()
        if purge is None:
            purge = self.purges[queue] = Purge(0, end)
        purge.end = max(purge.end, end)
        purge.told.append(told)

    def forget(self, queue: Queue) -> None:
        """The queue is deleted: what is left of it leaves as such."""
        purge = self.purges.pop(queue, None)
        if purge is not None:
            self._over(purge)

    def step(self) -> None:
        """This turn's share of all of it."""
        for queue, purge in list(self.purges.items()):
            gone, purge.place = queue.purge_some(purge.place, purge.end)
            purge.gone += len(gone)
            if queue.in_transit:
                end_in_transit(self.core, [(queue, sequence, value) for sequence, value in gone])
            if purge.place >= purge.end:
                queue.end_purge()
                self._over(purge)
                del self.purges[queue]
        for queue_id in list(self.core.catalog.leaving):
            if not self._leave(queue_id):
                break

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
