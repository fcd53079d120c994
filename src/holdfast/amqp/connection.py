"""A connection: bytes in, events out, bytes out. AMQP 1.0 §2.2, §2.4, §5.3.

Rules of this file: the engine's door. It never reads a clock (`now` is monotonic seconds, an argument) and holds no
socket; `receive` raises for nothing that a peer may send. A peer's fault ends as little as the specification
allows: a link, a session, or the connection. States and their transitions are the table of states.py.
"""

from typing import Any, Final

from holdfast.amqp import codec, conditions, fast, runs
from holdfast.amqp.bounds import Bounds
from holdfast.amqp.effort import ATTACH, BEGIN, BYTES_FREE, EMPTY, EMPTY_BYTES, FLOW, Enough
from holdfast.amqp.events import (
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
from holdfast.amqp.faults import Fault
from holdfast.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    EMPTY_RUN,
    FRAME_HEAD,
    FRAME_SIZE_MIN,
    HEADER_BYTES,
    bad_frame,
    bounded,
    frame,
    sasl_frame_bytes,
)
from holdfast.amqp.handshake import Handshake, Progress
from holdfast.amqp.link import Link
from holdfast.amqp.outgoing import Outgoing
from holdfast.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
    decode_composite,
)
from holdfast.amqp.plain import plain_disposition, plain_flow, plain_transfer
from holdfast.amqp.receiver import Receiver
from holdfast.amqp.sasl import Authenticate
from holdfast.amqp.sender import Sender
from holdfast.amqp.session import OUTGOING_WINDOW, Session
from holdfast.amqp.session_endpoint import SessionEndpoint
from holdfast.amqp.settings import Partials, Settings
from holdfast.amqp.states import CLOSING, MAY_SPEAK, TRANSITIONS, State, Step
from holdfast.amqp.types import Symbol
from holdfast.amqp.weight import weight
from holdfast.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "TRANSITIONS", "ConnEvent", "Connection", "ConnectionClosed", "CreditChanged", "Deliveries", "Delivery",
    "DeliveryAborted", "DeliveryPart", "Drained", "Link", "LinkAttached", "LinkDetached", "Opened", "Outcomes",
    "Outgoing", "Partials", "ProtocolFailed", "Receiver", "ReceiverSettled",
    "Sender", "Session", "SessionBegun", "SessionEnded", "Settings", "State", "Step",
]  # fmt: skip


class Connection(Bounds):
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
        settings.validate()
        super().__init__(settings, server=server, now=now, partials=partials)
        self.server = server
        self.state = State.START
        self.output: list[bytes | memoryview] = []
        self.authenticated_user: str | None = None
        self.usable = False
        """Sessions may speak."""
        self.frame_size_out = FRAME_SIZE_MIN  # the smaller of both sides' max-frame-size
        self._handshake = Handshake(settings, server=server, authenticate=authenticate)
        self._wanted_bytes = HEADER_BYTES
        self._remote: dict[int, SessionEndpoint] = {}
        self._idle_in_s = settings.idle_time_out_s
        self._idle_out_s: float | None = None
        self._heard = self._spoke = now
        self._handshake_ends = None if settings.handshake_time_out_s is None else now + settings.handshake_time_out_s
        self._closing_timed = False
        self.deadline_sooner = False
        """`next_deadline` may have come nearer; all else moves it away. Whoever remembers it clears this."""
        self._at = 0
        if not server:
            self.output.append(self._handshake.start())
            self.authenticated_user = self._handshake.user
            self._step(Step.S_HEADER)
            self._send_open()

    # ------------------------------------------------------------------------------------------- the surface

    def receive(self, data: bytes, now: float) -> list[ConnEvent]:
        """What these bytes mean, in their order. Any cut of the stream gives the same events.

        After it `resumes_at` may say that some of them wait; who goes on reading then fills memory.
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
        """Let time pass: send an empty frame, give up a silent peer."""
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
        """What is not read for our own sake is no silence."""
        return self._heard if self.resumes_at is None else max(self._heard, self.resumes_at)

    def resume(self, now: float) -> list[ConnEvent]:
        """From `resumes_at` on: what lies unread goes on, perhaps only to wait again."""
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
        output = self.output
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

    def begin(self, *, incoming_window: int | None = None) -> Session:
        """A new session, usable at once; `incoming_window` else of the settings.

        LocalProtocolError if the connection is over or has no channel left.
        """
        if not self.usable:
            raise LocalProtocolError("the connection is closed or not open yet")
        channel = 0
        while channel in self._sessions:
            channel += 1
        if channel >= self.channels:
            raise LocalProtocolError(f"all {channel} channels are in use")
        session = SessionEndpoint(self, channel, incoming_window)
        self._sessions[channel] = session
        self._send_begin(session, None)
        return session

    def close(self, error: Error | None = None) -> None:
        """Close; LinkDetached, SessionEnded and ConnectionClosed come when the peer answers."""
        if self.state in MAY_SPEAK:
            for session in self._sessions.values():
                session.stop_links()
            self._remote.clear()
            self._send_close(error)
        elif self.state not in CLOSING:
            self.closed = True
            self.usable = False

    def transport_lost(self, failure: Error | None = None) -> list[ConnEvent]:
        """The transport is gone, or is to go for a `failure` of ours that the peer is told: all is over at once."""
        events: list[ConnEvent] = []
        if not self.closed:
            self._lose(None, events) if failure is None else self._fail(failure, events)
        return events

    @property
    def body_bytes_max(self) -> int:
        """Bytes of a frame's body that the peer takes; before its open, which we do not wait for, what it may take."""
        return (self.frame_size_out if self.remote_open is not None else self.settings.early_frame_size) - 8

    def write(self, channel: int, performative: Any) -> None:
        """Queue a performative; what the peer's frame size cannot hold is cut where it is an error's text."""
        limit = self.body_bytes_max
        body = bounded(performative, limit)
        if len(body) > limit:
            raise LocalProtocolError(
                f"{type(performative).__name__} takes {len(body)} bytes, a frame of the peer's {limit}"
            )
        self.output.append(frame(channel, body))

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
            except Enough as enough:
                at = self._at
                self._wanted_bytes = 0
                self.resumes_at = enough.resumes_at(self._effort, self._heard)
                self._rest += enough.again
                break
        if at < size and not self.closed:
            self._rest += memoryview(buf)[at:]

    def _progress(self, progress: Progress, events: list[ConnEvent]) -> None:
        """What the handshake has decided."""
        if progress.output:
            self.output.append(progress.output)
        for step in progress.steps:
            self._step(step)
        self.authenticated_user = self._handshake.user
        if progress.refusal is not None:
            self._lose(progress.refusal, events)

    def _answer(self, fault: Fault, events: list[ConnEvent]) -> None:
        """End what is at fault, and tell both sides."""
        session = self._sessions[fault.channel]
        if fault.link is None:
            session.fault(fault.error, events)
        else:
            session.fault_link(fault.link, fault.error, events)

    def _consume_frames(self, buf: bytes, at: int, size: int, events: list[ConnEvent]) -> int:
        """AMQP frames from `at` on: the hot loop. Returns -1 minus the offset where a whole frame lacks.

        Leaves `self._at` behind the frame it is at, for when a fault is raised.
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
        """Everything but what the hot loop has taken."""
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

    def _on_performative(self, channel: int, performative: object, events: list[ConnEvent]) -> None:
        """What is neither transfer nor flow nor disposition."""
        handler = _HANDLERS.get(type(performative))
        if handler is None:
            raise RemoteProtocolError(
                conditions.DECODE_ERROR, f"{type(performative).__name__} is no performative of a connection"
            )
        handler(self, channel, performative, events)

    def _on_open(self, channel: int, opened: Open, events: list[ConnEvent]) -> None:
        self._step(Step.R_OPEN)
        if self.settings.handshake_time_out_s is not None and self.state not in CLOSING:
            self._handshake_ends = None
        self.remote_open = opened
        for what, name in (("container-id", opened.container_id), ("hostname", opened.hostname)):
            self.check_name(what, name or "")
        self.keep(weight(opened))
        if opened.max_frame_size < FRAME_SIZE_MIN:
            raise RemoteProtocolError(
                conditions.INVALID_FIELD, f"max-frame-size {opened.max_frame_size}, {FRAME_SIZE_MIN} is the least"
            )
        self.frame_size_out = min(opened.max_frame_size, self.settings.max_frame_size)
        if opened.idle_time_out:
            least_ms = self.settings.peer_idle_time_out_min_s * 1000
            if opened.idle_time_out < least_ms:
                raise RemoteProtocolError(
                    conditions.INVALID_FIELD, f"idle-time-out {opened.idle_time_out} ms, {least_ms:g} is the least"
                )
            self._idle_out_s = opened.idle_time_out / 2000
            self.deadline_sooner = True
        if self.server:
            self._send_open()
        events.append(Opened(opened))

    def _on_begin(self, channel: int, begin: Begin, events: list[ConnEvent]) -> None:
        if not self._takes_frames():
            return
        if channel > self.settings.channel_max:
            raise RemoteProtocolError(
                conditions.FRAMING_ERROR, f"channel {channel}, the highest here is {self.settings.channel_max}"
            )
        if channel in self._remote:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"a session is on channel {channel} already")
        if begin.remote_channel is None:
            if len(self._remote) >= self.settings.sessions_max:
                raise RemoteProtocolError(
                    conditions.RESOURCE_LIMIT_EXCEEDED, f"{self.settings.sessions_max} sessions are the most here"
                )
            local = 0
            while local in self._sessions:
                local += 1
            assert self.remote_open is not None
            if local > self.remote_open.channel_max:
                raise RemoteProtocolError(conditions.NOT_ALLOWED, "more sessions than the peer's own channel-max")
            session = SessionEndpoint(self, local)
            self._sessions[local] = session
            self._remote[channel] = session
            session.on_begin(begin, channel)
            self._send_begin(session, channel)
        else:
            answered = self._sessions.get(begin.remote_channel)
            if answered is None or answered.remote_channel is not None:
                raise RemoteProtocolError(
                    conditions.NOT_ALLOWED, f"begin answers channel {begin.remote_channel}, which asks nothing"
                )
            session = answered
            self._remote[channel] = session
            session.on_begin(begin, channel)
        if not session.end_sent:
            events.append(SessionBegun(session, begin.remote_channel is None))

    def _session_on(self, channel: int, what: str) -> SessionEndpoint | None:
        """The session that a frame is for; None if its frames are dropped now."""
        if not self._takes_frames():
            return None
        session = self._remote.get(channel)
        if session is None:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"{what} on channel {channel}, where no session is")
        return None if session.end_sent else session

    def _on_attach(self, channel: int, attach: Attach, events: list[ConnEvent]) -> None:
        session = self._session_on(channel, "attach")
        if session is not None:
            session.on_attach(attach, events)

    def _on_detach(self, channel: int, detach: Detach, events: list[ConnEvent]) -> None:
        session = self._session_on(channel, "detach")
        if session is not None:
            session.on_detach(detach, events)

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

    def _on_end(self, channel: int, end: End, events: list[ConnEvent]) -> None:
        if not self._takes_frames():
            return
        session = self._remote.pop(channel, None)
        if session is None:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"end on channel {channel}, where no session is")
        del self._sessions[session.channel]
        session.on_end(end, events)

    def _on_close(self, channel: int, close: Close, events: list[ConnEvent]) -> None:
        self._step(Step.R_CLOSE)
        self.usable = False
        if self.state is State.CLOSE_RCVD:
            self._send_close(None)
        self._finish_sessions(close.error, events)
        self.closed = True
        events.append(ConnectionClosed(close.error))

    # ------------------------------------------------------------------------------------------------- inside

    def _takes_frames(self) -> bool:
        """Whether session frames count; RemoteProtocolError before the peer's open."""
        self._step(Step.R_FRAME)
        return self.state is State.OPENED

    def _step(self, step: Step) -> None:
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            text = f"{step.value} in state {self.state.value}"
            if step.value.startswith("S"):
                raise LocalProtocolError(text)
            raise RemoteProtocolError(conditions.ILLEGAL_STATE, text)
        self.state = following

    def _send_open(self) -> None:
        self._step(Step.S_OPEN)
        mine = self.settings.open()
        refused = None if self.remote_open is None else self.settings.answer_open(self.remote_open, mine)
        self.output.append(frame(0, codec.encode(mine)))
        self.usable = True
        if refused is not None:
            self._send_close(refused)

    def _send_begin(self, session: Session, remote_channel: int | None) -> None:
        self.write(
            session.channel,
            Begin(
                remote_channel, session.outgoing.next_outgoing_id, session.window_in, OUTGOING_WINDOW,
                self.settings.handle_max,
            ),
        )  # fmt: skip

    def _send_close(self, error: Error | None) -> None:
        self._step(Step.S_CLOSE)
        self.usable = False
        self.write(0, Close(error))

    def _time_out(self, text: str, events: list[ConnEvent]) -> None:
        self._fail(Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text), events)

    def _fail(self, error: Error, events: list[ConnEvent]) -> None:
        """Close because of what the peer did, or did not do in time, or of a failure of ours. Before our open there is
        nothing to close: the transport ends, a login with its outcome (CLIENTS 4)."""
        if self._handshake.login is not None:
            self._progress(self._handshake.refuse(error.condition), events)
        else:
            if self.state is State.HDR_EXCH or self.state is State.OPEN_RCVD:
                self._send_open()
            if self.state in MAY_SPEAK:
                self.usable = False
                self.write(0, Close(error))
        self._lose(error, events)

    def _lose(self, error: Error | None, events: list[ConnEvent]) -> None:
        """The end without the peer's close."""
        if self.state is not State.END:
            self._step(Step.FAIL)
        self.usable = False
        self.closed = True
        self._finish_sessions(error, events)
        events.append(ConnectionClosed(None) if error is None else ProtocolFailed(error))

    def _finish_sessions(self, error: Error | None, events: list[ConnEvent]) -> None:
        for channel in sorted(self._sessions):
            self._sessions[channel].finish(error, events)
        self._sessions.clear()
        self._remote.clear()


_COSTS: Final[dict[type[Any], int]] = {Begin: BEGIN, End: BEGIN, Attach: ATTACH, Detach: ATTACH}
_STREAM: Final = frozenset((fast.TRANSFER, fast.DISPOSITION, fast.FLOW))
_HANDLERS: Final[dict[type[Any], Any]] = {
    Open: Connection._on_open, Begin: Connection._on_begin, Attach: Connection._on_attach,
    Detach: Connection._on_detach, End: Connection._on_end, Close: Connection._on_close,
}  # fmt: skip
