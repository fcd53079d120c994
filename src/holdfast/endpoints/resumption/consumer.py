"""A consumer's link that may be resumed: what it holds after its end, and how it is resumed (AMQP 1.0 §2.6.5, §2.6.13).

Rules of this file: no other consumer gets the entries of a suspended one. `resume.py` decides when a link is suspended,
for how long, and who may resume it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Sender
from holdfast.amqp.effort import OUTCOME
from holdfast.amqp.links.resuming import ResumeAction, Step, content
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
"""Bytes of memory that a waiting delivery uses, about."""

RESUME_COUNT: Final = 64
"""Deliveries that a consumer resumes, or outcomes that are applied, before other links of its queue have their turn."""

FIRST_TAG: Final = 0
"""The first delivery-tag of a consumer's link; tags continue beyond 32 bits."""

FRAME_BYTES: Final = 64
"""Bytes that each of them counts for its connection besides its content, because one without content is a frame,
too."""

OUTCOME_COST: Final = 8
"""Entries that an outcome applied singly counts in the turn's share (memory.OFFERED_COUNT): it takes about as long."""

SENT_AGAIN_COST: Final = 4
"""The same of a delivery that is resumed."""


class Outgoing(Suspendable):
    """A consumer's link: while it is suspended, `held` are its deliveries by tag, in the order sent."""

    def __init__(self, key: bytes, hold_s: float, *, cursor: Cursor) -> None:
        super().__init__(key, hold_s)
        self.cursor = cursor
        self.consumer: ResumableConsumer | None = None
        """The consumer that holds them, by the cursor's account."""
        self.held: dict[bytes, int] = {}
        self.next_tag = FIRST_TAG
        self.use: Use | None = None
        """The user for whom `use_bytes` of the held entries count."""
        self.use_bytes = 0

    def count_for(self, use: Use | None, size: int) -> None:
        """Counts the held entries, `size` bytes, for that user until `uncount`; calling it again changes nothing."""
        self.uncount()
        self.use, self.use_bytes = use, size
        if use is not None:
            use.given(size)

    def uncount(self) -> None:
        """The held entries stop counting for that user, or count for the link that resumes."""
        use, self.use = self.use, None
        if use is not None:
            use.settled(self.use_bytes)

    @property
    def held_bytes(self) -> int:
        return RECORD_BYTES + len(self.held) * HELD_BYTES


class Keeper(Protocol):
    """The owner of the records of consumers' links that may be resumed (resume.py)."""

    going_on: "dict[Queue, dict[ResumableConsumer, None]]"

    def ended(self, record: Suspendable, *, closed: bool) -> None: ...
    def goes_no_further(self, consumer: "ResumableConsumer") -> None: ...
    def is_stopping(self) -> bool:
        """Whether the node is stopping: then nothing is kept."""


class ResumableConsumer(ConsumerLink):
    """A consumer's link that is suspended when it ends without being closed."""

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
        """Whether a newer link takes over its deliveries."""
        self.steps: deque[tuple[Step, int]] = deque()
        """Deliveries to be resumed before anything else is sent, with their sequences."""
        self.waiting: dict[bytes, int] = {}
        """Deliveries that an incomplete map did not contain: kept for the next attach."""
        self.outcomes_due: deque[tuple[Rejected | Modified, int]] = deque()
        """Outcomes of the peer's map that are applied one by one, a share with each turn. Until then their deliveries
        are held as before; each is among `steps`, too."""
        self.answer_attach: Callable[[], None] | None = None
        """Answers the peer's attach; None once it was called."""
        self.taking_over = False
        super().__init__(
            parts, peer, link, cursor, presettled=False, selector=selector
        )  # last: from here on the record may be deleted at any time

    def take_over(self, steps: list[Step]) -> None:
        """Resumes the record's deliveries, as `steps` say."""
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
            if step.act is ResumeAction.RESEND:
                again.append(sequence)
            elif step.act is ResumeAction.AWAIT:
                self.waiting[step.tag] = sequence
            else:
                self.held += 1
                self.count_held(item.size)
                self.steps.append((step, sequence))
                if step.act is ResumeAction.SETTLE:
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
        """Calls it once the effects of the outcomes in the peer's map are on disk, or the link has ended."""
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
        """Answers the attach if that was not done yet: with the commit, or at once if the link has ended."""
        answer, self.answer_attach = self.answer_attach, None
        if answer is not None:
            answer()

    def check_excluded(self) -> None:
        """As the base class, once all deliveries were resumed: if it ends then, others get them."""
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
            return False  # it continues, turn by turn
        return super().drain_if_idle()

    def resume(self) -> None:
        """Applies this turn's share of `outcomes_due`, if any are left, because nothing is sent before the attach is
        answered. Otherwise resumes one or more deliveries, as far as credit, window and the budgets of its connection
        and of the turn allow; the rest follows after other links of its queue, in this turn or the next."""
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
            if step.act is ResumeAction.SETTLE:
                link.resume(step.tag, context=sequence, state=step.state, settled=True)
            else:
                self._send_again(step, sequence)
            if work.is_used_up:
                break
        self._offer_later()

    def _count(self, size: int) -> None:
        """Counts bytes that were handed to the connection, or read for it."""
        self.handed(size)
        self.parts.work.offered_bytes += size

    def _send_again(self, step: Step, sequence: int) -> None:
        """Sends the whole content again, or none if the peer has all of it (§3.4.1)."""
        link, cursor = self.link, self.cursor
        value = cursor.queue.value(sequence)
        if value is None:
            self.held -= 1
            cursor.finish([sequence])
            self._settled(cursor.finished_bytes)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        self._count(len(value))  # also if nothing of it is sent, because it was read
        if value[1] & entry.BLOB:  # a large message starts again, as a new delivery
            self.held -= 1
            self._settled(self._size_of([sequence]))
            cursor.requeue([sequence], failed=False)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        parts = annotate.for_consumer(value, sequence, cursor.failures(sequence), self.parts.clock.steady_ms)
        if too_large(
            link, parts, value
        ):  # it accepts less than before; whether another accepts more must be checked again
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
            self.parts.transactional_work.link_gone(self)
        mine = self.in_hands(
            unsettled, *self.waiting.values(), *(sequence for _, sequence in self.steps), held=len(self.waiting)
        )
        self.end_large()
        self.finish_presettled()
        self.let_go()
        self.cursor.release(self)
        sent = self.link.suspended if self.link.over else self.link.unsettled_tags()
        unapplied = {sequence for _, sequence in self.outcomes_due}  # their peer sends these outcomes again
        left = {
            step.tag: sequence
            for step, sequence in self.steps
            if step.act is not ResumeAction.SETTLE or sequence in unapplied
        }
        record.held = sent | left | self.waiting
        if provisional:  # their transactions hold them
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
    """Answers the attach of a consumer that resumes its deliveries."""

    link: "ResumableConsumer" = field(repr=False)


def answer_consumer(effect: AnswerConsumer) -> None:
    effect.link.answer_now()


def _group(state: Any) -> tuple[object, ...] | None:
    """The key of outcomes that can be applied together; None for one with an error or annotations."""
    if isinstance(state, Rejected):
        return (Rejected,) if state.error is None else None
    if isinstance(state, Modified):
        plain = state.message_annotations is None
        return (Modified, bool(state.delivery_failed), bool(state.undeliverable_here)) if plain else None
    return (type(state),)
