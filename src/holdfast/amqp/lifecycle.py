"""From open to close: a connection's states, its sessions by channel, and its end for a fault. AMQP 1.0 §2.4, §2.7.

Rules of this file: whole performatives; connection.py has the peer's bytes and the time. An error of the peer ends as
little as the specification allows: a link, a session, or the connection. States and their transitions are the table of
states.py.
"""

from typing import Any, Final

from holdfast.amqp.handshake import Handshake, Progress
from holdfast.amqp.links.faults import Fault
from holdfast.amqp.login.exchanges import Authenticate
from holdfast.amqp.session.bounds import Bounds
from holdfast.amqp.session.events import ConnectionClosed, ConnEvent, Opened, ProtocolFailed, SessionBegun
from holdfast.amqp.session.session import OUTGOING_WINDOW, Session
from holdfast.amqp.session.session_endpoint import SessionEndpoint
from holdfast.amqp.settings import Partials, Settings
from holdfast.amqp.states import CLOSING, MAY_SPEAK, TRANSITIONS, State, Step
from holdfast.amqp.weight import weight
from holdfast.amqp.wire import conditions, encoding
from holdfast.amqp.wire.frames import FRAME_SIZE_MIN, bounded, frame
from holdfast.amqp.wire.performatives import Attach, Begin, Close, Detach, End, Error, Open
from holdfast.errors import LocalProtocolError, RemoteProtocolError


class Lifecycle(Bounds):
    """A connection as its sessions use it, and as the peer's performatives change it."""

    def __init__(
        self,
        settings: Settings,
        *,
        server: bool,
        authenticate: Authenticate | None,
        now: float,
        partials: Partials | None,
    ) -> None:
        settings.validate()
        super().__init__(settings, now=now, partials=partials)
        self.server = server
        self.state = State.START
        self.output: list[bytes | memoryview] = []
        self.authenticated_user: str | None = None
        self.usable = False
        """Sessions may send frames."""
        self.frame_size_out = FRAME_SIZE_MIN  # the smaller of both sides' max-frame-size
        self._handshake = Handshake(settings, server=server, authenticate=authenticate)
        self._remote: dict[int, SessionEndpoint] = {}
        self._idle_out_s: float | None = None
        """Half of the peer's idle-time-out (§2.4.5): after this long without output we send an empty frame."""
        limit_s = settings.handshake_time_out_s
        self._handshake_ends = None if limit_s is None else now + limit_s
        self.deadline_sooner = False
        """`next_deadline` may have become earlier; everything else makes it later. A caller that caches it clears
        this."""
        self._login_output: list[bytes | memoryview] | None = None
        """The output of the login, while `output` must wait for the login's end; None if it need not wait."""
        if not server:
            first = self._handshake.start()
            if self._handshake.waits_for_login:
                self._login_output = [first]
            else:
                self.output.append(first)
            self.authenticated_user = self._handshake.user
            self._step(Step.S_HEADER)
            self._send_open()

    def certify(self, user: str | None) -> None:
        """At a server, before the peer's first bytes: the peer has presented the certificate of this user."""
        self._handshake.certified_user = user

    @property
    def login_hostname(self) -> str | None:
        """At a server, during a login: the host name that the client gives."""
        return self._handshake.login_hostname

    @property
    def login_mechanism(self) -> str | None:
        """At a server: the mechanism that the client chose, during a login and after it has failed."""
        return self._handshake.login_mechanism

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

    def force_end(self, channel: int, error: Error) -> list[ConnEvent]:
        """Ends the session on our channel without waiting for the peer, and drops the peer's later frames for it.
        Returns the events for the user. LocalProtocolError if no session uses the channel."""
        session = self._sessions.get(channel)
        if session is None or not session.usable:
            raise LocalProtocolError(f"channel {channel} has no session in use")
        events: list[ConnEvent] = []
        session.fault(error, events)
        return events

    def force_detach(self, channel: int, handle: int, error: Error) -> list[ConnEvent]:
        """As `force_end`, for the link with this handle (ours)."""
        session = self._sessions.get(channel)
        link = None if session is None else session.links.get(handle)
        if session is None or not session.usable or link is None or link.over or not link.attach_sent:
            raise LocalProtocolError(f"channel {channel} has no link in use with handle {handle}")
        events: list[ConnEvent] = []
        session.fault_link(link, error, events)
        return events

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

    @property
    def body_bytes_max(self) -> int:
        """The largest frame body that the peer accepts; before its open, the largest that we send then."""
        return (self.frame_size_out if self.remote_open is not None else self.settings.early_frame_size) - 8

    def write(self, channel: int, performative: Any) -> None:
        """Queues a performative. If it exceeds the peer's frame size, an error in it loses its text."""
        limit = self.body_bytes_max
        body = bounded(performative, limit)
        if len(body) > limit:
            raise LocalProtocolError(
                f"{type(performative).__name__} takes {len(body)} bytes, a frame of the peer's {limit}"
            )
        self.output.append(frame(channel, body))

    # -------------------------------------------------------------------------------------- the peer's performatives

    def _on_performative(self, channel: int, performative: object, events: list[ConnEvent]) -> None:
        """Handles all performatives but transfer, flow and disposition."""
        handler = _HANDLERS.get(type(performative))
        if handler is None:
            raise RemoteProtocolError(
                conditions.DECODE_ERROR, f"{type(performative).__name__} is not a performative of a connection"
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
            text = f"invalid value {opened.max_frame_size} for max-frame-size; expected at least {FRAME_SIZE_MIN}"
            raise RemoteProtocolError(conditions.INVALID_FIELD, text)
        self.frame_size_out = min(opened.max_frame_size, self.settings.max_frame_size)
        if opened.idle_time_out:
            least_ms = self.settings.peer_idle_time_out_min_s * 1000
            if opened.idle_time_out < least_ms:
                text = f"invalid value {opened.idle_time_out} for idle-time-out; expected at least {least_ms:g} ms"
                raise RemoteProtocolError(conditions.INVALID_FIELD, text)
            self._idle_out_s = opened.idle_time_out / 2000
            self.deadline_sooner = True
        if self.server:
            self._send_open()
        events.append(Opened(opened))

    def _on_begin(self, channel: int, begin: Begin, events: list[ConnEvent]) -> None:
        if not self._takes_frames():
            return
        if channel > self.settings.channel_max:
            text = f"invalid value {channel} for channel; expected 0 to {self.settings.channel_max}"
            raise RemoteProtocolError(conditions.FRAMING_ERROR, text)
        if channel in self._remote:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            if len(self._remote) >= self.settings.sessions_max:
                text = f"the connection has too many sessions; the limit is {self.settings.sessions_max} (sessions_max)"
                raise RemoteProtocolError(conditions.RESOURCE_LIMIT_EXCEEDED, text)
            local = 0
            while local in self._sessions:
                local += 1
            assert self.remote_open is not None
            if local > self.remote_open.channel_max:
                text = "the connection has more sessions than the peer's own channel-max allows"
                raise RemoteProtocolError(conditions.NOT_ALLOWED, text)
            session = SessionEndpoint(self, local)
            self._sessions[local] = session
            self._remote[channel] = session
            session.on_begin(begin, channel)
            self._send_begin(session, channel)
        else:
            answered = self._sessions.get(begin.remote_channel)
            if answered is None or answered.remote_channel is not None:
                text = f"begin answers channel {begin.remote_channel}, which did not ask for a session"
                raise RemoteProtocolError(conditions.NOT_ALLOWED, text)
            session = answered
            self._remote[channel] = session
            session.on_begin(begin, channel)
        if not session.end_sent:
            events.append(SessionBegun(session, begin.remote_channel is None))

    def _session_on(self, channel: int, what: str) -> SessionEndpoint | None:
        """The session that a frame is for; None if its frames are to be dropped."""
        if not self._takes_frames():
            return None
        session = self._remote.get(channel)
        if session is None:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"{what} came on channel {channel}, which has no session")
        return None if session.end_sent else session

    def _on_attach(self, channel: int, attach: Attach, events: list[ConnEvent]) -> None:
        session = self._session_on(channel, "attach")
        if session is not None:
            session.on_attach(attach, events)

    def _on_detach(self, channel: int, detach: Detach, events: list[ConnEvent]) -> None:
        session = self._session_on(channel, "detach")
        if session is not None:
            session.on_detach(detach, events)

    def _on_end(self, channel: int, end: End, events: list[ConnEvent]) -> None:
        if not self._takes_frames():
            return
        session = self._remote.pop(channel, None)
        if session is None:
            raise RemoteProtocolError(conditions.NOT_ALLOWED, f"end came on channel {channel}, which has no session")
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

    # -------------------------------------------------------------------------------------------------------- inside

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
        self.output.append(frame(0, encoding.encode(mine)))
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

    def _progress(self, progress: Progress, events: list[ConnEvent]) -> None:
        """Carries out what the handshake has decided."""
        if self._login_output is not None:
            if progress.output:
                self._login_output.append(progress.output)
            if not self._handshake.waits_for_login:  # the login is over: now all else
                self.output[:0] = self._login_output
                self._login_output = None
        elif progress.output:
            self.output.append(progress.output)
        for step in progress.steps:
            self._step(step)
        self.authenticated_user = self._handshake.user
        if progress.refusal is not None:
            self._lose(progress.refusal, events)

    def _answer(self, fault: Fault, events: list[ConnEvent]) -> None:
        """Ends the link, session or connection that the error concerns, and reports it to both sides."""
        session = self._sessions[fault.channel]
        if fault.link is None:
            session.fault(fault.error, events)
        else:
            session.fault_link(fault.link, fault.error, events)

    def _fail(self, error: Error, events: list[ConnEvent]) -> None:
        """Closes because of an error of the peer, a time-out, or a failure of ours. Before our open there is no
        connection to close: the transport is closed, and a login gets its outcome (CLIENTS 4)."""
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
        """Ends the connection without a close of the peer."""
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


_HANDLERS: Final[dict[type[Any], Any]] = {
    Open: Lifecycle._on_open, Begin: Lifecycle._on_begin, Attach: Lifecycle._on_attach,
    Detach: Lifecycle._on_detach, End: Lifecycle._on_end, Close: Lifecycle._on_close,
}  # fmt: skip
