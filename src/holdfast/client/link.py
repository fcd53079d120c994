"""What the client's links have in common: they are attached anew with each connection until they end.

Rules of this file: a link never reconnects anything by itself; the connection attaches it. Conditions in `PASSING`
are tried again, every other one is the node's last word.
"""

import asyncio
from random import Random
from typing import Final, Protocol

from holdfast.amqp import conditions
from holdfast.amqp.events import Delivery, DeliveryAborted, DeliveryPart, LinkDetached, Outcomes, ResumeAborted
from holdfast.amqp.link import Link as EngineLink
from holdfast.amqp.performatives import Error
from holdfast.amqp.session import Session
from holdfast.client.backoff import Outage
from holdfast.client.errors import ConnectionEnded, LinkError, LinkStolen
from holdfast.client.url import Url
from holdfast.errors import LocalProtocolError

PASSING: Final = frozenset(
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
"""How long the node may take to answer a detach."""
ADDRESS_SHOWN_MAX: Final = 401
"""Characters of an address in an error: two names of the longest kind, and what is between them."""


def shown(address: str) -> str:
    """`address` in quotes, as errors name it; cut where it is longer than any that a node takes."""
    return repr(address) if len(address) <= ADDRESS_SHOWN_MAX else f"{address[:ADDRESS_SHOWN_MAX]!r}…"


OVER: Final = object()
"""The context of a session that we ended, and not for the connection's end: one that a link had for itself, or that the
node began."""


class LinkConnection(Protocol):
    """What a link asks of its connection."""

    url: Url
    retry_s: float
    reconnects: int
    loop: asyncio.AbstractEventLoop
    rng: Random

    @property
    def name_bytes_max(self) -> int:
        """Of a link's name, in UTF-8."""

    @property
    def is_open(self) -> bool:
        """There is a connection at this moment."""

    @property
    def is_paused(self) -> bool:
        """The socket takes no more at the moment."""

    def acknowledged_bytes(self) -> int:
        """As of the wire."""

    def touch(self, link: "ClientLink") -> None:
        """`link.turn_ended` is called before the write that ends this turn."""

    def schedule(self) -> None:
        """This turn ends with a write."""

    def attach_again(self, link: "ClientLink") -> None:
        """After the node detached it: attach now, or with the next connection."""

    def note_abandoned(self, error: Exception) -> None:
        """A sender failed with messages in doubt."""

    def note_gain(self, link: "ClientLink") -> None:
        """Before the link forgets that it gained anything."""

    def forget(self, link: "ClientLink") -> None:
        """The link is over."""


class LinkOwner:
    """What a connection tells the context of an engine's link. Here nothing comes of it."""

    def attached(self, link: EngineLink) -> None:
        """The node answered the attach."""

    def detached(self, event: LinkDetached) -> None:
        """The node ended the link, or answered our detach."""

    def delivery(self, event: Delivery) -> None:
        """A message came."""

    def delivery_part(self, event: DeliveryPart) -> None:
        """A part of a message came; asked for with `stream_bytes` of the engine's link."""

    def delivery_aborted(self, event: DeliveryAborted) -> None:
        """The node gave up a message of which parts came."""

    def resume_aborted(self, event: ResumeAborted) -> None:
        """The node cannot go on with a delivery of an earlier link."""

    def outcomes(self, event: Outcomes) -> None:
        """The node decided about messages of ours."""

    def credit_changed(self, link: EngineLink) -> None:
        """The node wants more, or less."""

    def drained(self) -> None:
        """The node has used or given back all credit: what it sent before has come."""


NOBODY: Final = LinkOwner()
"""Of a link that we have ended, or that the node attached unasked: what comes of it means nothing to anybody."""


class ClientLink(LinkOwner):
    """Base of sender, receiver and management. `failure` is set once and for all."""

    def __init__(self, connection: LinkConnection, what: str, name: str) -> None:
        self.failure: Exception | None = None
        self._connection = connection
        self._what = what
        self._name = name
        self._loop = connection.loop
        self.outage = Outage(connection.rng)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._link: EngineLink | None = None
        self._closes = True
        """Its end is that of what the node keeps for it; else a later link of its name goes on with that."""

    # ------------------------------------------------------------------------- what the connection calls

    def attach_or_fail(self, session: Session) -> None:
        """Attaches on `session`. A link that cannot be attached there (its attach fits no frame of the node's, the
        session takes no more links) fails with a LinkError, alone.
        """
        try:
            name_bytes, limit = len(self._name.encode("utf-8", "surrogatepass")), self._connection.name_bytes_max
            if name_bytes > limit:  # the node's answer repeats the name, and the engine would end the connection for it
                raise LocalProtocolError(f"the link's name takes {name_bytes} bytes, accepted are {limit} at most")
            self.attach(session)
        except LocalProtocolError as error:
            self.fail(LinkError(f"{self._what}: cannot be attached: {error}", None))

    def attach(self, session: Session) -> None:
        """Attach on a new session; everything of the old one is gone. LocalProtocolError where it cannot be."""
        raise AssertionError("each kind of link attaches in its own way")

    def lost(self) -> None:
        """The connection is gone; `attach` follows, or `fail`."""
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
        """Asked for with `touch`; `paused` while the socket takes no more."""

    def fail(self, error: Exception) -> None:
        """The end: everyone who waits is told."""
        if self.failure is not None:
            return
        self.failure = error
        for link in self._engine_links():
            link.context = NOBODY
            link.detach(closed=self._closes)  # else the node would hold for it what it was sent, and what it asked for
        self._connection.schedule()
        self.lost()
        self._connection.forget(self)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # whoever waits sees it; nobody else is told that it was not looked at

    # ------------------------------------------------------------------------------------------- shared

    async def ready(self) -> None:
        """Returns once the node has answered the first attach; raises what ended the link before."""
        await asyncio.shield(self._ready)

    def touch(self) -> None:
        """`turn_ended` is called before this turn's write."""
        self._connection.touch(self)

    def is_over(self) -> bool:
        """It failed or was closed."""
        return self.failure is not None

    def check(self) -> None:
        """Raises what ended the link."""
        if self.failure is not None:
            raise self.failure

    def _detached_by_node(self, error: Error | None) -> None:
        condition = None if error is None else str(error.condition)
        if condition is None or condition in PASSING:
            now = self._loop.time()
            self._connection.note_gain(self)
            self.outage.failed(now)
            if self.outage.down_s(now) <= self._connection.retry_s:
                wait_s = self.outage.next_wait_s()
                self._retry = self._loop.call_later(wait_s, self._connection.attach_again, self)
                return
        self.fail(self._error(condition, None if error is None else error.description))

    def _error(self, condition: str | None, description: str | None) -> LinkError:
        text = f"{self._what}: the node ended the link: {description or condition or 'without a reason'}"
        if description and condition:
            text += f" ({condition})"
        kind = LinkStolen if condition == conditions.STOLEN else LinkError
        return kind(text, condition)

    def _engine_links(self) -> list[EngineLink]:
        """Those that are attached, or that the node has yet to answer."""
        return [] if self._link is None else [self._link]

    async def _detach(self, links: list[EngineLink]) -> None:
        """Detaches politely: waits for the node's answer, a limited time, then is gone for good, as when cancelled."""
        if self.failure is not None:
            return
        try:
            live = [link for link in links if not link.detached]
            if live:
                self._gone = self._loop.create_future()
                for link in live:
                    link.detach(closed=self._closes)
                self._connection.schedule()
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self._gone
        except TimeoutError:
            pass
        finally:
            self.fail(ConnectionEnded(f"{self._what}: closed"))
