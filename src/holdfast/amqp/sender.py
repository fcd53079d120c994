"""Sender half of a link: our deliveries, the peer's credit. AMQP 1.0 §2.6.7, §2.6.12.

Rules of this file: `send` is a hot path; the usual delivery (window open) is written here, in one frame or cut into
several; what is sent in parts goes through Outgoing, everything else through the session's backlog. Counts are 32-bit
serial numbers (RFC 1982).
"""

from collections.abc import Sequence
from typing import Any

from holdfast.amqp import conditions
from holdfast.amqp.fast import RELEASED
from holdfast.amqp.faults import LinkFault
from holdfast.amqp.link import Link, message_size_limit
from holdfast.amqp.outgoing import UNKNOWN_BYTES, Outgoing
from holdfast.amqp.pending import Pending
from holdfast.amqp.performatives import Attach, Source
from holdfast.amqp.ports import OutgoingPort
from holdfast.amqp.transfer_form import Buffer, TransferForm
from holdfast.errors import LocalProtocolError

_SERIAL = 0xFFFFFFFF
_HALF = 0x80000000
_NO_FORM = TransferForm(0, 0, 512)


class Sender(Link):
    """Our end sends. `credit`: deliveries that we may send now, 0 while detached.

    `drain`: the peer wants all its credit used or given back; answer with `drained` when there is nothing more.
    """

    __slots__ = (
        "_backlog", "_counters", "_delivery_count", "_early", "_form", "_initial_count", "_output", "_owners",
        "_payload_max", "_resumed", "_tag_offset", "answered_later", "credit", "drain", "outgoing", "resume_credit",
        "suspended", "unsettled",
    )  # fmt: skip

    role = False
    session: OutgoingPort

    def __init__(self, session: OutgoingPort, name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        self.drain = False
        self.answered_later = False
        """The answer to a drain is in the session's backlog; one answers all drains before it."""
        self.unsettled: dict[int, Any] = {}
        """delivery-id → context, in the order sent."""
        self.resume_credit = 0
        """Credit for resumed deliveries where no others are allowed (`resumes_only`); `credit` is 0 there."""
        self.suspended: dict[bytes, Any] = {}
        """What `unsettled_tags` was when the link ended, if `use_tags` was called."""
        self._tag_offset = -1
        self._resumed: dict[int, bytes] = {}
        self.outgoing: Outgoing | None = None
        """The delivery that is being sent in parts: until it ends the link takes no other."""
        self._delivery_count = 0
        self._initial_count = 0
        self._early: tuple[int | None, int | None, bool, bool] | None = None
        self._payload_max = -1
        """The longest payload that goes out in one frame; -1 before the peer's first flow."""
        self._form = _NO_FORM
        # The session's own objects, one step nearer to the hot path.
        self._output = session.connection.output
        self._counters = session.outgoing
        self._backlog = session.backlog
        self._owners = session.unsettled_out

    @property
    def sendable(self) -> bool:
        """There is credit, the peer's session window is open, and neither a frame nor a part waits to be sent."""
        return self.credit > 0 and self._counters.window > 0 and not self._backlog and self.outgoing is None

    @property
    def resumable_now(self) -> bool:
        """As `sendable`, for a resumed delivery, for which `resume_credit` counts too."""
        credit = self.credit > 0 or self.resume_credit > 0
        return credit and self._counters.window > 0 and not self._backlog and self.outgoing is None

    @property
    def default_outcome(self) -> Any:
        """What a settlement without a state means: the source's default-outcome, else released.

        Of a source that names none the specification says nothing (§3.5.3); the answer that loses no message and
        blames none is that it was not taken.
        """
        source = self.source
        outcome = source.default_outcome if isinstance(source, Source) else None
        return RELEASED if outcome is None else outcome

    @property
    def message_bytes_max(self) -> int | None:
        """The largest delivery that the peer takes (§2.7.3); its 0 and null both mean no limit."""
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
        """Send one delivery and return its delivery-id; its outcome comes back with `context`.

        Whoever sends while not `sendable` fills the session's backlog, as far as the credit goes; a delivery-id
        in the backlog may still change when another link of the session ends. LocalProtocolError without credit.
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
            counters.next_outgoing_id = (counters.next_outgoing_id + 1) & _SERIAL
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
        counters.next_outgoing_id = (counters.next_outgoing_id + frames) & _SERIAL

    def send_run(
        self, heads: Sequence[bytes], bodies: Sequence[Buffer], contexts: Sequence[Any], *, settled: bool
    ) -> int:
        """Send deliveries, a payload being a head and a body, as far as credit and window go, and what the peer takes
        of size; returns how many went out. What `send` does for each, for many at once.
        """
        counters = self._counters
        first = counters.next_delivery_id
        count = min(len(heads), self.credit, counters.window, _SERIAL - first)
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
                # What the frames before this one take of the window is not taken off it yet.
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
        counters.next_outgoing_id = (counters.next_outgoing_id + whole) & _SERIAL
        self.credit -= count
        self._delivery_count = (self._delivery_count + count) & _SERIAL
        if not settled:
            numbers = range(first, number)
            self.unsettled.update(zip(numbers, contexts, strict=False))
            self._owners.update(dict.fromkeys(numbers, self))
        return count

    def take_run(self, first: int, last: int) -> list[Any]:
        """The contexts of first..last, which are over, if all of them are this link's; else none, and nothing is."""
        unsettled = self.unsettled
        if last - first >= len(unsettled):
            return []
        numbers = range(first, last + 1)
        try:
            contexts = [unsettled[number] for number in numbers]
        except KeyError:
            return []
        owners = self._owners
        for number in numbers:
            del unsettled[number], owners[number]
        return contexts

    def begin(
        self, head: bytes, length: int | None, *, context: Any, settled: bool = False, message_format: int = 0
    ) -> Outgoing:
        """Begin a delivery of `length` bytes that is sent in parts, of which `head` is the first; see Outgoing.
        A `length` of None is told by `Outgoing.end`; then nobody looks whether the peer takes so much.

        Its outcome comes back with `context`, perhaps before its end. LocalProtocolError where the link is not
        `sendable`, or the peer takes no delivery of that size.
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

    def _number(self, context: Any, settled: bool) -> int:
        """The delivery-id of one more delivery, which comes back with `context` unless it is settled."""
        self._delivery_count = (self._delivery_count + 1) & _SERIAL
        counters = self._counters
        delivery_id = counters.next_delivery_id
        counters.next_delivery_id = (delivery_id + 1) & _SERIAL
        if not settled:
            self.unsettled[delivery_id] = context
            self._owners[delivery_id] = self
        return delivery_id

    def _not_now(self) -> LocalProtocolError:
        if self.outgoing is not None:
            return LocalProtocolError(f"link {self.name!r} is in the middle of a delivery")
        return LocalProtocolError(f"link {self.name!r} has no credit, or its session's window is shut")

    # ----------------------------------------------------------------------------------------- resuming

    def use_tags(self, offset: int) -> None:
        """Tags of this link are delivery-id + `offset` (mod 2^32), in 4 bytes: called before the first delivery.

        A link that may be resumed must not use a tag again, so they go on over sessions: Session.tag_offset.
        """
        self._tag_offset = offset
        self._payload_max = -1

    @property
    def next_tag(self) -> int:
        """A tag that this link has not used, nor any above it (serial)."""
        return (self._counters.next_delivery_id + max(0, self._tag_offset)) & _SERIAL

    def tag_of(self, delivery_id: int) -> bytes:
        """The tag of a delivery of this session."""
        resumed = self._resumed.get(delivery_id)
        return resumed if resumed is not None else ((delivery_id + max(0, self._tag_offset)) & _SERIAL).to_bytes(4)

    def unsettled_tags(self) -> dict[bytes, Any]:
        """Tag → context of what went out and has no outcome, in the order sent."""
        return {self.tag_of(number): context for number, context in self.unsettled.items() if number >= 0}

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
        """Nothing more to send: what is left of the credit is used up and the peer told (§2.6.7).

        The flow follows the frames that still wait. Without an unanswered drain it does nothing.
        """
        if not self.drain:
            return
        self.drain = False
        if self.detach_sent or self.over:
            return
        self._delivery_count = (self._delivery_count + self.credit + self.resume_credit) & _SERIAL
        self.credit = self.resume_credit = 0
        if self._backlog:
            if not self.answered_later:
                self.answered_later = True
                self.session.answer_drain_later(self)
        else:
            self.flow(drain=True)

    def settle(self, first: int, last: int, state: Any) -> None:
        """Settle first..last from our side (rcv-settle-mode second), as `Outcomes` named them."""
        if self.detach_sent or self.over:
            return
        unsettled, owners = self.unsettled, self._owners
        for delivery_id in self.session.ids_between(first, last, unsettled):
            if unsettled.pop(delivery_id, self) is not self:
                del owners[delivery_id]
        self.session.write_disposition(False, first, last, True, state)

    # ------------------------------------------------------------------------------------- for the session

    def forget_delivery(self, delivery_id: int) -> None:
        """No outcome of it comes any more; nothing where it has come."""
        if self.unsettled.pop(delivery_id, self) is not self:
            del self._owners[delivery_id]

    def finished(self, outgoing: Outgoing) -> None:
        """The delivery that is sent in parts has ended: the link is free for the next."""
        if self.outgoing is outgoing:
            self.outgoing = None

    def answer_drain(self) -> None:
        """What waited for the window before the answer to a drain is out."""
        self.answered_later = False
        self.flow(drain=True)

    def flow(self, *, drain: bool = False) -> None:
        """Tell the peer our delivery-count and credit."""
        self.session.write_flow(self.handle, self._delivery_count, self.credit, drain)

    def on_flow(self, delivery_count: int | None, link_credit: int | None, drain: bool, echo: bool) -> bool:
        """The peer's flow for this link: credit is absolute, reckoned from its delivery-count (§2.6.7). True: the user
        is to be told, by CreditChanged."""
        if self.detach_sent:
            return False
        if not self.attach_sent:
            # Pipelined before our answer: it counts from then on.
            self._early = (delivery_count, link_credit, drain, echo)
            return True
        if link_credit is not None:
            used = (self._delivery_count - (self._initial_count if delivery_count is None else delivery_count)) & (
                _SERIAL
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

    def renumber(self, old: int, new: int) -> None:
        """A delivery of the backlog moves up, because others before it were dropped."""
        if old in self.unsettled:
            self.unsettled[new] = self.unsettled.pop(old)
            del self._owners[old]
            self._owners[new] = self
        if old in self._resumed:
            self._resumed[new] = self._resumed.pop(old)

    def unnumber(self, delivery_id: int) -> None:
        """A delivery of the backlog is dropped: its context keeps its place in the order under a key that no delivery
        can have."""
        self._owners.pop(delivery_id, None)
        if delivery_id in self.unsettled:
            self.unsettled[-1 - delivery_id] = self.unsettled.pop(delivery_id)

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

    def _take_unsettled(self) -> list[Any]:
        if self._tag_offset >= 0:
            self.suspended = self.unsettled_tags()
        contexts = list(self.unsettled.values())
        owners = self._owners
        if owners:
            for delivery_id in self.unsettled:
                owners.pop(delivery_id, None)
        self.unsettled.clear()
        return contexts
