"""Messages larger than their next hop accepts: each becomes a dead letter, and a tombstone replaces it (CUSTODY, end to
end 3).

Rules of this file: a message for which there is no room yet, or no share of the turn, stays with its custody sender,
unsent, and the messages behind it pass; a batch that the disk refuses would delay all others. A message that was sent
to another neighbour before the route changed also stays, as long as that neighbour may still answer: otherwise it could
be delivered as well.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import entry
from holdfast.broker.entries.host_names import node_of
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import MOVED_BYTES, MOVED_COUNT, DeadLettering
from holdfast.custody.hop.state import HopState
from holdfast.engine.clock import Clock

AGAIN_S: Final = 1.0
"""Seconds until room is checked again."""

NEXT_S: Final = 0.02
"""Seconds until a new commit may be gathered."""


class Holder(Protocol):
    """The custody sender that holds them."""

    hop: HopState
    destination: str
    queue: Queue
    cursor: Cursor
    in_doubt: dict[int, int]

    @property
    def may_be_answered(self) -> bool:
        """Whether its transfers in doubt may still be answered."""

    def beside(self) -> "Iterator[Holder]":
        """The senders to the same destination by other neighbours."""

    def in_hands(self, sequence: int) -> bytes | None:
        """The entry, if this sender holds it."""

    def requeue(self, sequences: list[int]) -> None:
        """Requeues those that it still holds."""

    def schedule(self) -> None:
        """Requests a tick at a time of its own."""


class Oversized:
    """The oversized messages of one custody sender, in the order in which they were found. Each call passes the sender,
    so that reference counts alone free a sender with its queue."""

    def __init__(self, dead_lettering: DeadLettering, clock: Clock) -> None:
        self._dead_lettering = dead_lettering
        self._clock = clock
        self.sequences: dict[int, None] = {}
        self.due = 0.0

    def add(self, sender: Holder, sequence: int, value: bytes) -> None:
        """Adds an entry that the sender holds and its link cannot carry."""
        if self.sequences or self._must_wait(value) or answer_awaited(sender, sequence):
            self.sequences[sequence] = None
            sender.schedule()
        else:
            self._end(sender, sequence, value)

    def step(self, sender: Holder, now: float) -> None:
        """Dead-letters those for which there is room, at most a turn's share. Entries that have changed meanwhile, for
        example expired, are requeued."""
        if not self.sequences or now < self.due:
            return
        changed: list[int] = []
        size = 0
        awaited = {sequence for other in _awaited(sender) for sequence in other.in_doubt.values()}
        looked_at = list(islice((sequence for sequence in self.sequences if sequence not in awaited), MOVED_COUNT))
        if not looked_at:
            self.due = now + AGAIN_S
        for sequence in looked_at:
            value = sender.in_hands(sequence)
            if value is not None and not sender.queue.expired(value):
                if self._must_wait(value):
                    break
                self._end(sender, sequence, value)
            elif value is not None:
                changed.append(sequence)
            del self.sequences[sequence]
            size += 0 if value is None else len(value)
            if size >= MOVED_BYTES:
                break
        sender.requeue(changed)

    def clear(self) -> list[int]:
        """Forgets all of them and returns them."""
        sequences = [*self.sequences]
        self.sequences.clear()
        return sequences

    def _must_wait(self, value: bytes) -> bool:
        """Whether it must wait; then `due` is set to the next try."""
        if not self._dead_lettering.has_room_for_dead_letter(len(value)):
            self.due = self._clock.now + AGAIN_S
            return True
        if self._dead_lettering.has_moved_its_share():
            self.due = self._clock.now + NEXT_S
            return True
        return False

    def _end(self, sender: Holder, sequence: int, value: bytes) -> None:
        reason = f"larger than {sender.hop.name!r} takes"
        sent_by = [other.hop.name for other in sender.beside() if sequence in other.in_doubt.values()]
        if sent_by:
            reason += f"; {sent_by[0]!r} was sent it before, and may have delivered it"
        place = f"{entry.unpack(value).to}@{node_of(sender.destination)}"
        self._dead_lettering.dead_letter_on_its_way(sender.queue, sequence, value, reason, place)
        sender.cursor.moved(sequence)


def answer_awaited(sender: Holder, sequence: int) -> str | None:
    """The neighbour to which the entry was sent before the route changed, and which may still answer that it has stored
    it."""
    return next((other.hop.name for other in _awaited(sender) if sequence in other.in_doubt.values()), None)


def _awaited(sender: Holder) -> Iterator[Holder]:
    return (other for other in sender.beside() if other.in_doubt and other.may_be_answered)
