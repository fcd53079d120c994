"""Sender half of a link: our deliveries, the peer's credit. AMQP 1.0 §2.6.7, §2.6.12.

Rules of this file: `send` is a hot path. A usual delivery (open window) is written here, in one frame or several; a
delivery in parts goes through Outgoing, and everything else through the session's backlog. Counts are 32-bit serial
numbers (RFC 1982).
"""

from collections.abc import Sequence
from typing import Any

from holdfast.amqp.links.faults import LinkFault
from holdfast.amqp.links.link import message_size_limit
from holdfast.amqp.links.outgoing import UNKNOWN_BYTES, Outgoing
from holdfast.amqp.links.pending import Pending
from holdfast.amqp.links.ports import OutgoingPort
from holdfast.amqp.links.transfer_form import Buffer, TransferForm
from holdfast.amqp.links.unsettled import SERIAL, UnsettledDeliveries
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.fast import RELEASED
from holdfast.amqp.wire.performatives import Attach, Source
from holdfast.errors import LocalProtocolError

_HALF = 0x80000000
_NO_FORM = TransferForm(0, 0, 512)


class Sender(UnsettledDeliveries):
    """Our end sends. `credit`: deliveries that we may send now, 0 while detached.

    `drain`: the peer wants all credit to be used or returned; call `drained` when there is nothing more to send.
    """

    __slots__ = (
        "_backlog", "_early", "_form", "_initial_count", "_output", "_payload_max", "answered_later", "credit", "drain",
        "outgoing", "resume_credit",
    )  # fmt: skip

    role = False

    def __init__(self, session: OutgoingPort, name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        self.drain = False
        self.answered_later = False
        """The answer to a drain is in the session's backlog; one answers all drains before it."""
        self.resume_credit = 0
        """Credit for resumed deliveries where no others are allowed (`resumes_only`); `credit` is 0 there."""
        self.outgoing: Outgoing | None = None
        """The delivery that is being sent in parts: until it ends the link takes no other."""
        self._initial_count = 0
        self._early: tuple[int | None, int | None, bool, bool] | None = None
        self._payload_max = -1
        """The longest payload that goes out in one frame; -1 before the peer's first flow."""
        self._form = _NO_FORM
        # The session's own objects, one step nearer to the hot path.
        self._output = session.connection.output
        self._backlog = session.backlog

    @property
    def sendable(self) -> bool:
        """There is credit, the peer's session window is open, and no frame or part waits to be sent."""
        return self.credit > 0 and self._counters.window > 0 and not self._backlog and self.outgoing is None

    @property
    def resumable_now(self) -> bool:
        """As `sendable`, for a resumed delivery, which may also use `resume_credit`."""
        credit = self.credit > 0 or self.resume_credit > 0
        return credit and self._counters.window > 0 and not self._backlog and self.outgoing is None

    @property
    def default_outcome(self) -> Any:
        """What a settlement without a state means: the source's default-outcome, or else released. The specification
        does not say what a source without default-outcome means (§3.5.3); released loses no message and counts no
        failure.
        """
        source = self.source
        outcome = source.default_outcome if isinstance(source, Source) else None
        return RELEASED if outcome is None else outcome

    @property
    def message_bytes_max(self) -> int | None:
        """The largest delivery that the peer accepts (§2.7.3); 0 and null both mean no limit."""
        return message_size_limit(self.remote_attach)

    def send(
        self,
        parts: bytes | Sequence[Buffer],
        *,
        context: Any,
        settled: bool = False,
        message_format: int = 0,
        state: Any = None,
    ) -> int:
        """Sends one delivery and returns its delivery-id; its outcome comes back with `context`. While the link is not
        `sendable`, deliveries within the credit go to the session's backlog; a delivery-id in the backlog may still
        change when another link of the session ends. LocalProtocolError without credit.
        """
        credit = self.credit
        if credit <= 0 or self.outgoing is not None:
            raise self._not_now()
        pieces: Sequence[Buffer] = (parts,) if isinstance(parts, bytes) else parts
        size = len(pieces[0]) if len(pieces) == 1 else sum([len(piece) for piece in pieces])
        if size > self._payload_max and self.message_bytes_max is not None and size > self.message_bytes_max:
            raise LocalProtocolError(f"link {self.name!r} takes {self.message_bytes_max} bytes, not {size}")
        self.credit = credit - 1
        counters = self._counters
        delivery_id = self._number(context, settled)
        if counters.window <= 0 or self._backlog or message_format or state is not None:
            self._send_later(delivery_id, pieces, settled, message_format, state)
        elif size > self._payload_max:
            if self._payload_max >= 0 and self._form.frames(size) <= counters.window:
                self._send_cut(delivery_id, pieces, size, settled)
            else:
                self._send_later(delivery_id, pieces, settled, message_format, state)
        else:
            counters.window -= 1
            counters.next_outgoing_id = (counters.next_outgoing_id + 1) & SERIAL
            form = self._form
            output = self._output
            output.append(
                form.pack(
                    form.head_bytes + size, form.prefix, delivery_id, b"\xa0\x04", delivery_id,
                    b"\x43\x41" if settled else b"\x43\x42",
                )
            )  # fmt: skip
            output += pieces
        return delivery_id

    def _send_later(
        self, delivery_id: int, pieces: Sequence[Buffer], settled: bool, message_format: int, state: Any
    ) -> None:
        payload = b"".join(pieces)
        self.session.send_later(Pending(self, delivery_id, payload, settled, message_format, state))

    def _send_cut(self, delivery_id: int, pieces: Sequence[Buffer], size: int, settled: bool) -> None:
        """Write a delivery in several frames; the window is open for all."""
        counters = self._counters
        frames = self._form.cut(self._output, delivery_id, pieces, size, settled)
        counters.window -= frames
        counters.next_outgoing_id = (counters.next_outgoing_id + frames) & SERIAL

    def send_run(
        self, heads: Sequence[bytes], bodies: Sequence[Buffer], contexts: Sequence[Any], *, settled: bool
    ) -> int:
        """Sends deliveries, each of a head and a body, as far as credit, window and the peer's size limit allow;
        returns how many. It does the same as `send` for each, for many at once.
        """
        counters = self._counters
        first = counters.next_delivery_id
        count = min(len(heads), self.credit, counters.window, SERIAL - first)
        if count <= 0 or self._backlog or self.outgoing is not None or self._payload_max < 0:
            return 0
        form, payload_max = self._form, self._payload_max
        pack, head_bytes, prefix = form.pack, form.head_bytes, form.prefix
        flags = b"\x43\x41" if settled else b"\x43\x42"
        output = self._output
        number = first
        whole = 0
        for head, body in zip(heads[:count], bodies, strict=False):
            size = len(head) + len(body)
            if size > payload_max:
                limit = self.message_bytes_max
                # The frames before this one are not subtracted from the window yet.
                if form.frames(size) > counters.window - whole or (limit is not None and size > limit):
                    break
                self._send_cut(number, (head, body), size, settled)
            elif whole < counters.window:
                output.append(pack(head_bytes + size, prefix, number, b"\xa0\x04", number, flags))
                output += (head, body)
                whole += 1
            else:
                break
            number += 1
        count = number - first
        counters.next_delivery_id = number
        counters.window -= whole
        counters.next_outgoing_id = (counters.next_outgoing_id + whole) & SERIAL
        self.credit -= count
        self._delivery_count = (self._delivery_count + count) & SERIAL
        if not settled:
            numbers = range(first, number)
            self.unsettled.update(zip(numbers, contexts, strict=False))
            self._owners.update(dict.fromkeys(numbers, self))
        return count

    def begin(
        self, head: bytes, length: int | None, *, context: Any, settled: bool = False, message_format: int = 0
    ) -> Outgoing:
        """Begin a delivery of `length` bytes that is sent in parts, of which `head` is the first; see Outgoing. With a
        `length` of None the delivery ends with `Outgoing.end`, and the peer's size limit is not checked. Its outcome
        comes back with `context`, perhaps before its end. LocalProtocolError if the link is not `sendable`, or the peer
        accepts no delivery of that size.
        """
        if not self.sendable:
            raise self._not_now()
        if length is None:
            length = UNKNOWN_BYTES
        elif self.message_bytes_max is not None and length > self.message_bytes_max:
            raise LocalProtocolError(f"link {self.name!r} takes {self.message_bytes_max} bytes, not {length}")
        self.credit -= 1
        delivery_id = self._number(context, settled)
        outgoing = Outgoing(self, delivery_id, head, length, settled, message_format)
        self.outgoing = None if outgoing.over else outgoing
        return outgoing

    def _not_now(self) -> LocalProtocolError:
        if self.outgoing is not None:
            return LocalProtocolError(f"link {self.name!r} is in the middle of a delivery")
        return LocalProtocolError(f"link {self.name!r} has no credit, or its session's window is closed")

    # ----------------------------------------------------------------------------------------- resuming

    def use_tags(self, offset: int) -> None:
        """Tags of this link are delivery-id + `offset` (mod 2^32), in 4 bytes: called before the first delivery.

        A link that may be resumed must not use a tag again, so they go on over sessions: Session.tag_offset.
        """
        self._tag_offset = offset
        self._payload_max = -1

    def resume(
        self,
        tag: bytes,
        parts: bytes | Sequence[bytes] = b"",
        *,
        context: Any,
        state: Any,
        settled: bool = False,
        aborted: bool = False,
        message_format: int = 0,
    ) -> int:
        """Go on with the delivery `tag` of an earlier session (§2.6.13), as Sender.send; returns its new id."""
        if self.credit > 0:
            self.credit -= 1
        elif self.resume_credit > 0:
            self.resume_credit -= 1
        else:
            raise LocalProtocolError(f"link {self.name!r} has no credit")
        delivery_id = self._number(context, settled or aborted)
        self._resumed[delivery_id] = tag
        payload = parts if isinstance(parts, bytes) else b"".join(parts)
        self.session.send_later(
            Pending(self, delivery_id, payload, settled, message_format, state, resume=True, aborted=aborted)
        )
        return delivery_id

    def drained(self) -> None:
        """There is nothing more to send: uses up the rest of the credit and tells the peer (§2.6.7). The flow follows
        the frames that still wait. It does nothing without an unanswered drain.
        """
        if not self.drain:
            return
        self.drain = False
        if self.detach_sent or self.over:
            return
        self._delivery_count = (self._delivery_count + self.credit + self.resume_credit) & SERIAL
        self.credit = self.resume_credit = 0
        if self._backlog:
            if not self.answered_later:
                self.answered_later = True
                self.session.answer_drain_later(self)
        else:
            self.flow(drain=True)

    # ------------------------------------------------------------------------------------- for the session

    def finished(self, outgoing: Outgoing) -> None:
        """The delivery that is sent in parts has ended: the link is free for the next."""
        if self.outgoing is outgoing:
            self.outgoing = None

    def answer_drain(self) -> None:
        """The deliveries that had to precede the answer to a drain were sent."""
        self.answered_later = False
        self.flow(drain=True)

    def flow(self, *, drain: bool = False) -> None:
        """Tell the peer our delivery-count and credit."""
        self.session.write_flow(self.handle, self._delivery_count, self.credit, drain)

    def on_flow(self, delivery_count: int | None, link_credit: int | None, drain: bool, echo: bool) -> bool:
        """The peer's flow for this link: credit is absolute, counted from its delivery-count (§2.6.7). True: the event
        CreditChanged follows."""
        if self.detach_sent:
            return False
        if not self.attach_sent:
            # Pipelined before our answer: it applies from then on.
            self._early = (delivery_count, link_credit, drain, echo)
            return True
        if link_credit is not None:
            used = (self._delivery_count - (self._initial_count if delivery_count is None else delivery_count)) & (
                SERIAL
            )
            if used >= _HALF:
                raise LinkFault(self, conditions.INVALID_FIELD, f"delivery-count {delivery_count} was not sent yet")
            self.credit = max(0, link_credit - used)
            if self.resumes_only:
                self.resume_credit, self.credit = self.credit, 0
            if self._payload_max < 0:
                self._prepare()
        self.drain = drain
        if drain and self.credit == self.resume_credit == 0:
            self.drained()
        elif echo and not drain:
            self.flow()
        return True

    def _prepare(self) -> None:
        session = self.session
        frame_bytes_max = session.connection.frame_size_out
        self._form = TransferForm(session.channel, self.handle, frame_bytes_max, max(0, self._tag_offset))
        self._payload_max = self._form.payload_max
        if self.message_bytes_max is not None:
            self._payload_max = min(self._payload_max, self.message_bytes_max)

    def _attached(self, attach: Attach) -> None:
        self._delivery_count = self._initial_count = attach.initial_delivery_count or 0
        if self._early is not None:
            (_, credit, drain, echo), self._early = self._early, None
            self.on_flow(None, credit, drain, echo)  # before our attach nobody knows what we count from

    def on_attach(self, attach: Attach) -> None:
        """The peer's attach, new or in answer to ours."""
        self.remote_attach = attach
        self.refused = self.attach_sent and attach.target is None

    def stop(self) -> None:
        if self.outgoing is not None:
            self.outgoing.over = True
            self.outgoing = None
        self._early = None
        self.credit = self.resume_credit = 0
        self.drain = False
