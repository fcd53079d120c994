"""Consumers' outcomes that need work for each message: rejected entries become dead letters; annotated ones are
rewritten and requeued. A bounded share is done in each turn, and in each batch.

Rules of this file: entries that wait here are held by no consumer, whatever happens to the link. Those of one link are
handled in the order of their dispositions; a receiver that settles second is answered once all of its disposition is on
disk. One consumer with many outcomes does not delay others: connections share each batch by bytes, and their consumers
take turns. An entry that fails is tried once more; then it is offered again, so that it does not block others.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, Final, Protocol

from holdfast.accounts import Account
from holdfast.amqp.connection import Sender
from holdfast.amqp.weight import weight
from holdfast.amqp.wire.performatives import Error, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.entries import annotate
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import REASON_CHARACTERS_MAX, DeadLettering, Ended
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use
from holdfast.settings.limits import Limits
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns
from holdfast.units import KIB, MIB

SETTLED_BYTES_MAX: Final = 4 * MIB
"""Bytes of rejected or rewritten entries in one batch, and one message more; as much is read in one step. At most a
quarter of `unstored_bytes_max`, where rewritten entries count."""

BESIDE_BYTES: Final = 2_112
"""Bytes that each entry counts besides its own, so that their number is bounded too: to less than the dead letters at
their bound drop in a turn (RECLAIM_COUNT); otherwise a flood of rejections would make them grow."""

EFFORT_A_TURN: Final = 6_000
"""Effort of all connections together in one turn, and one message more: in the unit of amqp/effort.py, about a
microsecond."""

MESSAGE_EFFORT: Final = 40
EFFORT_BYTES: Final = 512
EFFORT_NOTE_BYTES: Final = 16
"""The effort of a message: the first value, 1 for so many bytes that are copied, and 1 for so many bytes of
annotations, which may have to be decoded."""

CONDITION_CHARACTERS_MAX: Final = 100
"""Characters of an error's condition in an answer that is shortened."""

NOTES_ANSWERED_MAX: Final = 1_024
"""Encoded bytes of annotations that an answer repeats; beyond that it has none."""

SHARE_BYTES: Final = 64 * KIB
"""Bytes that a connection's consumers may settle before the next connection's turn. If one message exceeds this, the
connection waits for as many turns as the message has shares."""

SETTLEMENT_BYTES: Final = 512
ROW_BYTES: Final = 128
"""Bytes of memory that a waiting disposition uses besides its text, and that each of its messages uses, about."""

WAITING_MAX: Final = 65_536
"""Waiting messages of one user's consumers of a cursor. At this number they get no more there; otherwise the number
would grow with each link that rejects and ends. One disposition may exceed it."""

Answer = tuple[Sender, int, int, object] | None


class Settles(Protocol):
    """The consumer's link of the outcomes, which may have ended. `settling`: how many of its messages wait here."""

    peer: Peer
    link: Any
    cursor: Cursor
    queue: Queue
    use: Use | None
    settling: int

    def all_settled(self) -> None: ...


@dataclass(eq=False, slots=True)
class Settlement:
    """The rest of one disposition. `answer`: what the link is sent at the end; `words_bytes`: memory for the peer's
    error or annotations."""

    link: Settles
    answer: Answer
    words_bytes: int
    sequences: deque[int] = field(default_factory=deque)
    counted_bytes: int = 0
    """Bytes that it counts besides its messages."""
    failed: int | None = None
    """The sequence at which an exception was raised."""

    @property
    def cursor(self) -> Cursor:
        return self.link.cursor

    def settle(self, dead_lettering: DeadLettering, sequence: int) -> Ended:
        """Applies the disposition to one entry, which it then no longer holds."""
        raise AssertionError("a disposition is a rejection or an annotation")

    def over(self) -> None:
        """Nothing is left of it."""


@dataclass(eq=False, slots=True)
class Rejection(Settlement):
    """Rejected: the entries become dead letters, with that reason."""

    reason: str = "rejected"

    def settle(self, dead_lettering: DeadLettering, sequence: int) -> Ended:
        return dead_lettering.end_rejected(self.cursor, sequence, self.reason)


@dataclass(eq=False, slots=True)
class Annotation(Settlement):
    """Modified, with annotations to be stored: the entries are requeued with these."""

    notes: annotate.Notes = annotate.NO_NOTES
    delivery_failed: bool = False
    left_out: int = 0
    why: str = ""
    """Why the annotations of so many messages were left out."""

    def settle(self, dead_lettering: DeadLettering, sequence: int) -> Ended:
        ended, why = dead_lettering.annotate_entry(self.link.peer, self.link.queue, sequence, self.notes)
        if why:
            self.left_out += 1
            self.why = why
        self.cursor.requeue([sequence], failed=self.delivery_failed)
        return ended

    def over(self) -> None:
        if self.left_out:
            text = f"its annotations of {self.left_out} messages are left out: {self.why}"
            self.link.peer.log("WARNING", text)


@dataclass(eq=False, slots=True)
class Lane:
    """What waits of one connection, which may be closed: by link, in the order of their turns. `left_bytes`: the rest
    of its shares; below 0 it waits.
    """

    left_bytes: int = 0
    links: OrderedDict[Settles, deque[Settlement]] = field(default_factory=OrderedDict)


class Settlements:
    """Applies such outcomes, connections by turns."""

    def __init__(
        self, limits: Limits, catalog: Catalog, turns: Turns, dead_lettering: DeadLettering, account: Account
    ) -> None:
        """`account` bounds what waits here, including the peers' errors and annotations."""
        self._limits = limits
        self._catalog = catalog
        self._turns = turns
        self._dead_lettering = dead_lettering
        self.waiting: dict[Settlement, None] = {}
        self.counts: dict[tuple[Cursor, Use | None], int] = {}
        """How many messages wait, by cursor and user."""
        self.account = account
        self.crowded: dict[Use, None] = {}
        """Users whose consumers get nothing until less waits: some of their messages waited when `account` was full."""
        self._lanes: OrderedDict[Peer, Lane] = OrderedDict()
        """Connections with waiting outcomes, the next one first."""
        self._effort_left = EFFORT_A_TURN

    def reject(
        self,
        link: Settles,
        sequences: list[int],
        state: Rejected,
        answer: tuple[Sender, int, int, object] | None,
    ) -> None:
        """Takes the entries from their consumer, and makes dead letters of as many as this turn allows."""
        said = state.error
        reason = "rejected"
        if said is not None:
            words = f"rejected: {said.condition} {said.description or ''}".strip()
            if answer is not None and (said.info or len(words) > REASON_CHARACTERS_MAX):
                answer = (*answer[:3], _shortened(said))
            reason = words[:REASON_CHARACTERS_MAX]
        words_bytes = getsizeof(reason) * (1 if answer is None else 2)
        self._add(Rejection(link, answer, words_bytes, reason=reason), sequences)

    def annotate(
        self, link: Settles, sequences: list[int], state: Modified, notes: annotate.Notes, answer: Answer
    ) -> None:
        """As `reject`; the entries are rewritten with `notes`, and requeued."""
        words_bytes = weight(notes.added)
        if answer is not None and len(notes.items) > NOTES_ANSWERED_MAX:
            answer = (*answer[:3], Modified(state.delivery_failed, state.undeliverable_here))
        failed = bool(state.delivery_failed)
        self._add(Annotation(link, answer, words_bytes, notes=notes, delivery_failed=failed), sequences)

    def _add(self, settlement: Settlement, sequences: list[int]) -> None:
        link = settlement.link
        acquired, key = link.cursor.acquired, (link.cursor, link.use)
        taken = {
            sequence: Acquired(settlement, acquired[sequence].size) for sequence in sequences if sequence in acquired
        }
        settlement.sequences.extend(taken)
        settlement.counted_bytes = SETTLEMENT_BYTES + settlement.words_bytes
        lane = self._lanes.get(link.peer) or Lane()
        self.account.add(settlement.counted_bytes + ROW_BYTES * len(taken))
        acquired.update(taken)  # from here on nothing is called that could fail
        self.waiting[settlement] = None
        self._lanes[link.peer] = lane
        lane.links.setdefault(link, deque()).append(settlement)
        link.settling += len(taken)
        self.counts[key] = self.counts.get(key, 0) + len(taken)
        if link.use is not None and self.account.held >= self.account.held_max:
            link.use.crowded = True
            self.crowded[link.use] = None
        if len(self.waiting) == 1:
            self.step()

    def begin_turn(self) -> None:
        """Gives the turn its share."""
        self._effort_left = EFFORT_A_TURN

    def step(self) -> None:
        """Does as much as the turn and its batch allow."""
        try:
            self._step()
        finally:
            if self.crowded and self.account.held <= self.account.held_max - self.account.held_max // 8:
                for use in self.crowded:
                    use.crowded = False
                    use.settled(0)
                self.crowded.clear()

    def _step(self) -> None:
        left_bytes = SETTLED_BYTES_MAX
        while self.waiting and left_bytes > 0 and self._has_room():
            peer, lane = next(iter(self._lanes.items()))
            self._lanes.move_to_end(peer)
            lane.left_bytes += SHARE_BYTES
            while lane.links and lane.left_bytes > 0 and left_bytes > 0 and self._has_room():
                link, settlements = next(iter(lane.links.items()))
                lane.links.move_to_end(link)
                size = self._settle_one(settlements[0])
                lane.left_bytes -= size
                left_bytes -= size
                if not settlements[0].sequences:
                    self._over(settlements[0])

    def is_crowded(self, link: Settles) -> bool:
        """Whether so much waits for that link's user and cursor that the link gets no more entries."""
        return self.counts.get((link.cursor, link.use), 0) >= WAITING_MAX

    @property
    def goes_on(self) -> bool:
        """Whether the next turn continues although a commit is in progress."""
        return bool(self.waiting) and self._batch_has_room()

    def _has_room(self) -> bool:
        return self._effort_left > 0 and self._batch_has_room()

    def _batch_has_room(self) -> bool:
        most = min(SETTLED_BYTES_MAX, self._limits.unstored_bytes_max // 4)
        return self._turns.gathered.settled_bytes < most

    def _settle_one(self, settlement: Settlement) -> int:
        """Applies the next outcome, if any is left; returns its cost."""
        link, cursor, sequences = settlement.link, settlement.cursor, settlement.sequences
        key = cursor, link.use
        if not self._catalog.has_cursor(cursor):  # the queue was deleted, with all its entries
            self.account.refund(ROW_BYTES * len(sequences))
            link.settling -= len(sequences)
            self.counts[key] -= len(sequences)
            sequences.clear()
        size = 0
        while sequences and not size:
            sequence = sequences[0]
            acquired = cursor.acquired.get(sequence)
            if acquired is not None and acquired.consumer is settlement:
                size = self._settle_entry(settlement, sequence)
            self.account.refund(ROW_BYTES)
            del sequences[0]
            link.settling -= 1
            self.counts[key] -= 1
        return size

    def _settle_entry(self, settlement: Settlement, sequence: int) -> int:
        cursor = settlement.cursor
        try:
            ended = settlement.settle(self._dead_lettering, sequence)
        except Exception:
            if settlement.failed == sequence:
                cursor.requeue([sequence], failed=True)
            settlement.failed = sequence
            raise
        size = ended.read_bytes + BESIDE_BYTES
        effort = MESSAGE_EFFORT + ended.read_bytes // EFFORT_BYTES + ended.note_bytes // EFFORT_NOTE_BYTES
        self._effort_left -= effort
        if ended.in_batch:
            self._turns.gathered.settled_bytes += size
        return size

    def _over(self, settlement: Settlement) -> None:
        """Nothing is left of it."""
        link, cursor = settlement.link, settlement.cursor
        if self._catalog.has_cursor(cursor):
            cursor.queue.touch()
        settlement.over()
        lane = self._lanes[link.peer]
        self.account.refund(settlement.counted_bytes)
        lane.links[link].popleft()  # from here on nothing is called that could fail
        if not lane.links[link]:
            del lane.links[link]
        if not lane.links:
            del self._lanes[link.peer]
        if not self.counts[cursor, link.use]:
            del self.counts[cursor, link.use]
        del self.waiting[settlement]
        if settlement.answer is not None:
            self._turns.gathered.answers.append(settlement.answer)
        if not link.settling:
            link.all_settled()

    def stop(self) -> None:
        """The node stops: waiting entries return to their places, and are delivered again later."""
        for settlement in self.waiting:
            if self._catalog.has_cursor(settlement.cursor):
                settlement.cursor.requeue(list(settlement.sequences), failed=True)
        self.waiting.clear()
        self._lanes.clear()
        self.counts.clear()
        self.account.hold(0)

    @property
    def held_bytes(self) -> int:
        """What `account` counts."""
        return sum(item.counted_bytes + ROW_BYTES * len(item.sequences) for item in self.waiting)


def _shortened(said: Error) -> Rejected:
    """The outcome that is sent back to a receiver that settles second, shortened to what may be kept until everything
    is on disk."""
    condition = Symbol(said.condition[:CONDITION_CHARACTERS_MAX])
    return Rejected(Error(condition, (said.description or "")[: REASON_CHARACTERS_MAX - CONDITION_CHARACTERS_MAX]))
