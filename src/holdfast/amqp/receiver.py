"""Receiver half of a link: the peer's deliveries, our credit. AMQP 1.0 §2.6.7, §2.6.12, §2.6.14.

Rules of this file: a delivery that comes in one frame is made into an event without further ado; parts are kept
for one delivery at a time, at most max_message_size bytes, or handed on as they come where the user asks for it
(`stream_bytes`).
"""

from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import conditions
from holdfast.amqp.effort import PART, STEPS_FOR_ONE
from holdfast.amqp.events import (
    ConnEvent,
    Delivery,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryPart,
    Drained,
    ResumeAborted,
)
from holdfast.amqp.fast import ParsedTransfer
from holdfast.amqp.faults import LinkFault, SessionFault
from holdfast.amqp.link import Link
from holdfast.amqp.performatives import RCV_SETTLE_MODE_MAX, TAG_BYTES_MAX, Attach
from holdfast.amqp.runs import Shape
from holdfast.amqp.weight import weight
from holdfast.errors import LocalProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.session import Session

PART_BYTES: Final = 128 * 1024
"""Frames are joined to parts of at least so many bytes."""

APART_BYTES: Final = 4_096
"""A part of so many bytes is kept as it came until the delivery is whole."""

_SERIAL = 0xFFFFFFFF
_new = tuple.__new__


class _Partial:
    """A delivery of which the last frame is still to come."""

    __slots__ = (
        "delivery_id", "frames", "held_bytes", "kept_bytes", "message_format", "mode", "parts", "passed_over", "resume",
        "settled", "size", "state", "streamed", "tag",
    )  # fmt: skip

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, mode: int | None, resume: bool) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.mode = mode
        self.resume = resume
        self.settled = False
        self.state: Any = None
        self.parts: list[bytes | bytearray] = []
        """What was not handed on yet; small ones joined, or a peer's empty and tiny frames would cost more than they
        bring."""
        self.kept_bytes = 0
        """Bytes of `parts`."""
        self.frames = 0
        self.held_bytes = 0
        """What it holds of the connection's `partial_bytes`."""
        self.size = 0
        self.passed_over = False
        """It is settled already: what still comes of it is for nobody."""
        self.streamed = False
        """A part of it was handed on."""

    def keep(self, part: bytes) -> None:
        """The next of it."""
        parts = self.parts
        self.kept_bytes += len(part)
        if len(part) >= APART_BYTES:
            parts.append(part)
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += part
        else:
            parts.append(bytearray(part))


class Receiver(Link):
    """Our end receives. `credit`: deliveries that we still expect of what we granted.

    `stream_bytes`: a delivery that grows past so many bytes comes as DeliveryPart events instead of one Delivery, and
    one that grows at all where the connection's `partials` are at their bound. None: every delivery comes whole.
    """

    __slots__ = (
        "_delivery_count", "_draining", "_resumes_left", "allowance", "credit", "partial", "shape", "shape_growing",
        "shape_misses", "size_max", "stream_bytes", "tells_begin", "vital",
    )  # fmt: skip

    role = True

    def __init__(self, session: "Session", name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        self.allowance = 0
        """Deliveries up to the highest limit ever granted: credit taken back may have been used already."""
        self._resumes_left = 0
        """The same of resumed deliveries where no others are allowed; then `allowance` is 0."""
        self._delivery_count: int | None = None
        self.partial: _Partial | None = None
        self._draining = False
        self.size_max = 0
        self.shape: Shape | None = None
        """What its plain deliveries have in common on the wire (runs.py)."""
        self.shape_growing: Shape | None = None
        """The same of a delivery of which further frames are to come."""
        self.shape_misses = 0
        self.stream_bytes: int | None = None
        self.tells_begin = False
        """Whether `DeliveryBegun` is told."""
        self.vital = False
        """What is unfinished of it is held whatever the connection's other links hold: `size_max` alone bounds it."""

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the link's credit, in deliveries from now on; 0 stops the peer, `drain` makes it use or return it."""
        if self.detach_sent or self.detached or not self.session.usable:
            return
        if not self.attach_sent:
            raise LocalProtocolError(f"link {self.name!r} is not accepted yet")
        self.credit = credit
        if self.local_attach is not None and self.local_attach.incomplete_unsettled:
            self._resumes_left = max(self._resumes_left, credit)
        elif credit > self.allowance:
            self.allowance = credit
        self._draining = drain
        self._flow()

    def settle(self, first: int, last: int, outcome: Any) -> None:
        """Settle this link's deliveries first..last with `outcome` (None: the source's default).

        Ids in the range that belong to other links are left alone; what is settled already is passed over.
        """
        session = self.session
        owners = session.unsettled_in
        count = last - first + 1
        if 0 < count <= len(owners):
            numbers = range(first, last + 1)
            if list(map(owners.get, numbers)).count(self) == count:  # as most ranges are: all of them, and this link's
                if count == len(owners):
                    owners.clear()
                else:
                    for number in numbers:
                        del owners[number]
                session.write_disposition(True, first, last, True, outcome)
                return
        start = -1
        end = -1
        for delivery_id in session.ids_between(first, last, owners):
            owner = owners.get(delivery_id)
            if owner is self:
                del owners[delivery_id]
                if start < 0:
                    start = delivery_id
                end = delivery_id
            elif owner is not None and start >= 0:
                session.write_disposition(True, start, end, True, outcome)
                start = -1
        if start >= 0:
            session.write_disposition(True, start, end, True, outcome)

    def settle_unfinished(self, delivery_id: int, outcome: Any) -> None:
        """Settles a delivery of which the last frame is still to come, so that its sender may give it up; nothing where
        that has come. What still comes of it is passed over, and no event tells its end."""
        partial = self.partial
        if partial is None or partial.delivery_id != delivery_id or partial.passed_over or self.detach_sent:
            return
        self._let_go(partial, partial.held_bytes)
        partial.parts.clear()
        partial.kept_bytes = 0
        partial.passed_over = True
        if not partial.settled:
            self.session.write_disposition(True, partial.delivery_id, partial.delivery_id, True, outcome)

    # ------------------------------------------------------------------------------------- for the session

    def _flow(self) -> None:
        self.session.write_flow(self.handle, self._delivery_count, self.credit, self._draining)

    def on_flow(
        self, delivery_count: int | None, link_credit: int | None, drain: bool, echo: bool, events: list[ConnEvent]
    ) -> None:
        """The peer's flow as sender: it may have given up credit (drain)."""
        if self.detach_sent:
            return
        if delivery_count is not None and self._delivery_count is not None:
            ahead = (delivery_count - self._delivery_count) & _SERIAL
            if 0 < ahead <= max(self.allowance, self._resumes_left):
                self._delivery_count = delivery_count
                self.allowance = max(0, self.allowance - ahead)
                self._resumes_left = max(0, self._resumes_left - ahead)
                self.credit = max(0, self.credit - ahead)
        if self._draining and drain and self.credit == 0:
            self._draining = False
            events.append(Drained(self))
        if echo and self.attach_sent:
            self._flow()

    def took(self, count: int) -> None:
        """That many deliveries came, within what was granted."""
        self.allowance -= count
        self.credit = max(0, self.credit - count)
        if self._delivery_count is not None:
            self._delivery_count = (self._delivery_count + count) & _SERIAL

    def on_transfer(self, parsed: ParsedTransfer, buf: bytes, end: int, events: list[ConnEvent]) -> None:
        """One transfer frame of this link, whose frame ends at `end`."""
        if self.detach_sent:
            self.session.connection.spend(PART)
            return
        _, delivery_id, tag, message_format, settled, more, mode, state, resume, aborted, at = parsed
        partial = self.partial
        if partial is None:
            if delivery_id is None or tag is None or len(tag) > TAG_BYTES_MAX:
                raise LinkFault(
                    self, conditions.INVALID_FIELD, "a delivery's first transfer has an id and a tag of up to 32 bytes"
                )
            if mode is not None and mode > RCV_SETTLE_MODE_MAX:
                raise LinkFault(self, conditions.INVALID_FIELD, f"rcv-settle-mode {mode}: accepted are 0 and 1")
            self.allowance -= 1
            if self.allowance < 0:
                self._resumed_or_refused(resume)
            self.credit = self.credit - 1 if self.credit > 0 else 0
            count = self._delivery_count
            if count is not None:
                self._delivery_count = (count + 1) & _SERIAL
            if not more and not aborted:
                if end - at > self.size_max:
                    raise self._too_large()
                if not settled:
                    session = self.session
                    owners = session.unsettled_in
                    if delivery_id in owners or len(owners) >= session.unsettled_max:
                        self._refuse_id(delivery_id)
                    owners[delivery_id] = self
                part = buf[at:end]
                events.append(
                    _new(
                        Delivery,
                        (self, delivery_id, tag, message_format or 0, settled is True, part, state, mode, resume),
                    )
                )
                return
            if aborted:
                events.append(ResumeAborted(self, tag) if resume else DeliveryAborted(self, delivery_id))
                return
            partial = self.partial = _Partial(delivery_id, tag, message_format or 0, mode, resume)
        elif delivery_id is not None and delivery_id != partial.delivery_id:
            raise LinkFault(
                self,
                conditions.INVALID_FIELD,
                f"delivery {delivery_id} began before delivery {partial.delivery_id} was complete",
            )
        self._continue(partial, settled, more, state, aborted, buf[at:end], events)

    def _continue(
        self, partial: _Partial, settled: bool | None, more: bool, state: Any, aborted: bool, part: bytes,
        events: list[ConnEvent],
    ) -> None:  # fmt: skip
        partials = self.session.connection.partials
        if partial.passed_over:
            self.session.connection.spend(PART)
            if aborted or not more:
                self._forget_partial()
            return
        if aborted:
            self._forget_partial()
            if partial.streamed or not partial.resume:
                events.append(DeliveryAborted(self, partial.delivery_id))
            if partial.resume:
                events.append(ResumeAborted(self, partial.tag))
            return
        if settled:
            partial.settled = True
        if state is not None:
            partial.state = state
        partial.frames += 1
        partial.size += len(part)
        if partial.size > self.size_max:
            raise self._too_large()
        self._hold(partial, len(part) + (weight(state) if state is not None else 0))
        partial.keep(part)
        partials.held += len(part)
        if more:
            if self.tells_begin and partial.frames == 1:
                events.append(DeliveryBegun(self, partial.delivery_id, bytes(part)))
            limit = self.stream_bytes
            if limit is not None:
                held = partial.kept_bytes
                whole_part = held >= PART_BYTES if partial.streamed else partial.size > limit
                if whole_part or (held and partials.held > partials.held_max):
                    self._hand_on(partial, events)
            self.session.connection.spend(PART)
            return
        self._forget_partial()
        if not partial.settled:
            owners = self.session.unsettled_in
            if partial.delivery_id in owners or len(owners) >= self.session.unsettled_max:
                self._refuse_id(partial.delivery_id)
            owners[partial.delivery_id] = self
        if partial.streamed:
            events.append(
                DeliveryPart(
                    self, partial.delivery_id, partial.message_format, partial.settled, b"".join(partial.parts),
                    False, True, partial.tag, partial.resume, partial.state,
                )
            )  # fmt: skip
            return
        events.append(
            Delivery(
                self, partial.delivery_id, partial.tag, partial.message_format, partial.settled,
                b"".join(partial.parts), partial.state, partial.mode, partial.resume,
            )
        )  # fmt: skip

    def _resumed_or_refused(self, resume: bool) -> None:
        """The allowance is used up: only a resumed delivery of a link that takes no others passes."""
        if resume and self._resumes_left > 0:
            self._resumes_left -= 1
            self.allowance = 0
            return
        if self._resumes_left > 0:
            text = "our unsettled map was incomplete: accepted are resumed deliveries alone"
            raise LinkFault(self, conditions.NOT_ALLOWED, text)
        raise LinkFault(self, conditions.TRANSFER_LIMIT_EXCEEDED, "a transfer came without credit")

    def _hold(self, partial: _Partial, added_bytes: int) -> None:
        connection = self.session.connection
        limit = connection.settings.partial_bytes_max
        if connection.partial_bytes + added_bytes > limit and not self.vital:
            text = f"the unfinished deliveries of a connection have at most {limit} bytes here"
            raise LinkFault(self, conditions.RESOURCE_LIMIT_EXCEEDED, text)
        connection.partial_bytes += added_bytes
        partial.held_bytes += added_bytes

    def _hand_on(self, partial: _Partial, events: list[ConnEvent]) -> None:
        events.append(
            DeliveryPart(
                self, partial.delivery_id, partial.message_format, partial.settled, b"".join(partial.parts),
                not partial.streamed, False, partial.tag, partial.resume,
            )
        )  # fmt: skip
        self._let_go(partial, partial.kept_bytes)
        partial.streamed = True
        partial.parts.clear()
        partial.kept_bytes = 0

    def _let_go(self, partial: _Partial, held_bytes: int) -> None:
        connection = self.session.connection
        connection.partials.held -= partial.kept_bytes
        connection.partial_bytes -= held_bytes
        partial.held_bytes -= held_bytes

    def _forget_partial(self) -> None:
        if self.partial is not None:
            self._let_go(self.partial, self.partial.held_bytes)
            self.partial = None

    def _refuse_id(self, delivery_id: int) -> None:
        if delivery_id in self.session.unsettled_in:
            raise SessionFault(self.session, conditions.INVALID_FIELD, f"delivery-id {delivery_id} is not settled yet")
        raise SessionFault(self.session, conditions.RESOURCE_LIMIT_EXCEEDED, "too many deliveries are not settled")

    def _too_large(self) -> LinkFault:
        return LinkFault(
            self,
            conditions.MESSAGE_SIZE_EXCEEDED,
            f"a delivery has at most {self.size_max} bytes here",
        )

    def _attached(self, attach: Attach) -> None:
        self.size_max = attach.max_message_size or self.session.connection.settings.max_message_size

    def on_attach(self, attach: Attach) -> None:
        """The peer's attach, new or in answer to ours; a sender's initial count may be anything."""
        self.remote_attach = attach
        self._delivery_count = attach.initial_delivery_count or 0
        self.refused = self.attach_sent and attach.source is None

    def _stop(self) -> None:
        self.credit = 0
        self._forget_partial()

    def _take_unsettled(self) -> list[Any]:
        owners = self.session.unsettled_in
        if owners:  # it may own few of many
            self.session.connection.charge(len(owners) // STEPS_FOR_ONE)
            for delivery_id in [number for number, owner in owners.items() if owner is self]:
                del owners[delivery_id]
        return []
