"""Messages that came back, because a neighbour's route leads over this node: held until a route changes (CUSTODY,
"Transit").

Rules of this file: the state besides the entries is bounded; losing it costs a retry, never a message.
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.engine.back_off import back_off_s
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Undone

HELD_MAX: Final = 10_000
"""Returned messages held for one destination; beyond it nothing new is sent there, and no returned message is
accepted."""

RETURN_S: Final = (0.5, 60.0)
"""The first and the longest wait before returned messages are sent again after a table changed. The longest is also how
long they are held without a known change, because in a longer loop a table may have changed at a node that does not
report to this one."""


@dataclass(slots=True)
class Returned:
    """The returned messages of one destination, by sequence in its transmission queue, and when they are sent again."""

    due: float
    sequences: dict[int, None] = field(default_factory=dict)
    by: dict[str, None] = field(default_factory=dict)
    """Neighbours that returned some of them."""
    attempts: int = 0
    sent_again_at: float = 0.0


class SentBack:
    """`by_destination`: the returned messages."""

    def __init__(self, clock: Clock, catalog: Catalog, log: Log) -> None:
        self._clock = clock
        self._catalog = catalog
        self._log = log
        self.by_destination: dict[str, Returned] = {}

    def hold(self, destination: str, sequence: int, neighbour: str) -> None:
        held = self.by_destination.get(destination)
        now = self._clock.now
        if held is None:
            held = self.by_destination[destination] = Returned(now + RETURN_S[1])
        if not held.sequences:
            held.due = now + RETURN_S[1]
            if now - held.sent_again_at > RETURN_S[1]:
                held.attempts = 0
            text = f"messages for {destination!r} come back from {neighbour!r}, whose route leads over this node"
            self._log.write(
                "WARNING", f"{text}: held until a route changes; compare the routes of both in their status"
            )
        held.sequences[sequence] = None
        held.by[neighbour] = None

    def holds(self, destination: str, sequence: int) -> bool:
        """Whether that entry waits for a table to change; its sender keeps it without sending it."""
        held = self.by_destination.get(destination)
        return held is not None and sequence in held.sequences

    def held(self, destination: str) -> int:
        """How many messages are held; at HELD_MAX nothing new is sent by the same route."""
        held = self.by_destination.get(destination)
        return 0 if held is None else len(held.sequences)

    def forget(self, destination: str) -> None:
        """The transmission queue for that destination is deleted."""
        self.by_destination.pop(destination, None)

    def undo(self, undone: Undone) -> None:
        """Undoes those turns: entries that they appended are not among the returned ones."""
        by_id = self._catalog.by_id
        for turn in undone.turns if self.by_destination else ():
            for queue_id, sequence, _ in turn.batch.appends:
                queue = by_id.get(queue_id)
                if queue is None or not queue.in_transit or (queue, sequence) in turn.rewritten:
                    continue
                held = self.by_destination.get(queue.destination)
                if held is not None:
                    held.sequences.pop(sequence, None)

    def try_soon(self, destination: str) -> None:
        """A table has changed: returned messages of that destination may be sent again."""
        held = self.by_destination[destination]
        if held.sequences:
            held.due = min(held.due, self._clock.now + back_off_s(RETURN_S, held.attempts))

    def tick(self, now: float) -> None:
        for destination, held in list(self.by_destination.items()):
            if not held.sequences:
                if now - held.sent_again_at > RETURN_S[1]:
                    del self.by_destination[destination]
            elif now >= held.due:
                again, held.sequences = held.sequences, {}
                held.by.clear()
                held.attempts += 1
                held.sent_again_at = now
                queue = self._catalog.transmission(destination)
                queue.shared.requeue(list(again), failed=False)

    def next_deadline(self) -> float | None:
        if not self.by_destination:
            return None
        return min((held.due for held in self.by_destination.values() if held.sequences), default=None)
