"""Subscriptions of topics that make dead letters beyond their bounds (docs/adr/0096).

Rules of this file: the oldest messages that no link holds become dead letters, a bounded number in each turn; they stay
while there is no room for that. They leave the subscription with the batch that has their dead letters.
"""

from holdfast.broker import backlogs
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.bounds import DEAD_LETTER
from holdfast.broker.topic import Topic
from holdfast.custody.dead_lettering import MOVED_BYTES, MOVED_COUNT, DeadLettering
from holdfast.peers.link_tables import LinkTables
from holdfast.state.catalog import Catalog


class Overflow:
    """Makes dead letters of messages beyond subscriptions' bounds."""

    def __init__(self, catalog: Catalog, work: Work[Queue], links: LinkTables, dead_lettering: DeadLettering) -> None:
        self._catalog = catalog
        self._work = work
        self._links = links
        self._dead_lettering = dead_lettering

    def refill(self) -> None:
        """There may be room for dead letters again."""
        for cursor in self._work.overfull:
            cursor.queue.touch()

    def step(self) -> None:
        """This turn's share."""
        left = MOVED_COUNT
        overfull = self._work.overfull
        for cursor in list(overfull):
            if left <= 0 or self._dead_lettering.has_moved_its_share():
                cursor.queue.touch()
                break
            what = overfull.pop(cursor)
            moved = self._step(cursor, left)
            if moved is not None:  # behind the others
                left -= moved
                overfull[cursor] = what

    def _step(self, cursor: Cursor, count_max: int) -> int | None:
        """Does the share of one subscription; returns how many it moved, None if nothing is left to do."""
        topic = self._catalog.queues.get(cursor.queue.key)
        bounds = topic.limited.get(cursor) if isinstance(topic, Topic) else None
        if not isinstance(topic, Topic) or bounds is None or bounds.when_full != DEAD_LETTER:
            return None
        beyond = backlogs.excess(cursor, bounds, topic.unmarked, [*self._dead_lettering.moving.of(cursor)])
        wanted = backlogs.oldest(cursor, bounds, beyond, topic.unmarked)[:count_max] if beyond.why else []
        if not wanted:
            return None
        found: dict[int, bytes] = {}
        size = 0
        for sequence in wanted:
            value = topic.value(sequence)
            if value is None:  # it has left meanwhile
                cursor.pass_over([sequence])
                continue
            size += len(value)
            if not self._dead_lettering.has_room_for_dead_letter(size):
                self._links.wait_for_room(self)
                break
            found[sequence] = value
            if size >= MOVED_BYTES:
                break
        if found:
            reason = f"subscription {cursor.name!r} had more than {bounds.most(beyond.why)}"
            self._dead_lettering.end_overfull(cursor, found, reason)
            topic.touch()
        return len(found)
