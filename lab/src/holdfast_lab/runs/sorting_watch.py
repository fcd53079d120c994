"""Queues that sort by priority, watched at each turn: no consumer gets a message while a stored one of higher priority
is ready.

Rules of this file: looks at the store, the queue and what is in consumers' hands, never at the index that decides
(docs/adr/0072). Of consumers with selectors nothing is asked, nor of a subscription that has finished more out of order
than is kept: it is handed the oldest first.
"""

from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import ConsumerLink
from holdfast_lab.base.client_history import Violation
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

LEVELS: Final = 10
ENTRIES_MAX: Final = 2_000
"""More than a scene has in one queue."""

Place = tuple[int, int]
"""Where an entry stands: the higher the priority the lower, and then its sequence."""


def place_of(sequence: int, value: bytes) -> Place:
    return -min(value[2], LEVELS - 1), sequence


class SortingWatch:
    """Watches one node."""

    def __init__(self) -> None:
        self.held: dict[Cursor, set[int]] = {}
        """What was in consumers' hands after the turn before."""
        self.looked = 0

    def turned(self, node: SimNode) -> None:
        """A turn of the node is over."""
        held: dict[Cursor, set[int]] = {}
        queues = () if node.core is None else list(node.core.catalog.queues.values())
        for queue in queues:
            for cursor in queue.cursors if queue.config.priorities else ():
                held[cursor] = set(cursor.acquired)
                fresh = held[cursor] - self.held.get(cursor, set())
                if fresh and not halting.is_halted(cursor):
                    self._look(node.name, queue, cursor, fresh)
        self.held = held

    def _look(self, node: str, queue: Queue, cursor: Cursor, fresh: set[int]) -> None:
        entries = dict(queue.read(0, count_max=ENTRIES_MAX, bytes_max=1 << 30))
        given: list[tuple[Place, ConsumerLink]] = []
        for sequence in fresh:
            consumer = cursor.acquired[sequence].consumer
            if isinstance(consumer, ConsumerLink) and not consumer.selects and sequence in entries:
                given.append((place_of(sequence, entries[sequence]), consumer))
        if not given or len(entries) >= ENTRIES_MAX:
            return
        self.looked += 1
        last, consumer = max(given, key=lambda item: item[0])
        leaving = queue.leaving()
        waiting = {*cursor.requeued, *cursor.exclusions.aside}
        for sequence, value in entries.items():
            place = place_of(sequence, value)
            is_free = (
                sequence not in cursor.acquired
                and sequence not in leaving
                and sequence not in cursor.finished
                and (sequence >= cursor.position or sequence in waiting)
                and not cursor.sharing.looks_again_at(sequence)
                and not queue.expired(value)
                and sequence not in consumer.excluded
            )
            if place < last and is_free and consumer.delivery_bytes(sequence, value) <= consumer.bytes_max:
                raise Violation(
                    f"{queue.name} at {node}: sequence {last[1]} of priority {-last[0]} was handed out while "
                    f"{sequence} of priority {-place[0]} was ready"
                )


def watch_sorting(bed: SimBed) -> dict[str, SortingWatch]:
    """Watches the nodes that have queues which sort, by name."""
    found: dict[str, SortingWatch] = {}
    for name, node in bed.sim_nodes.items():
        if any(queue.priorities for queue in node.config.queues):
            found[name] = SortingWatch()
            node.on_turn.append(found[name].turned)
    return found
