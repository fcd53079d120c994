"""A producer's link that may be resumed: the outcomes of its deliveries, by their tags (AMQP 1.0 §2.6.5, §2.6.13).

Rules of this file: a tag is *accepted* only once its entry is on disk. `resume.py` decides when a link is suspended,
for how long, and who may resume it.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Rejected, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.queue import Queue
from holdfast.broker.stored.tags import TAG_BYTES, TagRing
from holdfast.endpoints.producer import ProducerLink, ProducerParts
from holdfast.endpoints.resumption.suspended import RECORD_BYTES, Suspendable
from holdfast.engine.effects import LinkEffect
from holdfast.links.ingress import ACCEPTED
from holdfast.peers.peer import Peer
from holdfast.state.turns import runs

TAG_RUN_BYTES: Final = 160
REJECTED_BYTES: Final = 2_560
"""Bytes of memory that a run of a link's tags, and a rejection, use, about."""

REJECTED_MAX: Final = 1_024
"""Rejected deliveries of one link that are remembered. Beyond that, or if the memory for those of all links is used up,
the oldest is forgotten: it comes again when the link is resumed, and is rejected again."""


class Incoming(Suspendable):
    """The outcomes of the deliveries of a producer's link. `durable`: also kept in the store."""

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
        """Whether it was closed or forgotten, so that nothing of it is written."""

    @property
    def held_bytes(self) -> int:
        return RECORD_BYTES + self.tags.runs * TAG_RUN_BYTES

    def unsettled(self, asked: dict[bytes, Any]) -> dict[bytes, Any]:
        """Our map for a peer whose unsettled map is `asked`: deliveries that are absent never arrived, or were
        forgotten."""
        known = self.tags.members()
        return {
            tag: ACCEPTED if tag in known else self.rejected[tag]
            for tag in asked
            if tag in known or tag in self.rejected
        }


class Keeper(Protocol):
    """The owner of the records of producers' links that may be resumed (resume.py)."""

    def count(self, record: Suspendable) -> None: ...
    def rejected(self, record: Incoming, tag: bytes, state: object) -> None: ...
    def ended(self, record: Suspendable, *, closed: bool) -> None: ...


class ResumableProducer(ProducerLink):
    """A producer's link whose delivery tags, which count with its delivery-ids, are remembered once they are stored."""

    remembers_tags = True

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
        elif part.last:  # its payload is ignored: the message is stored already, or is sent as new
            self._resumed(
                Delivery(
                    self.link, part.delivery_id, part.tag, part.message_format, part.settled, b"\0", None, None, True
                )
            )

    def _resumed(self, delivery: Delivery) -> None:
        """The peer resumes a delivery of an earlier session, or sends its final state."""
        self.parts.links.refills[self] = None  # it used credit
        state = (self.told or {}).get(delivery.tag)
        if state is not None:
            super()._answer(delivery, state)
            return
        if delivery.settled and not delivery.payload:
            return
        text = "the delivery is not in our unsettled map and cannot be resumed; send it as a new delivery"
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
            # If the node ended the link, its peer may not have heard all outcomes, and asks for them as it resumes.
            self.keeper.ended(self.record, closed=self.link.closed_by_peer)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerProducer(LinkEffect):
    """Answers the attach of a producer's link whose tags are remembered. `asked`: the peer's unsettled map where it
    resumes the link, else None; `granted`: the target as it is applied."""

    link: ResumableProducer = field(repr=False)
    asked: dict[Any, Any] | None = field(repr=False)
    granted: Target = field(repr=False)


def answer_producer(effect: AnswerProducer) -> None:
    """The deliveries of an older link are stored or refused: now the tags are final."""
    producer = effect.link
    link, peer, record = producer.link, producer.peer, producer.record
    if link.detached or record.holder is not producer:
        peer.refuse_detached(link)
        return
    if effect.asked is not None:
        producer.told = record.unsettled(effect.asked)
    link.accept(target=effect.granted, unsettled=producer.told)
    producer.refill()
    peer.touch()
