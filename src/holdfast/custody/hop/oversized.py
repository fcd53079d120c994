"""Messages larger than the neighbour takes that is their next hop: each becomes a dead letter, and a tombstone goes on
in its place (CUSTODY, end to end 3).

Rules of this file: what there is no room for yet, or no share of the turn, stays in the hands of its custody sender,
unsent, and what is behind it goes on; a batch that no disk takes would hold up everybody's. So does what another
neighbour was sent before the way changed, as long as that one may still answer: it would be delivered as well.
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
"""How long it is until room is looked for again."""

NEXT_S: Final = 0.02
"""How long it is until the commit that is gathered may be another one."""


class Holder(Protocol):
    """The custody sender that has them in its hands."""

    hop: HopState
    destination: str
    queue: Queue
    cursor: Cursor
    in_doubt: dict[int, int]

    @property
    def may_be_answered(self) -> bool:
        """Whether an answer to what it has in doubt may come."""

    def beside(self) -> "Iterator[Holder]":
        """The senders to the same destination by other neighbours."""

    def in_hands(self, sequence: int) -> bytes | None:
        """That entry, if it is this sender's own."""

    def requeue(self, sequences: list[int]) -> None:
        """Those that are its own still go back to their places."""

    def schedule(self) -> None:
        """It has something to do at a moment of its own."""


class Oversized:
    """Those of one custody sender, in the order in which they were found. It is told whose they are with each call: a
    sender is freed with its queue, by reference counts alone."""

    def __init__(self, dead_lettering: DeadLettering, clock: Clock) -> None:
        self._dead_lettering = dead_lettering
        self._clock = clock
        self.sequences: dict[int, None] = {}
        self.due = 0.0

    def add(self, sender: Holder, sequence: int, value: bytes) -> None:
        """The sender has taken it, and its link does not."""
        if self.sequences or self._must_wait(value) or answer_awaited(sender, sequence):
            self.sequences[sequence] = None
            sender.schedule()
        else:
            self._end(sender, sequence, value)

    def step(self, sender: Holder, now: float) -> None:
        """Ends those that there is room for, a turn's share at most. What has become something else meanwhile, as by
        its time to live, goes back to its place."""
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
        """Forgets them; what there was."""
        sequences = [*self.sequences]
        self.sequences.clear()
        return sequences

    def _must_wait(self, value: bytes) -> bool:
        """Whether it is not its time yet; then `due` says when that is asked again."""
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
    """The neighbour that was sent the entry before the way changed, and that may still say that it has stored it."""
    return next((other.hop.name for other in _awaited(sender) if sequence in other.in_doubt.values()), None)


def _awaited(sender: Holder) -> Iterator[Holder]:
    return (other for other in sender.beside() if other.in_doubt and other.may_be_answered)
