"""A consumer's link that may be resumed: what it holds beyond its end, and how it goes on (AMQP 1.0 §2.6.5, §2.6.13).

Rules of this file: what a suspended consumer holds is in nobody else's hands. When a link is suspended, for how long,
and who may come back is `resume.py`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Sender
from holdfast.amqp.effort import OUTCOME
from holdfast.amqp.links.resuming import Act, Step, content
from holdfast.amqp.wire.performatives import Modified, Rejected
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.entries import annotate, entry
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import ConsumerLink, ConsumerParts
from holdfast.endpoints.resumption.suspended import RECORD_BYTES, Suspendable, is_resumable
from holdfast.engine.effects import LinkEffect
from holdfast.links.outgoing import too_large
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use

HELD_BYTES: Final = 512
"""What a delivery that waits holds in memory, about."""

RESUME_COUNT: Final = 64
"""Deliveries that a consumer goes on with, or outcomes that are applied, before others of its queue have their turn."""

FIRST_TAG: Final = 0
"""Of a consumer's link, whose delivery-tags go on beyond the last of 32 bits."""

FRAME_BYTES: Final = 64
"""What each of them counts for its connection beside its content: one without content is a frame, too."""

OUTCOME_COST: Final = 8
"""What an outcome that is applied alone counts among the entries that a turn offers (memory.OFFERED_COUNT): it takes
about as long as so many."""

SENT_AGAIN_COST: Final = 4
"""The same of a delivery that is resumed."""


class Outgoing(Suspendable):
    """A consumer's link: while it is suspended, `held` are its deliveries by tag, in the order sent."""

    def __init__(self, key: bytes, hold_s: float, *, cursor: Cursor) -> None:
        super().__init__(key, hold_s)
        self.cursor = cursor
        self.consumer: ResumableConsumer | None = None
        """In whose hands the cursor has them."""
        self.held: dict[bytes, int] = {}
        self.next_tag = FIRST_TAG
        self.use: Use | None = None
        """For whom `use_bytes` of what is held count."""
        self.use_bytes = 0

    def count_for(self, use: Use | None, size: int) -> None:
        """What is held, `size` bytes, counts for that user until `uncount`, once however often this is said."""
        self.uncount()
        self.use, self.use_bytes = use, size
        if use is not None:
            use.given(size)

    def uncount(self) -> None:
        """It counts for nobody any more, or for the link that goes on with it."""
        use, self.use = self.use, None
        if use is not None:
            use.settled(self.use_bytes)

    @property
    def held_bytes(self) -> int:
        return RECORD_BYTES + len(self.held) * HELD_BYTES


class Keeper(Protocol):
    """Who keeps the records of consumers' links that may be resumed (resume.py)."""

    going_on: "dict[Queue, dict[ResumableConsumer, None]]"

    def ended(self, record: Suspendable, *, closed: bool) -> None: ...
    def goes_no_further(self, consumer: "ResumableConsumer") -> None: ...
    def is_stopping(self) -> bool:
        """Whether the node ends: then nothing is kept."""


class ResumableConsumer(ConsumerLink):
    """A consumer's link that is suspended, not forgotten, when it ends without being closed."""

    def __init__(
        self,
        parts: ConsumerParts,
        peer: Peer,
        link: Sender,
        cursor: Cursor,
        record: Outgoing,
        keeper: Keeper,
        selector: EntrySelector | None,
    ) -> None:
        self.record = record
        self.keeper = keeper
        self.fenced = False
        """A newer link takes its deliveries over."""
        self.steps: deque[tuple[Step, int]] = deque()
        """What is to be resumed before anything else is sent, with its sequence."""
        self.waiting: dict[bytes, int] = {}
        """Deliveries of which an incomplete map did not tell: kept for the next attach."""
        self.outcomes_due: deque[tuple[Rejected | Modified, int]] = deque()
        """Outcomes of the peer's map that are applied one by one, a share with each turn. Until then their deliveries
        are held as before; each is among `steps`, too."""
        self.answer_attach: Callable[[], None] | None = None
        """Answers the peer's attach; None once it was called."""
        self.taking_over = False
        super().__init__(
            parts, peer, link, cursor, presettled=False, selector=selector
        )  # last: from here on it may be gone at any time

    def take_over(self, steps: list[Step]) -> None:
        """Goes on with what the record held, as `steps` say."""
        held, record = self.record.held, self.record
        record.uncount()
        before, record.consumer, record.held = record.consumer, self, {}
        acquired = self.cursor.acquired
        taken = {
            sequence: item for sequence in held.values() if (item := acquired.get(sequence)) and item.consumer is before
        }
        acquired.update({sequence: item._replace(consumer=self) for sequence, item in taken.items()})
        self.taking_over = True
        again: list[int] = []
        settled: dict[tuple[object, ...], tuple[Any, list[int]]] = {}
        for step in steps:
            sequence = held[step.tag]
            item = taken.get(sequence)
            if item is None:
                continue
            if step.act is Act.RESEND:
                again.append(sequence)
            elif step.act is Act.AWAIT:
                self.waiting[step.tag] = sequence
            else:
                self.held += 1
                self.count_held(item.size)
                self.steps.append((step, sequence))
                if step.act is Act.SETTLE:
                    group = _group(step.state)
                    if group is None:
                        self.outcomes_due.append((step.state, sequence))
                    else:
                        settled.setdefault(group, (step.state, []))[1].append(sequence)
        self.cursor.requeue(again, failed=False)
        for state, sequences in settled.values():
            self.outcomes(sequences, state, True, 0, 0)
            self.peer.amqp.took(OUTCOME + len(sequences))
        self.taking_over = False
        self.check_excluded()

    def answer_later(self, answer: Callable[[], None]) -> None:
        """Calls it once what the outcomes of the peer's map do is on disk, or the link is over."""
        self.answer_attach = answer
        self._answer_or_go_on()

    def _apply_outcomes(self) -> None:
        """This turn's share of `outcomes_due`."""
        work = self.parts.work
        for _ in range(RESUME_COUNT):
            if not self.outcomes_due or work.is_used_up:
                break
            state, sequence = self.outcomes_due.popleft()
            work.offered_count += OUTCOME_COST
            self.outcomes([sequence], state, True, 0, 0)
        self._answer_or_go_on()

    def all_settled(self) -> None:
        self._answer_or_go_on()

    def _answer_or_go_on(self) -> None:
        if self.outcomes_due:
            self._offer_later()
        elif self.answer_attach is not None and not self.settling:
            turns = self.parts.turns
            turns.gathered.then.append(AnswerConsumer(turns.event, self.peer.number, self.link.name, self))

    def answer_now(self) -> None:
        """Answers the attach if that was not done: with the commit, or at once where the link is over."""
        answer, self.answer_attach = self.answer_attach, None
        if answer is not None:
            answer()

    def check_excluded(self) -> None:
        """Once it has all that it goes on with: what ends it then goes to others."""
        if not self.taking_over:
            super().check_excluded()

    def will_want(self) -> int:
        return 0 if self.steps else super().will_want()

    def credited(self) -> None:
        self._offer_later()
        super().credited()

    def offer_again(self) -> None:
        self._offer_later()
        super().offer_again()

    def _offer_later(self) -> None:
        if self.steps:
            self.keeper.going_on.setdefault(self.queue, {})[self] = None

    def drain_if_idle(self) -> bool:
        link = self.link
        if self.steps and (link.credit or link.resume_credit) and self.queue not in self.parts.resting:
            return False  # it goes on, turn by turn
        return super().drain_if_idle()

    def resume(self) -> None:
        """Applies this turn's share of `outcomes_due`, if any is left: nothing is sent before the attach is answered.
        Else goes on with what it held, one delivery or more, as far as credit, window, its connection's budget and the
        turn's let it; then with the rest behind others of its queue, in this turn or the next."""
        if self.outcomes_due:
            self._apply_outcomes()
            return
        link, work = self.link, self.parts.work
        for _ in range(RESUME_COUNT):
            if not self.steps or not link.resumable_now:
                return
            if not self.has_budget:
                self.defer()
                return
            step, sequence = self.steps.popleft()
            self._count(FRAME_BYTES)
            work.offered_count += SENT_AGAIN_COST
            if step.act is Act.SETTLE:
                link.resume(step.tag, context=sequence, state=step.state, settled=True)
            else:
                self._send_again(step, sequence)
            if work.is_used_up:
                break
        self._offer_later()

    def _count(self, size: int) -> None:
        """So many bytes are handed to the connection, or were read for it."""
        self.handed(size)
        self.parts.work.offered_bytes += size

    def _send_again(self, step: Step, sequence: int) -> None:
        """The whole content anew, or none where the peer has it all (§3.4.1)."""
        link, cursor = self.link, self.cursor
        value = cursor.queue.value(sequence)
        if value is None:
            self.held -= 1
            cursor.finish([sequence])
            self._settled(cursor.finished_bytes)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        self._count(len(value))  # also where nothing of it is sent: it was read
        if value[1] & entry.BLOB:  # a large message begins anew, as a delivery of its own
            self.held -= 1
            self._settled(self._size_of([sequence]))
            cursor.requeue([sequence], failed=False)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        parts = annotate.for_consumer(value, sequence, cursor.failures(sequence), self.parts.clock.steady_ms)
        if too_large(link, parts, value):  # it takes less than it did; whether another takes more is asked anew
            self.held -= 1
            self._settled(self._size_of([sequence]))
            cursor.requeue([sequence], failed=False)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        payload, state = content(step.state, b"".join(parts))
        message_format = int.from_bytes(value[20:24], "big")
        link.resume(step.tag, payload, context=sequence, state=state, message_format=message_format)

    def gone(self, unsettled: list[Any]) -> None:
        record = self.record
        kept_on = (self.fenced or is_resumable(self.link)) and record.hold_s > 0 and not self.keeper.is_stopping()
        if record.consumer is not self or not kept_on:
            super().gone([*unsettled, *self.waiting.values(), *(sequence for _, sequence in self.steps)])
            self.keeper.goes_no_further(self)
            if record.consumer is self:
                self.keeper.ended(record, closed=True)
            return
        provisional = set(self.provisional)
        if provisional:
            self.parts.transactions.link_gone(self)
        mine = self.in_hands(
            unsettled, *self.waiting.values(), *(sequence for _, sequence in self.steps), held=len(self.waiting)
        )
        self.end_large()
        self.finish_presettled()
        self.let_go()
        self.cursor.release(self)
        sent = self.link.suspended if self.link.over else self.link.unsettled_tags()
        unapplied = {sequence for _, sequence in self.outcomes_due}  # their peer tells these outcomes again
        left = {
            step.tag: sequence for step, sequence in self.steps if step.act is not Act.SETTLE or sequence in unapplied
        }
        record.held = sent | left | self.waiting
        if provisional:  # they are their transactions' own
            record.held = {tag: sequence for tag, sequence in record.held.items() if sequence not in provisional}
        self.keeper.goes_no_further(self)
        record.next_tag = self.link.next_tag
        kept = set(record.held.values())
        record.count_for(self.use, self._size_of(list(kept)))
        unsent = [sequence for sequence in mine if sequence not in kept]
        self.parts.returns.requeue(self, self.cursor, unsent, failed=False)
        self.keeper.ended(record, closed=False)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerConsumer(LinkEffect):
    """Answers the attach of a consumer that goes on with what it held."""

    link: "ResumableConsumer" = field(repr=False)


def answer_consumer(effect: AnswerConsumer) -> None:
    effect.link.answer_now()


def _group(state: Any) -> tuple[object, ...] | None:
    """What outcomes that are applied together have in common; None for one with an error or annotations."""
    if isinstance(state, Rejected):
        return (Rejected,) if state.error is None else None
    if isinstance(state, Modified):
        plain = state.message_annotations is None
        return (Modified, bool(state.delivery_failed), bool(state.undeliverable_here)) if plain else None
    return (type(state),)
