"""What consumers reject, on its way to the dead letters: a bounded share with each batch.

Rules of this file: what waits here is in no consumer's hands, whatever becomes of the link; of one link it ends in the
order in which it was rejected; a receiver that settles second is answered once all of its disposition is on disk. Who
rejects a great deal holds up nobody else: connections share each batch by bytes, and their consumers take turns. What
fails on its way is tried once more; then it is offered anew, so that it holds up nobody either.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.performatives import Error, Rejected
from holdfast.amqp.types import Symbol
from holdfast.broker.cursor import Cursor
from holdfast.broker.taker import Shown
from holdfast.core.endings import REASON_CHARACTERS_MAX, end_rejected
from holdfast.units import KIB, MIB

if TYPE_CHECKING:
    from holdfast.core.egress import ConsumerLink
    from holdfast.core.node import NodeCore
    from holdfast.core.peer import Peer
    from holdfast.core.users import Use

REJECTED_BYTES_MAX: Final = 4 * MIB
"""Of what was rejected, in one batch, and one message more; as much is read in one step."""

BESIDE_BYTES: Final = 1_024
"""What each counts beside its own bytes, so that their number is bounded too."""

CONDITION_CHARACTERS_MAX: Final = 100
"""Of an error's condition in an answer that is made shorter."""

SHARE_BYTES: Final = 64 * KIB
"""What a connection's consumers may end before the next one's turn. Who goes beyond, by one message, waits for as many
turns as that was shares."""

REJECTION_BYTES: Final = 512
ROW_BYTES: Final = 128
"""What a rejection that waits holds in memory beside its words, and each of its messages, about."""

WAITING_MAX: Final = 65_536
"""Messages that one user's consumers of a cursor rejected, and that wait. With so many they get no more there, else
what waits would grow with each link that comes to reject and goes; one disposition may go beyond."""


@dataclass(eq=False, slots=True)
class Rejection:
    """What is left of one disposition that rejected. `answer`: what the link is told at the end."""

    link: "ConsumerLink"
    sequences: deque[int]
    reason: str
    answer: tuple[Sender, int, int, object] | None
    counted_bytes: int = 0
    """What is counted of it beside its messages."""
    failed: int | None = None
    """The sequence that failed on its way."""

    @property
    def cursor(self) -> Cursor:
        return self.link.cursor


@dataclass(eq=False, slots=True)
class Lane:
    """What waits of one connection, which may be gone: by link, the one whose turn it is first.

    `left_bytes`: what is left of its shares; below nothing it waits.
    """

    left_bytes: int = 0
    links: "OrderedDict[ConsumerLink, deque[Rejection]]" = field(default_factory=OrderedDict)


class Rejections:
    """Moves what consumers rejected to the dead letters, connections by turns."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.waiting: dict[Rejection, None] = {}
        self.counts: dict[tuple[Cursor, Use | None], int] = {}
        """How many messages wait, by cursor and by whose consumers rejected them."""
        self.account = core.memory.rejecting
        self.crowded: dict[Use, None] = {}
        """Whose consumers get nothing until less waits: of theirs something did when `account` was full."""
        self._lanes: OrderedDict[Peer, Lane] = OrderedDict()
        """The one whose turn it is first."""

    def add(
        self,
        link: "ConsumerLink",
        sequences: list[int],
        state: Rejected,
        answer: tuple[Sender, int, int, object] | None,
    ) -> None:
        """Takes the entries out of their consumer's hands, and ends as many as may go with this batch."""
        said = state.error
        reason = "rejected"
        if said is not None:
            words = f"rejected: {said.condition} {said.description or ''}".strip()
            if answer is not None and (said.info or len(words) > REASON_CHARACTERS_MAX):
                answer = (*answer[:3], _shortened(said))
            reason = words[:REASON_CHARACTERS_MAX]
        shown, key = link.cursor.shown, (link.cursor, link.use)
        rejection = Rejection(link, deque(), reason, answer)
        taken = {sequence: Shown(rejection, shown[sequence].size) for sequence in sequences if sequence in shown}
        rejection.sequences.extend(taken)
        words_bytes = getsizeof(reason) * (1 if answer is None else 2)
        rejection.counted_bytes = REJECTION_BYTES + words_bytes
        lane = self._lanes.get(link.peer) or Lane()
        self.account.add(rejection.counted_bytes + ROW_BYTES * len(taken))
        shown.update(taken)  # from here on nothing is called that could fail
        self.waiting[rejection] = None
        self._lanes[link.peer] = lane
        lane.links.setdefault(link, deque()).append(rejection)
        link.rejecting += len(taken)
        self.counts[key] = self.counts.get(key, 0) + len(taken)
        if link.use is not None and self.account.held >= self.account.held_max:
            link.use.crowded = True
            self.crowded[link.use] = None
        if len(self.waiting) == 1:
            self.step()

    def step(self) -> None:
        """This batch's share."""
        try:
            self._step()
        finally:
            if self.crowded and self.account.held <= self.account.held_max - self.account.held_max // 8:
                for use in self.crowded:
                    use.crowded = False
                    use.settled(0)
                self.crowded.clear()

    def _step(self) -> None:
        left_bytes = REJECTED_BYTES_MAX
        while self.waiting and left_bytes > 0 and self._has_room():
            peer, lane = next(iter(self._lanes.items()))
            self._lanes.move_to_end(peer)
            lane.left_bytes += SHARE_BYTES
            while lane.links and lane.left_bytes > 0 and left_bytes > 0 and self._has_room():
                link, rejections = next(iter(lane.links.items()))
                lane.links.move_to_end(link)
                size = self._end_one(rejections[0])
                lane.left_bytes -= size
                left_bytes -= size
                if not rejections[0].sequences:
                    self._over(rejections[0])

    def is_crowded(self, link: "ConsumerLink") -> bool:
        """Whether so much waits of that link's user and cursor that it gets no more."""
        return self.counts.get((link.cursor, link.use), 0) >= WAITING_MAX

    def _has_room(self) -> bool:
        return self.core.turn.rejected_bytes < REJECTED_BYTES_MAX

    def _end_one(self, rejection: Rejection) -> int:
        """Ends the next that it has, if any is left; what that counts."""
        link, cursor, sequences = rejection.link, rejection.cursor, rejection.sequences
        key = cursor, link.use
        if not self.core.catalog.has_cursor(cursor):  # deleted, with all that was in it
            self.account.refund(ROW_BYTES * len(sequences))
            link.rejecting -= len(sequences)
            self.counts[key] -= len(sequences)
            sequences.clear()
        size = 0
        while sequences and not size:
            sequence = sequences[0]
            shown = cursor.shown.get(sequence)
            if shown is not None and shown.taker is rejection:
                size = self._end_entry(rejection, sequence)
            self.account.refund(ROW_BYTES)
            del sequences[0]
            link.rejecting -= 1
            self.counts[key] -= 1
        return size

    def _end_entry(self, rejection: Rejection, sequence: int) -> int:
        core, cursor = self.core, rejection.cursor
        try:
            size, moved = end_rejected(core, cursor, sequence, rejection.reason)
        except Exception:
            if rejection.failed == sequence:
                cursor.give_back([sequence], failed=True)
            rejection.failed = sequence
            raise
        size += BESIDE_BYTES
        if moved:
            core.turn.rejected_bytes += size
        return size

    def _over(self, rejection: Rejection) -> None:
        """Nothing is left of it."""
        link, cursor = rejection.link, rejection.cursor
        if self.core.catalog.has_cursor(cursor):
            cursor.queue.touch()
        lane = self._lanes[link.peer]
        self.account.refund(rejection.counted_bytes)
        lane.links[link].popleft()  # from here on nothing is called that could fail
        if not lane.links[link]:
            del lane.links[link]
        if not lane.links:
            del self._lanes[link.peer]
        if not self.counts[cursor, link.use]:
            del self.counts[cursor, link.use]
        del self.waiting[rejection]
        if rejection.answer is not None:
            self.core.turn.answers.append(rejection.answer)

    def stop(self) -> None:
        """The node stops: what waits is back in its place, and is given out again later."""
        for rejection in self.waiting:
            if self.core.catalog.has_cursor(rejection.cursor):
                rejection.cursor.give_back(list(rejection.sequences), failed=True)
        self.waiting.clear()
        self._lanes.clear()
        self.counts.clear()
        self.account.hold(0)

    @property
    def held_bytes(self) -> int:
        """What `account` counts."""
        return sum(item.counted_bytes + ROW_BYTES * len(item.sequences) for item in self.waiting)


def _shortened(said: Error) -> Rejected:
    """What a receiver that settles second hears again, which waits until all is on disk: no more than is kept."""
    condition = Symbol(said.condition[:CONDITION_CHARACTERS_MAX])
    return Rejected(Error(condition, (said.description or "")[: REASON_CHARACTERS_MAX - CONDITION_CHARACTERS_MAX]))
