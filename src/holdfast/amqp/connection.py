"""A connection: bytes in, events out, bytes out. AMQP 1.0 §2.2, §2.4, §5.3.

Rules of this file: the engine's surface, with everything that concerns bytes and time. It never reads a clock (`now` is
monotonic seconds, an argument) and holds no socket; `receive` never raises because of what a peer sends.
"""

from typing import Any, Final

from holdfast.amqp.effort import ATTACH, BEGIN, BYTES_FREE, EMPTY, EMPTY_BYTES, FLOW, Throttled
from holdfast.amqp.lifecycle import Lifecycle
from holdfast.amqp.links.faults import Fault
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.outgoing import Outgoing
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.login.exchanges import Authenticate
from holdfast.amqp.session import runs
from holdfast.amqp.session.events import (
    ConnectionClosed,
    ConnEvent,
    CreditChanged,
    Deliveries,
    Delivery,
    DeliveryAborted,
    DeliveryPart,
    Drained,
    LinkAttached,
    LinkDetached,
    Opened,
    Outcomes,
    ProtocolFailed,
    ReceiverSettled,
    SessionBegun,
    SessionEnded,
)
from holdfast.amqp.session.session import Session
from holdfast.amqp.settings import Partials, Settings
from holdfast.amqp.states import CLOSING, TRANSITIONS, State, Step
from holdfast.amqp.wire import conditions, fast
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    EMPTY_RUN,
    FRAME_HEAD,
    HEADER_BYTES,
    bad_frame,
    sasl_frame_bytes,
)
from holdfast.amqp.wire.performatives import Attach, Begin, Detach, Disposition, End, Error, Flow, Transfer
from holdfast.amqp.wire.plain import plain_disposition, plain_flow, plain_transfer
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import RemoteProtocolError

__all__ = [
    "TRANSITIONS", "ConnEvent", "Connection", "ConnectionClosed", "CreditChanged", "Deliveries", "Delivery",
    "DeliveryAborted", "DeliveryPart", "Drained", "Link", "LinkAttached", "LinkDetached", "Opened", "Outcomes",
    "Outgoing", "Partials", "ProtocolFailed", "Receiver", "ReceiverSettled",
    "Sender", "Session", "SessionBegun", "SessionEnded", "Settings", "State", "Step",
]  # fmt: skip


class Connection(Lifecycle):
    """One side of a connection.

    Server: answers headers, SASL, open and begin by itself. Client: header, SASL, header and open are ready as one
    flight right after construction. Order of use: receive (or tick), act on the events, take_output. `output` is
    the list of chunks not yet taken, appended to by sessions and links; its identity never changes. `partials` may be
    shared with other connections.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        server: bool,
        authenticate: Authenticate | None = None,
        now: float,
        partials: Partials | None = None,
    ) -> None:
        super().__init__(settings, server=server, authenticate=authenticate, now=now, partials=partials)
        self._wanted_bytes = HEADER_BYTES
        self._idle_in_s = settings.idle_time_out_s
        self._heard = self._spoke = now
        self._closing_timed = False
        self._at = 0

    # ------------------------------------------------------------------------------------------- the surface

    def receive(self, data: bytes, now: float) -> list[ConnEvent]:
        """Returns the events of these bytes, in order. However the stream is split, the events are the same. Afterwards
        `resumes_at` may say that some of the bytes wait; a caller that reads on meanwhile fills memory.
        """
        events: list[ConnEvent] = []
        if self.closed:
            return events
        self._heard = now
        if self._rest or self.resumes_at is not None:
            if len(self._rest) + len(data) < self._wanted_bytes or self.resumes_at is not None:
                self._rest += data
                return events
            data, self._rest = b"".join((self._rest, data)), bytearray()
        self._understand(data, events)
        return events

    def _understand(self, data: bytes, events: list[ConnEvent]) -> None:
        try:
            self._consume(bytes(data), events)
        except RemoteProtocolError as error:
            self._fail(Error(Symbol(error.condition), error.description), events)

    def tick(self, now: float) -> list[ConnEvent]:
        """Does what is due: sends an empty frame, or gives up a silent peer."""
        events: list[ConnEvent] = []
        if self.closed:
            return events
        if self._handshake_ends is not None and now >= self._handshake_ends:
            if self.state in CLOSING:
                self._lose(None, events)
            else:
                self._time_out("the peer has not opened the connection in time", events)
        elif self._idle_in_s is not None and now >= self._silent_since() + self._idle_in_s:
            self._time_out(f"nothing came for {self._idle_in_s:g} s", events)
        elif self._idle_out_s is not None and now >= self._spoke + self._idle_out_s and self.usable:
            if not self.output:
                self.output.append(EMPTY_FRAME)
            self._spoke = now
        return events

    def _silent_since(self) -> float:
        """Since when the peer has been silent; time in which we did not read does not count."""
        return self._heard if self.resumes_at is None else max(self._heard, self.resumes_at)

    def resume(self, now: float) -> list[ConnEvent]:
        """To be called from `resumes_at` on: handles the bytes that wait, of which some may wait again."""
        events: list[ConnEvent] = []
        if not self.closed:
            self.renew(now)
            self.resumes_at = None
            self._heard = now
            data, self._rest = bytes(self._rest), bytearray()
            self._understand(data, events)
        return events

    def reading_paused(self, now: float) -> None:
        """Reading is paused, so inactivity does not count."""
        self._heard = now

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, on `now`'s scale."""
        if self.closed:
            return None
        first = self._handshake_ends
        if self._idle_in_s is not None:
            at = (self._heard if self.resumes_at is None else self._silent_since()) + self._idle_in_s
            if first is None or at < first:
                first = at
        if self._idle_out_s is not None and self.usable:
            at = self._spoke + self._idle_out_s
            if first is None or at < first:
                first = at
        return first

    def take_output(self, now: float) -> list[bytes | memoryview]:
        """The bytes to write, in chunks for one writelines; [] if none."""
        output = self.output if self._login_output is None else self._login_output
        if self._effort is not None and self.resumes_at is None:
            self._effort.renew(now)
        if not output:
            return []
        self._spoke = now
        chunks = output[:]
        output.clear()
        if self.state in CLOSING and not self._closing_timed:
            self._closing_timed = True
            limit = self.settings.handshake_time_out_s
            self._handshake_ends = None if limit is None else now + limit
            self.deadline_sooner = True
        return chunks

    def transport_lost(self, failure: Error | None = None) -> list[ConnEvent]:
        """The transport is gone, or must be closed because of a `failure` of ours, which the peer is told: everything
        ends."""
        events: list[ConnEvent] = []
        if not self.closed:
            self._lose(None, events) if failure is None else self._fail(failure, events)
        return events

    # ------------------------------------------------------------------------------------------------ layers

    def _consume(self, buf: bytes, events: list[ConnEvent]) -> None:
        at = 0
        size = len(buf)
        handshake = self._handshake
        while not self.closed:
            try:
                if handshake.expects_header:
                    if size - at < HEADER_BYTES:
                        self._wanted_bytes = HEADER_BYTES
                        break
                    at += HEADER_BYTES
                    self._progress(handshake.on_header(buf[at - HEADER_BYTES : at]), events)
                elif handshake.login is not None:
                    wanted = sasl_frame_bytes(buf, at, size)
                    if wanted > size - at:
                        self._wanted_bytes = wanted
                        break
                    self._at = at
                    self._progress(handshake.on_sasl_frame(buf[at + 4 * buf[at + 4] : at + wanted]), events)
                    at += wanted
                else:
                    at = self._consume_frames(buf, at, size, events)
                    if at < 0:
                        at = -1 - at
                        break
            except Fault as fault:
                at = self._at
                self._answer(fault, events)
            except Throttled as enough:
                at = self._at
                self._wanted_bytes = 0
                self.resumes_at = enough.resumes_at(self._effort, self._heard)
                self._rest += enough.again
                break
        if at < size and not self.closed:
            self._rest += memoryview(buf)[at:]

    def _consume_frames(self, buf: bytes, at: int, size: int, events: list[ConnEvent]) -> int:
        """Handles AMQP frames from `at` on: the hot loop. Returns -1 minus the offset at which a frame is incomplete.

        Leaves `self._at` after the current frame, for the case that a fault is raised.
        """
        head = FRAME_HEAD.unpack_from
        limit = self.settings.max_frame_size
        nesting = self.settings.nesting_max
        remote = self._remote
        parse, transfer_code = fast.parse_transfer, fast.TRANSFER
        in_runs = self.settings.runs
        start, alone_bytes, events_max = at, *self.told_after
        while size - at >= 8:
            if (at - start >= alone_bytes or len(events) >= events_max) and self.tell_some(events):
                return at
            start = at
            frame_size, words, kind, channel = head(buf, at)
            if frame_size > limit or words < 2 or frame_size < words * 4 or kind != AMQP_FRAME:
                raise bad_frame(frame_size, words, kind, limit)
            end = at + frame_size
            if end > size:
                self._wanted_bytes = frame_size
                return -1 - at
            body = at + words * 4
            at = self._at = end
            session = remote.get(channel)
            if session is not None and not session.end_sent:
                code = buf[body : body + 3]
                if code == transfer_code:
                    if session.run_link is not None:
                        ran = runs.take(session, buf, start, size, limit, events)
                        if ran > start:
                            at = self._at = ran
                            continue
                    transfer = parse(buf, body + 3, end) or plain_transfer(buf, body, end, nesting)
                    session.on_transfer(transfer, buf, end, events)
                    if in_runs:
                        session.run_link = runs.learn(session, transfer, buf, start)
                    continue
                if code == fast.DISPOSITION:
                    disposition = fast.parse_disposition(buf, body + 3, end) or plain_disposition(
                        buf[body:end], nesting
                    )
                    session.on_disposition(disposition, events)
                    continue
                if code == fast.FLOW:
                    flow = fast.parse_flow(buf, body + 3, end) or plain_flow(buf[body:end], nesting)
                    session.on_flow(flow, events)
                    continue
            if body < end:
                self._on_frame(channel, buf, body, end, events)
                if self.closed:
                    return at
            else:
                run = EMPTY_RUN.match(buf, at)
                at = self._at = at if run is None else run.end()
                self.spend(EMPTY + (at - end) // EMPTY_BYTES)
        self._wanted_bytes = 8
        return -1 - at

    def _on_frame(self, channel: int, buf: bytes, at: int, end: int, events: list[ConnEvent]) -> None:
        """Handles every frame that the hot loop does not."""
        if self.state is State.CLOSE_SENT and buf[at : at + 3] in _STREAM:
            self.spend(FLOW)
            return
        performative, _ = decode_composite(buf[at:end], 0, self.settings.nesting_max)
        self.charge(_COSTS.get(type(performative), FLOW) + max(0, end - at - BYTES_FREE))
        if isinstance(performative, Transfer | Flow | Disposition):
            self._on_stream(channel, performative, buf, at, end, events)
        else:
            self._on_performative(channel, performative, events)
        self.spend(0)

    def _on_stream(
        self, channel: int, performative: object, buf: bytes, at: int, end: int, events: list[ConnEvent]
    ) -> None:
        """A transfer, flow or disposition with a long or symbolic descriptor, or where no session is."""
        session = self._session_on(channel, type(performative).__name__.lower())
        if session is None:
            return
        if isinstance(performative, Transfer):
            session.on_transfer(plain_transfer(buf, at, end), buf, end, events)
        elif isinstance(performative, Disposition):
            session.on_disposition(plain_disposition(buf[at:end]), events)
        else:
            session.on_flow(plain_flow(buf[at:end]), events)

    # ------------------------------------------------------------------------------------------------- inside

    def _time_out(self, text: str, events: list[ConnEvent]) -> None:
        self._fail(Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text), events)


_COSTS: Final[dict[type[Any], int]] = {Begin: BEGIN, End: BEGIN, Attach: ATTACH, Detach: ATTACH}
_STREAM: Final = frozenset((fast.TRANSFER, fast.DISPOSITION, fast.FLOW))
