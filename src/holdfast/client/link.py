"""The base of the client's links: a link is attached again on each new connection until it ends. AMQP 1.0 §2.6.

Rules of this file: a link does not attach itself, its connection does. It knows the connection only as a `LinkHost`,
whose attributes it does not set. After a detach with a condition in `TRANSIENT` the link is attached again; any other
condition ends it.
"""

import asyncio
from random import Random
from typing import Final, Protocol

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.session.events import (
    Delivery,
    DeliveryAborted,
    DeliveryPart,
    LinkDetached,
    Outcomes,
    ResumeAborted,
)
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.client.errors import ConnectionEnded, LinkError, LinkStolen
from holdfast.client.network.backoff import Outage
from holdfast.client.network.url import Url
from holdfast.errors import LocalProtocolError
from holdfast.units import written

TRANSIENT: Final = frozenset(
    (
        conditions.CONNECTION_FORCED,
        conditions.DETACH_FORCED,
        conditions.INTERNAL_ERROR,
        conditions.RESOURCE_LIMIT_EXCEEDED,
        conditions.HANDLE_IN_USE,
        conditions.ERRANT_LINK,
        conditions.UNATTACHED_HANDLE,
        conditions.WINDOW_VIOLATION,
    )
)
CLOSE_LIMIT_S: Final = 5.0
"""Time limit for the node's answer to a detach."""
ADDRESS_SHOWN_MAX: Final = 401
"""Characters of an address that an error shows: two names of the greatest length, and the separator."""


def shown(address: str) -> str:
    """`address` in quotes for an error's text; truncated where it is longer than any valid address."""
    return repr(address) if len(address) <= ADDRESS_SHOWN_MAX else f"{address[:ADDRESS_SHOWN_MAX]!r}…"


ENDED_HERE: Final = object()
"""The context of a session that this side ended while the connection goes on: a link's own session, or one that the
node began."""


class LinkHost(Protocol):
    """What a link needs of its connection."""

    @property
    def url(self) -> Url:
        """Where the node listens."""

    @property
    def retry_s(self) -> float:
        """Seconds without progress after which a link gives up."""

    @property
    def reconnects(self) -> int:
        """Connections after the first."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection and of all its links."""

    @property
    def rng(self) -> Random:
        """For the jitter of waits."""

    @property
    def name_bytes_max(self) -> int:
        """Most bytes of a link's name, in UTF-8."""

    @property
    def is_open(self) -> bool:
        """There is a connection at this moment."""

    @property
    def is_paused(self) -> bool:
        """The socket takes no more at the moment."""

    def acknowledged_bytes(self) -> int:
        """See `Wire.acknowledged_bytes`; 0 without a connection."""

    def touch(self, link: "ClientLink") -> None:
        """Schedules the write that ends this turn of the loop; `link.turn_ended` is called before it."""

    def schedule(self) -> None:
        """Schedules a write at the end of this turn of the loop."""

    def attach_again(self, link: "ClientLink") -> None:
        """Attaches a link that was detached: now, or else on the next connection."""

    def note_abandoned(self, error: Exception) -> None:
        """A sender failed with messages in doubt; `close` of the connection raises `error`."""

    def note_refused(self, reason: str, left_s: float) -> None:
        """A link could not be attached, for a reason that may pass: it is tried again for `left_s` seconds."""

    def note_gain(self, link: "ClientLink") -> None:
        """Counts the link's progress as progress of the connection; called before the link resets it."""

    def forget(self, link: "ClientLink") -> None:
        """The link has ended and is not attached again."""


class LinkHandler:
    """The context of an engine's link: what a connection calls with the link's events. Here each does nothing."""

    def attached(self, link: EngineLink) -> None:
        """The node answered the attach."""

    def detached(self, event: LinkDetached) -> None:
        """The node detached the link, or answered our detach."""

    def delivery(self, event: Delivery) -> None:
        """A message arrived."""

    def delivery_part(self, event: DeliveryPart) -> None:
        """A part of a message arrived; requested with `stream_bytes` of the engine's link."""

    def delivery_aborted(self, event: DeliveryAborted) -> None:
        """The node aborted a message of which parts had arrived."""

    def resume_aborted(self, event: ResumeAborted) -> None:
        """The node cannot resume a delivery of an earlier link."""

    def outcomes(self, event: Outcomes) -> None:
        """The node decided the outcome of messages that we sent."""

    def credit_changed(self, link: EngineLink) -> None:
        """The node changed the link's credit."""

    def drained(self) -> None:
        """The node has used or returned all credit; all that it sent before has arrived."""


IGNORE: Final = LinkHandler()
"""The context of a link that we ended, or that the node attached without being asked: its events are ignored."""


class ClientLink(LinkHandler):
    """Base of sender, receiver and management links. `failure` is set once, at the end."""

    def __init__(self, connection: LinkHost, what: str, name: str) -> None:
        """`what`: the link as its errors name it; `name`: the AMQP link name."""
        self.failure: Exception | None = None
        """What ended the link; None while it lives."""
        self._connection = connection
        self._what = what
        self._name = name
        self._loop = connection.loop
        self.outage = Outage(connection.rng)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closes = True
        """It ends with a closing detach: the node drops the terminus. False keeps it for a later link of that name."""

    # ------------------------------------------------------------------------- what the connection calls

    def attach_or_fail(self, session: Session) -> None:
        """Attaches on `session`. A link that cannot be attached there (its attach is larger than the node's frames, the
        session has no free handle) fails with a LinkError; no other link is affected.
        """
        try:
            name_bytes, limit = len(self._name.encode("utf-8", "surrogatepass")), self._connection.name_bytes_max
            if name_bytes > limit:  # the node's answer repeats the name, and the engine would end the connection for it
                raise LocalProtocolError(f"the link's name has {name_bytes} bytes; the limit is {limit}")
            self.attach(session)
        except LocalProtocolError as error:
            self.fail(LinkError(f"{self._what}: cannot be attached: {error}", None))

    def attach(self, session: Session) -> None:
        """Attaches on a new session; all state of the old one is gone. Raises LocalProtocolError where it cannot."""
        raise AssertionError("each kind of link attaches in its own way")

    def lost(self) -> None:
        """The connection is gone; `attach` or `fail` follows."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def attached(self, link: EngineLink) -> None:
        self.outage.up(self._loop.time())
        if not self._ready.done():
            self._ready.set_result(None)

    def detached(self, event: LinkDetached) -> None:
        if self._gone is not None:
            if not self._gone.done():
                self._gone.set_result(None)
            return
        self._detached_by_node(event.error)

    def turn_ended(self, *, paused: bool) -> None:
        """Called once after `touch`, before the turn's write; `paused` while the socket accepts no more."""

    def fail(self, error: Exception) -> None:
        """Ends the link; whoever waits for it gets `error`."""
        if self.failure is not None:
            return
        self.failure = error
        for link in self._engine_links():
            link.context = IGNORE
            link.detach(closed=self._closes)  # else the node keeps its deliveries and its credit
        self._connection.schedule()
        self.lost()
        self._connection.forget(self)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as retrieved: asyncio logs nothing where nobody waits

    # ------------------------------------------------------------------------------------------- shared

    async def ready(self) -> None:
        """Waits until the node has answered the first attach; raises what ended the link before that."""
        await asyncio.shield(self._ready)

    def touch(self) -> None:
        """Has `turn_ended` called before this turn's write."""
        self._connection.touch(self)

    def is_over(self) -> bool:
        """Whether the link failed or was closed."""
        return self.failure is not None

    def check(self) -> None:
        """Raises what ended the link."""
        if self.failure is not None:
            raise self.failure

    def _detached_by_node(self, error: Error | None) -> None:
        condition = None if error is None else str(error.condition)
        down_s = 0.0
        if condition is None or condition in TRANSIENT:
            now = self._loop.time()
            self._connection.note_gain(self)
            self.outage.failed(now)
            down_s = self.outage.down_s(now)
            left_s = self._connection.retry_s - down_s
            if left_s > 0 or (not down_s and self._ready.done()):  # one that was there is attached once again at least
                wait_s = self.outage.next_wait_s()
                if error is not None and not self._ready.done():
                    self._connection.note_refused(str(self._error(condition, error.description)), left_s)
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                self._retry = self._loop.call_later(wait_s, self._connection.attach_again, self)
                return
        self.fail(self._error(condition, None if error is None else error.description, down_s))

    def _error(self, condition: str | None, description: str | None, tried_s: float = 0.0) -> LinkError:
        text = f"{self._what}: the node ended the link: {description or condition or 'without a reason'}"
        if description and condition:
            text += f" ({condition})"
        if tried_s:
            text += f"; given up after {written(round(tried_s, 1))} s"
        kind = LinkStolen if condition == conditions.STOLEN else LinkError
        return kind(text, condition)

    def _engine_links(self) -> list[EngineLink]:
        """The engine's links that are attached, or whose attach the node has yet to answer."""
        raise AssertionError("each kind of link has its own")

    async def _detach(self) -> None:
        """Detaches, and waits at most CLOSE_LIMIT_S for the answer, for which others may wait too; then, or if
        cancelled, the link has ended."""
        if self.failure is not None:
            return
        try:
            live = [link for link in self._engine_links() if not link.detached]
            if self._gone is None and live:
                self._gone = self._loop.create_future()
                for link in live:
                    link.detach(closed=self._closes)
                self._connection.schedule()
            if self._gone is not None:
                await asyncio.wait([self._gone], timeout=CLOSE_LIMIT_S)
        finally:
            self.fail(ConnectionEnded(f"{self._what}: closed"))
