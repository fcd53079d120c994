"""Links that may be resumed: what a node knows of their deliveries beyond their end (AMQP 1.0 §2.6.5, §2.6.13).

Rules of this file: a tag is *accepted* only once its entry is on disk; what a suspended consumer holds is in nobody
else's hands. When a link is suspended, for how long, and who may come back is `resume.py`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver, Sender
from holdfast.amqp.effort import OUTCOME
from holdfast.amqp.links.resuming import Act, Step, content
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.broker import annotate, entry
from holdfast.broker.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.broker.tags import TAG_BYTES, TagRing
from holdfast.endpoints.consumer import ConsumerLink, ConsumerParts
from holdfast.endpoints.producer import ProducerLink, ProducerParts
from holdfast.engine.effects import LinkEffect
from holdfast.links.incoming import ACCEPTED
from holdfast.links.outgoing import too_large
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use
from holdfast.state.turns import runs

RECORD_BYTES: Final = 2_048
TAG_RUN_BYTES: Final = 160
REJECTED_BYTES: Final = 2_560
HELD_BYTES: Final = 512
"""What a link, a run of its tags, a rejection and a delivery that waits hold in memory, about."""

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

REJECTED_MAX: Final = 1_024
"""Rejected deliveries of one link that are remembered; the oldest is forgotten, comes again when the link is resumed,
and would be rejected again. So it is where the memory for those of all links is used up."""


class Suspendable:
    """One link by its key, whether it is attached or not. `hold_s`: seconds that it is kept after its end, 0: not.

    `until`: when it is forgotten, None while it is attached.
    """

    def __init__(self, key: bytes, hold_s: float) -> None:
        self.key = key
        self.hold_s = hold_s
        self.until: float | None = None
        self.over = False
        """Nothing is kept of it any more."""
        self.counted_bytes = 0
        """What it is counted with in the node's memory."""

    @property
    def held_bytes(self) -> int:
        """What is kept of it, about."""
        return RECORD_BYTES


class Incoming(Suspendable):
    """What became of the deliveries of a producer's link. `durable`: kept in the store too."""

    def __init__(self, key: bytes, hold_s: float, *, target: str, durable: bool, tags: TagRing) -> None:
        super().__init__(key, hold_s)
        self.target = target
        self.durable = durable
        self.tags = tags
        self.rejected: dict[bytes, Any] = {}
        """Kept by `Resumption`, which counts them."""
        self.holder: ResumableProducer | None = None
        self.has_row = False
        """Whether the store may have a row of it."""
        self.gone = False
        """It was closed or forgotten: nothing of it is written any more."""

    @property
    def held_bytes(self) -> int:
        return RECORD_BYTES + self.tags.runs * TAG_RUN_BYTES

    def unsettled(self, asked: dict[bytes, Any]) -> dict[bytes, Any]:
        """Our map for a peer that has `asked` unsettled: what is absent never arrived, or was forgotten."""
        known = self.tags.members()
        return {
            tag: ACCEPTED if tag in known else self.rejected[tag]
            for tag in asked
            if tag in known or tag in self.rejected
        }


class Keeper(Protocol):
    """Who keeps the records of links that may be resumed (resume.py)."""

    going_on: "dict[Queue, dict[ResumableConsumer, None]]"

    def count(self, record: Suspendable) -> None: ...
    def rejected(self, record: Incoming, tag: bytes, state: object) -> None: ...
    def ended(self, record: Suspendable, *, closed: bool) -> None: ...
    def goes_no_further(self, consumer: "ResumableConsumer") -> None: ...
    def is_stopping(self) -> bool:
        """Whether the node ends: then nothing is kept."""


class ResumableProducer(ProducerLink):
    """A producer's link whose delivery tags, which count with its delivery-ids, are remembered once they are stored."""

    def __init__(
        self,
        parts: ProducerParts,
        peer: Peer,
        link: Receiver,
        queue: Queue,
        record: Incoming,
        keeper: Keeper,
        *,
        tag_offset: int,
        destination: str | None,
        to: str,
    ) -> None:
        self.record = record
        self.keeper = keeper
        self.tag_offset = tag_offset
        self.told: dict[bytes, Any] | None = None
        """Our map in the answer to the attach; None where nothing was resumed."""
        super().__init__(parts, peer, link, queue, destination=destination, to=to)

    def delivered(self, delivery: Delivery) -> None:
        if delivery.resume:
            self._resumed(delivery)
        else:
            super().delivered(delivery)

    def part(self, part: DeliveryPart) -> None:
        if not part.resume:
            super().part(part)
        elif part.last:  # what it holds counts for nothing: it is here already, or goes as new
            self._resumed(
                Delivery(
                    self.link, part.delivery_id, part.tag, part.message_format, part.settled, b"\0", None, None, True
                )
            )

    def _resumed(self, delivery: Delivery) -> None:
        """The peer goes on with a delivery of an earlier session, or tells its last word on it."""
        self.parts.links.refills[self] = None  # it used credit
        state = (self.told or {}).get(delivery.tag)
        if state is not None:
            super()._answer(delivery, state)
            return
        if delivery.settled and not delivery.payload:
            return
        text = "resumed deliveries: accepted are those of our unsettled map; what is not in it goes as new"
        self.link.detach(closed=False, error=Error(Symbol(conditions.NOT_ALLOWED), text))
        self.peer.touch()

    def _answer(self, delivery: Delivery, outcome: object) -> bool:
        if not delivery.settled and isinstance(outcome, Rejected):
            self.keeper.rejected(self.record, self._tag_of(delivery.delivery_id).to_bytes(TAG_BYTES), outcome)
        return super()._answer(delivery, outcome)

    def _tag_of(self, delivery_id: int) -> int:
        return (delivery_id + self.tag_offset) & 0xFFFFFFFF

    def note(self, tags: TagRing, deliveries: list[int]) -> None:
        """Adds the tags of deliveries that are stored."""
        for first, last in runs(deliveries):
            low, high = self._tag_of(first), self._tag_of(last)
            if low <= high:
                tags.add(low, high)
            else:
                tags.add(low, 0xFFFFFFFF)
                tags.add(0, high)

    def stored(self, deliveries: list[int]) -> None:
        self.note(self.record.tags, deliveries)
        self.keeper.count(self.record)
        super().stored(deliveries)

    def gone(self) -> None:
        super().gone()
        if self.record.holder is self:
            self.record.holder = None
            self.keeper.ended(self.record, closed=not _resumable(self.link))


class Outgoing(Suspendable):
    """A consumer's link: while it is suspended, `held` are its deliveries by tag, in the order sent."""

    def __init__(self, key: bytes, hold_s: float, *, cursor: Cursor) -> None:
        super().__init__(key, hold_s)
        self.cursor = cursor
        self.taker: ResumableConsumer | None = None
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


@dataclass(frozen=True, slots=True, eq=False)
class AnswerConsumer(LinkEffect):
    """Answers the attach of a consumer that goes on with what it held."""

    link: "ResumableConsumer" = field(repr=False)


class ResumableConsumer(ConsumerLink):
    """A consumer's link that is suspended, not forgotten, when it ends without being closed."""

    def __init__(
        self, parts: ConsumerParts, peer: Peer, link: Sender, cursor: Cursor, record: Outgoing, keeper: Keeper
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
        super().__init__(parts, peer, link, cursor, presettled=False)  # last: from here on it may be gone at any time

    def take_over(self, steps: list[Step]) -> None:
        """Goes on with what the record held, as `steps` say."""
        held, record = self.record.held, self.record
        record.uncount()
        before, record.taker, record.held = record.taker, self, {}
        shown = self.cursor.shown
        taken = {sequence: item for sequence in held.values() if (item := shown.get(sequence)) and item.taker is before}
        shown.update({sequence: item._replace(taker=self) for sequence, item in taken.items()})
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
        self.cursor.give_back(again, failed=False)
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
            cursor.give_back([sequence], failed=False)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        parts = annotate.for_consumer(value, sequence, cursor.failures(sequence), self.parts.clock.steady_ms)
        if too_large(link, parts, value):  # it takes less than it did; whether another takes more is asked anew
            self.held -= 1
            self._settled(self._size_of([sequence]))
            cursor.give_back([sequence], failed=False)
            link.resume(step.tag, context=sequence, state=None, aborted=True)
            return
        payload, state = content(step.state, b"".join(parts))
        message_format = int.from_bytes(value[20:24], "big")
        link.resume(step.tag, payload, context=sequence, state=state, message_format=message_format)

    def gone(self, unsettled: list[Any]) -> None:
        record = self.record
        kept_on = (self.fenced or _resumable(self.link)) and record.hold_s > 0 and not self.keeper.is_stopping()
        if record.taker is not self or not kept_on:
            super().gone([*unsettled, *self.waiting.values(), *(sequence for _, sequence in self.steps)])
            self.keeper.goes_no_further(self)
            if record.taker is self:
                self.keeper.ended(record, closed=True)
            return
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
        self.keeper.goes_no_further(self)
        record.next_tag = self.link.next_tag
        kept = set(record.held.values())
        record.count_for(self.use, self._size_of(list(kept)))
        unsent = [sequence for sequence in mine if sequence not in kept]
        self.parts.returns.give_back(self, self.cursor, unsent, failed=False)
        self.keeper.ended(record, closed=False)


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


def _resumable(link: Receiver | Sender) -> bool:
    """Whether the link ended in a way that it can be resumed from: lost, or detached without being closed."""
    return link.over and not link.closed
