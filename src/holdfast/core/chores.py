"""What is too much for one turn and is done bit by bit: purges, the entries of queues that were deleted, and what is
queued for a node that left.

Rules of this file: a turn takes a bounded share, and none while its batch is deep already; what a restart must go on
with has a row in the store, what it may forget (a purge, whose answer nobody had) has none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.broker import entry
from holdfast.broker.cursor import RETIRES_MAX
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.core.endings import DEATH_BYTES_MAX, dead_letter_on_its_way, end_in_transit

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

DEPART_COUNT: Final = 200
"""Messages that one turn makes dead letters of."""

LEAVING_BYTES: Final = 4 * 1024 * 1024
"""What one turn reads of a deleted queue, to know what is there."""

ASKED_MAX: Final = 256
"""Requests that wait for the end of a purge, or of what is queued for a node that left, all together; one more is
refused."""


@dataclass(slots=True)
class Purge:
    """`place`: where it goes on; `end`: what came later stays. `told` are called with how many left."""

    place: int
    end: int
    gone: int = 0
    told: list[Callable[[int], None]] = field(default_factory=list)


@dataclass(slots=True)
class Departure:
    """A transmission queue for a node that left: its messages become dead letters. `place`: where it goes on; `end`:
    what came later is for another pass; `before`: the tombstones that were there. `told` are called with how many
    messages became dead letters, and how many tombstones are left."""

    end: int
    before: int
    with_tombstones: bool
    place: int = 0
    starved: bool = False
    """Whether the store has no room for the dead letters."""
    told: list[Callable[[int, int], None]] = field(default_factory=list)


class Chores:
    """Of one node."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.purges: dict[Queue, Purge] = {}
        self.departures: dict[Queue, Departure] = {}

    @property
    def pending(self) -> bool:
        """Whether there is anything here to be asked for its share."""
        return bool(self.purges or self.departures or self.core.catalog.leaving)

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here."""
        return bool(self.purges or self.core.catalog.leaving) or not all(
            departure.starved for departure in self.departures.values()
        )

    @property
    def full(self) -> bool:
        """Whether as many wait for the end of something as may."""
        asked = sum(len(purge.told) for purge in self.purges.values())
        return asked + sum(len(departure.told) for departure in self.departures.values()) >= ASKED_MAX

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

    def depart(self, queue: Queue, told: Callable[[int, int], None], *, with_tombstones: bool) -> None:
        """Makes dead letters of what is queued for a node that left (ADR 0024).

        Tombstones take the places, lest such a node, should it come back, wait for those numbers. The queue goes once
        it is empty, or has only tombstones left that `with_tombstones` gives up. The caller has asked `full`.
        """
        departure = self.departures.get(queue)
        if departure is None:
            departure = self.departures[queue] = Departure(queue.begin_purge(), queue.tombstones, with_tombstones)
        departure.with_tombstones |= with_tombstones
        departure.told.append(told)

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
        for queue, departure in list(self.departures.items()):
            self._depart(queue, departure)
        for queue_id in list(self.core.catalog.leaving):
            if not self._leave(queue_id):
                break

    def _over(self, purge: Purge) -> None:
        while purge.told:
            purge.told[0](purge.gone)
            del purge.told[0]

    def _depart(self, queue: Queue, departure: Departure) -> None:
        core = self.core
        if departure.place < departure.end:
            self._make_dead_letters(queue, departure)
        elif core.in_flight is None and not core.turn.moves:  # what a full disk refused is back
            if queue.messages - queue.tombstones > len(queue.shared.shown):
                departure.place, departure.end = 0, queue.visible
                return
            del self.departures[queue]
            queue.end_purge()
            made = max(0, queue.tombstones - departure.before)
            if queue.messages <= (queue.tombstones if departure.with_tombstones else 0):
                core.forwarding.forget(queue.name[1:], queue)
                core.catalog.delete(queue)
                core.forget_queue(queue)
            left = queue.tombstones if core.catalog.queues.get(queue.name) is queue else 0
            for told in departure.told:
                told(made, left)

    def _make_dead_letters(self, queue: Queue, departure: Departure) -> None:
        core = self.core
        if len(core.turn.moves) >= DEPART_COUNT:
            return
        name = queue.name[1:]
        reason = f"{name!r} left: it is in neither the configuration nor the topology of {core.config.name!r}"
        found, place = queue.at_rest(departure.place, departure.end, count_max=DEPART_COUNT, bytes_max=LEAVING_BYTES)
        for sequence, value in found:
            departure.starved = not core.has_room(len(value) + DEATH_BYTES_MAX, forwarding=True)
            if departure.starved:
                departure.place = sequence
                return
            queue.shared.forget(sequence)
            dead_letter_on_its_way(core, queue, sequence, value, reason, f"{entry.unpack(value).to}@{name}")
        departure.place = place

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
