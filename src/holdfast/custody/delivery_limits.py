"""Messages whose deliveries have failed as often as their queue allows become dead letters (`deliveries_max`,
docs/adr/0066).

Rules of this file: EXHAUSTED holds such an entry until the turn with its dead letter is on disk, and still afterwards
if that turn is refused; no consumer gets it meanwhile. It stays while there is no room for the dead letter. A turn
moves a bounded number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.delivery_counts import EXHAUSTED
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.moving_out import MovingOut
from holdfast.engine.effects import Effect
from holdfast.peers.link_tables import LinkTables
from holdfast.state import tied
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

LOOKED_MAX: Final = 1_000
"""Entries that one turn examines."""


@dataclass(frozen=True, slots=True, eq=False)
class Exhausted(Effect):
    """Dead letters of a cursor are in the turn: the handler learns whether the turn was stored."""

    queue: str
    cursor: Cursor = field(repr=False)
    sequences: list[int] = field(repr=False)


class DeliveryLimits:
    """Makes dead letters of such messages, a bounded number in each turn."""

    def __init__(
        self,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        links: LinkTables,
        dead_lettering: DeadLettering,
    ) -> None:
        self._catalog = catalog
        self._turns = turns
        self._work = work
        self._links = links
        self._dead_lettering = dead_lettering
        self.moving = MovingOut(catalog, EXHAUSTED)
        turns.effects.on_decided(Exhausted, self._decided)

    def refill(self) -> None:
        """There may be room for dead letters again."""
        for cursor in self._work.exhausted:
            cursor.queue.touch()

    def step(self) -> None:
        """Does this turn's share."""
        left = LOOKED_MAX
        for cursor in list(self._work.exhausted):
            if self._catalog.has_cursor(cursor):
                left = self._step(cursor, left)
                if cursor.exhausted:
                    if left <= 0:
                        return
                    continue
            self._work.exhausted.pop(cursor, None)

    def _step(self, cursor: Cursor, left: int) -> int:
        """Does the share of one cursor; returns the rest of the turn's share."""
        queue, gone = self._catalog.queue_of(cursor), list[int]()
        for sequence in list(cursor.exhausted):
            if left <= 0 or self._dead_lettering.has_moved_its_share():
                queue.touch()
                left = 0
                break
            left -= 1
            value = queue.value(sequence)
            failures = cursor.failures(sequence)
            if not cursor.is_exhausted(failures):
                cursor.take_back([sequence])  # the bound was raised meanwhile
                continue
            if value is not None and not self._dead_lettering.has_room_for_dead_letter(len(value)):
                self._links.wait_for_room(self)
                left = 0
                break
            if not gone:
                self._turns.gathered.decided.append(Exhausted(self._turns.event, queue.name, cursor, gone))
                self._turns.gathered.changes += 1
                self._work.request_commit()
            gone.append(sequence)
            del cursor.exhausted[sequence]
            self.moving.add(cursor, sequence)
            if value is not None:
                self._dead_lettering.dead_letter_exhausted(queue, cursor.name, value, failures or 0)
        if gone and queue.config.durable:
            tied.retire(self._catalog, self._turns.gathered, cursor, EXHAUSTED, gone)
        return left

    def _decided(self, effect: Exhausted, stored: bool) -> None:
        """The dead letters are on disk, or were undone."""
        cursor = effect.cursor
        mine = self.moving.decided(cursor, effect.sequences)
        if not self._catalog.has_cursor(cursor):
            return
        if stored:
            cursor.finish(mine)
        elif mine:
            cursor.exhausted.update(dict.fromkeys(mine))
            self._work.exhausted[cursor] = None
            self._links.wait_for_room(self)
        cursor.queue.touch()

    def suspended(self) -> Iterator[tuple[object, None]]:
        """The entries held by EXHAUSTED."""
        yield EXHAUSTED, None

    def recover(self) -> None:
        """After a failure: entries held by EXHAUSTED that are in no turn are moved again."""
        for queue in self._catalog.queues.values():
            for cursor in queue.cursors:
                moving = self.moving.of(cursor)
                held = [item for item, held in cursor.acquired.items() if held.consumer is EXHAUSTED]
                cursor.exhausted = dict.fromkeys(item for item in held if item not in moving)
                if cursor.exhausted:
                    self._work.exhausted[cursor] = None
                    queue.touch()
