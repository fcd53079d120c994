"""The peer's transfer frames, made into events one by one. AMQP 1.0 §2.6.12, §2.6.14, §2.7.5.

Rules of this file: a delivery in one frame becomes an event at once. Parts are kept for one delivery of a link at a
time, at most max_message_size bytes, or are handed on as they arrive if the user asks for that (`stream_bytes`).
runs.py is a faster form for runs of similar frames.
"""

from typing import Any, Final

from holdfast.amqp.effort import PART
from holdfast.amqp.links.faults import LinkFault, SessionFault
from holdfast.amqp.links.partial import Partial
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.session.events import (
    ConnEvent,
    Delivery,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryPart,
    ResumeAborted,
)
from holdfast.amqp.weight import weight
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.composites import TAG_BYTES_MAX
from holdfast.amqp.wire.fast import ParsedTransfer
from holdfast.amqp.wire.performatives import RCV_SETTLE_MODE_MAX

PART_BYTES: Final = 128 * 1024
"""Frames are joined to parts of at least so many bytes."""

_SERIAL = 0xFFFFFFFF
_new = tuple.__new__


def on_transfer(link: Receiver, parsed: ParsedTransfer, buf: bytes, end: int, events: list[ConnEvent]) -> None:
    """One transfer frame of this link, whose frame ends at `end`."""
    _, delivery_id, tag, message_format, settled, more, mode, state, resume, aborted, at = parsed
    if link.detach_sent:
        link.passed_over(delivery_id, settled=bool(settled) and not aborted)
        link.session.connection.spend(PART)
        return
    partial = link.partial
    if partial is None:
        if delivery_id is None or tag is None or len(tag) > TAG_BYTES_MAX:
            text = f"invalid first transfer of a delivery; expected an id and a tag of at most {TAG_BYTES_MAX} bytes"
            raise LinkFault(link, conditions.INVALID_FIELD, text)
        if mode is not None and mode > RCV_SETTLE_MODE_MAX:
            text = f"invalid value {mode} for rcv-settle-mode; expected 0 or 1"
            raise LinkFault(link, conditions.INVALID_FIELD, text)
        link.allowance -= 1
        if link.allowance < 0:
            _resumed_or_refused(link, resume)
        link.credit = link.credit - 1 if link.credit > 0 else 0
        count = link.delivery_count
        if count is not None:
            link.delivery_count = (count + 1) & _SERIAL
        if not more and not aborted:
            if end - at > link.size_max:
                raise _too_large(link)
            if not settled:
                session = link.session
                owners = session.unsettled_in
                if delivery_id in owners or len(owners) >= session.unsettled_max:
                    _refuse_id(link, delivery_id)
                owners[delivery_id] = link
            part = buf[at:end]
            events.append(
                _new(
                    Delivery,
                    (link, delivery_id, tag, message_format or 0, settled is True, part, state, mode, resume),
                )
            )
            return
        if aborted:
            events.append(ResumeAborted(link, tag) if resume else DeliveryAborted(link, delivery_id))
            return
        partial = link.partial = Partial(delivery_id, tag, message_format or 0, mode, resume)
    elif delivery_id is not None and delivery_id != partial.delivery_id:
        raise LinkFault(
            link,
            conditions.INVALID_FIELD,
            f"delivery {delivery_id} began before delivery {partial.delivery_id} was complete",
        )
    _continue(link, partial, settled, more, state, aborted, buf[at:end], events)


def _continue(
    link: Receiver, partial: Partial, settled: bool | None, more: bool, state: Any, aborted: bool, part: bytes,
    events: list[ConnEvent],
) -> None:  # fmt: skip
    connection = link.session.connection
    if partial.passed_over:
        connection.spend(PART)
        if aborted or not more:
            link.forget_partial()
        return
    if aborted:
        link.forget_partial()
        if partial.streamed or not partial.resume:
            events.append(DeliveryAborted(link, partial.delivery_id))
        if partial.resume:
            events.append(ResumeAborted(link, partial.tag))
        return
    if settled:
        partial.settled = True
    if state is not None:
        partial.state = state
    partial.frames += 1
    partial.size += len(part)
    if partial.size > link.size_max:
        raise _too_large(link)
    held_bytes = len(part) + (weight(state) if state is not None else 0)
    if not connection.hold_part(len(part), held_bytes, not link.vital):
        bound = f"{connection.settings.partial_bytes_max} bytes (partial_bytes_max)"
        text = f"the unfinished deliveries of the connection are too large; the limit is {bound}"
        raise LinkFault(link, conditions.RESOURCE_LIMIT_EXCEEDED, text)
    partial.held_bytes += held_bytes
    partial.keep(part)
    if more:
        if link.tells_begin and partial.frames == 1:
            events.append(DeliveryBegun(link, partial.delivery_id, bytes(part)))
        limit = link.stream_bytes
        if limit is not None:
            held = partial.kept_bytes
            partials = connection.partials
            whole_part = held >= PART_BYTES if partial.streamed else partial.size > limit
            if whole_part or (held and partials.held > partials.held_max):
                _hand_on(link, partial, events)
        connection.spend(PART)
        return
    link.forget_partial()
    if not partial.settled:
        owners = link.session.unsettled_in
        if partial.delivery_id in owners or len(owners) >= link.session.unsettled_max:
            _refuse_id(link, partial.delivery_id)
        owners[partial.delivery_id] = link
    if partial.streamed:
        events.append(
            DeliveryPart(
                link, partial.delivery_id, partial.message_format, partial.settled, b"".join(partial.parts),
                False, True, partial.tag, partial.resume, partial.state,
            )
        )  # fmt: skip
        return
    events.append(
        Delivery(
            link, partial.delivery_id, partial.tag, partial.message_format, partial.settled,
            b"".join(partial.parts), partial.state, partial.mode, partial.resume,
        )
    )  # fmt: skip


def _resumed_or_refused(link: Receiver, resume: bool) -> None:
    """The credit is used up: only a resumed delivery of a link that accepts no others is allowed."""
    if resume and link.resumes_left > 0:
        link.resumes_left -= 1
        link.allowance = 0
        return
    if link.resumes_left > 0:
        text = "our unsettled map was incomplete; send only resumed deliveries on this link"
        raise LinkFault(link, conditions.NOT_ALLOWED, text)
    raise LinkFault(link, conditions.TRANSFER_LIMIT_EXCEEDED, "a transfer came without credit")


def _hand_on(link: Receiver, partial: Partial, events: list[ConnEvent]) -> None:
    events.append(
        DeliveryPart(
            link, partial.delivery_id, partial.message_format, partial.settled, b"".join(partial.parts),
            not partial.streamed, False, partial.tag, partial.resume,
        )
    )  # fmt: skip
    link.session.connection.release_parts(partial.kept_bytes, partial.kept_bytes)
    partial.held_bytes -= partial.kept_bytes
    partial.streamed = True
    partial.parts.clear()
    partial.kept_bytes = 0


def _refuse_id(link: Receiver, delivery_id: int) -> None:
    if delivery_id in link.session.unsettled_in:
        text = f"delivery-id {delivery_id} is not settled yet; use another"
        raise SessionFault(link.session, conditions.INVALID_FIELD, text)
    text = "too many deliveries are not settled; settle some first"
    raise SessionFault(link.session, conditions.RESOURCE_LIMIT_EXCEEDED, text)


def _too_large(link: Receiver) -> LinkFault:
    return LinkFault(
        link,
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"the delivery is too large; the limit is {link.size_max} bytes",
    )
