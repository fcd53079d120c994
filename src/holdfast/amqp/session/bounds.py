"""What a connection counts of its peer: memory for what it declared, unfinished deliveries, and work.

Rules of this file: it only counts and refuses; the bounds are in Settings. Messages are not counted here, because
credit and windows bound them.
"""

import sys
from collections.abc import Callable
from typing import Final

from holdfast.amqp.effort import TAKEN, Effort, Throttled
from holdfast.amqp.session.events import ConnEvent
from holdfast.amqp.session.session import Session
from holdfast.amqp.session.session_endpoint import SessionEndpoint
from holdfast.amqp.settings import PARTIALS_BYTES_MAX, Partials, Settings
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Open
from holdfast.errors import RemoteProtocolError

SESSION_BYTES: Final = 2 * 1024
SENT_BYTES: Final = 256
RECEIVED_BYTES: Final = 128
"""Estimated memory of a session, of a delivery that the peer has not settled, and of one that we have not settled."""

EVENTS_MAX: Final = 32
"""Of a peer whose work is counted: how many events may be collected before they are handled, so that their work counts
(`Bounds.tell`)."""
ALONE_BYTES: Final = 512
"""The events of a frame, or of a run of frames, of at least this size are handled before later bytes are parsed."""


class Bounds:
    """`terms_bytes`: memory for the peer's open and attaches, as amqp/weight.py estimates it. `partial_bytes`: payload
    of deliveries whose last frame has not arrived, of all links together. `remote_open`: the peer's open, with its
    limits."""

    def __init__(self, settings: Settings, *, now: float, partials: Partials | None) -> None:
        self.settings = settings
        self.closed = False
        """Closed, or failed: write the output, then the transport may be closed."""
        self.remote_open: Open | None = None
        self.terms_bytes = 0
        self.partial_bytes = 0
        self.partials = partials or Partials(PARTIALS_BYTES_MAX)
        self.links = 0
        """The number of attached links, of all sessions."""
        self._rest = bytearray()
        """Received bytes of an incomplete frame, or that wait to be parsed."""
        self._sessions: dict[int, SessionEndpoint] = {}
        self.resumes_at: float | None = None
        """When the waiting bytes may be parsed (`resume`), because the peer asked for too much work. None: nothing
        waits."""
        counted = settings.effort_per_s > 0
        self._effort = Effort(settings.effort_per_s, settings.effort_burst, now) if counted else None
        self.tell: Callable[[list[ConnEvent]], None] | None = None
        """Called with events before `receive` returns, so that their work counts before more bytes are parsed. What it
        raises goes to the caller."""

    @property
    def held_bytes(self) -> int:
        """Estimated memory that is held for the peer, in bytes, without its output."""
        held = len(self._rest) + self.terms_bytes + self.partial_bytes
        for session in self._sessions.values():
            held += len(session.unsettled_out) * SENT_BYTES + len(session.unsettled_in) * RECEIVED_BYTES
            held += SESSION_BYTES + session.backlog_bytes
        return held

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have not ended, by channel."""
        return [self._sessions[channel] for channel in sorted(self._sessions)]

    @property
    def session_count(self) -> int:
        """The number of sessions, including those that are ending."""
        return len(self._sessions)

    @property
    def channels(self) -> int:
        """The number of channels that both sides' channel-max allow; before the peer's open, our own."""
        remote_max = 65535 if self.remote_open is None else self.remote_open.channel_max
        return min(self.settings.channel_max, remote_max) + 1

    def charge(self, units: int) -> None:
        """Count work that the peer makes for us (amqp/effort.py)."""
        if self._effort is not None:
            self._effort.charge(units)

    @property
    def is_counted(self) -> bool:
        """Whether work is counted, so that what is beyond a turn's share waits."""
        return self._effort is not None

    def spend(self, units: int, again: bytes = b"") -> None:
        """As `charge`, as the last action for a frame: raises Throttled if the bytes after it have to wait. `again`: a
        frame with the rest of this one, which used up the turn's share."""
        effort = self._effort
        if effort is not None:
            effort.charge(units)
            if again:
                effort.turn_left = min(0, effort.turn_left)
            if effort.exhausted:
                raise Throttled(again)

    def charge_late(self, units: int, now: float) -> None:
        """As `charge`, for work that a frame causes only later: the peer's next frames may have to wait."""
        effort = self._effort
        if effort is not None:
            effort.charge(units)
            if effort.exhausted:
                self.resumes_at = effort.resumes_at(now)

    @property
    def told_after(self) -> tuple[int, int]:
        """After a frame, or a run, of so many bytes, or after so many events, `tell_some` must be called."""
        return (ALONE_BYTES, EVENTS_MAX) if self.tell is not None and self.is_counted else (sys.maxsize, sys.maxsize)

    def tell_some(self, events: list[ConnEvent]) -> bool:
        """Hands the events so far to the user; raises Throttled if their work used up the effort. True: this ended the
        connection."""
        assert self.tell is not None
        some = events[:]
        events.clear()
        self.tell(some)
        if not self.closed:
            self.spend(0)
        return self.closed

    def took(self, units: int) -> None:
        """Counts the work of a message or its outcome in this turn; apart from that, credit bounds messages."""
        if self._effort is not None:
            self._effort.taken_left -= units

    @property
    def is_spent(self) -> bool:
        """Whether messages used up the peer's share of the turn: further ones wait for the next turn."""
        return self._effort is not None and self._effort.taken_left <= 0

    def renew(self, now: float) -> None:
        """A turn begins. Work for the peer from an earlier turn goes first, then the bytes that wait."""
        if self._effort is not None:
            self._effort.renew(now)

    def wait(self, now: float) -> None:
        """The peer's next bytes wait for the next turn."""
        if self._effort is not None and self.resumes_at is None:
            self.resumes_at = self._effort.resumes_at(now)

    @property
    def effort_used(self) -> int:
        """The work that the peer caused in this turn."""
        return 0 if self._effort is None else self._effort.used + TAKEN - self._effort.taken_left

    def keep(self, held_bytes: int) -> None:
        """Counts memory for what the peer declared; RemoteProtocolError past the bound. Negative: it was freed."""
        self.terms_bytes += held_bytes
        if held_bytes > 0 and self.terms_bytes > self.settings.terms_bytes_max:
            raise RemoteProtocolError(
                conditions.RESOURCE_LIMIT_EXCEEDED,
                f"the terms of all links are too large; the limit is {self.settings.terms_bytes_max} bytes together "
                "(terms_bytes_max)",
            )

    def count_links(self, change: int) -> None:
        """Counts links that were attached, or, if negative, that ended."""
        self.links += change

    def hold_part(self, payload_bytes: int, held_bytes: int, bounded: bool) -> bool:
        """Counts a frame of an unfinished delivery, with the bytes of its state in `held_bytes`. False if it is
        `bounded` and exceeds the connection's bound; then nothing is counted."""
        if bounded and self.partial_bytes + held_bytes > self.settings.partial_bytes_max:
            return False
        self.partial_bytes += held_bytes
        self.partials.held += payload_bytes
        return True

    def release_parts(self, payload_bytes: int, held_bytes: int) -> None:
        """The opposite of `hold_part`, for parts that were handed on or dropped."""
        self.partial_bytes -= held_bytes
        self.partials.held -= payload_bytes

    def check_name(self, what: str, name: str) -> None:
        """RemoteProtocolError for a name that is too long."""
        limit = self.settings.name_bytes_max
        if len(name) > limit or len(name.encode()) > limit:
            text = f"{what} is too long; the limit is {limit} bytes (name_bytes_max)"
            raise RemoteProtocolError(conditions.INVALID_FIELD, text)
