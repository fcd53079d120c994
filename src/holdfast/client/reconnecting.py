"""One connection to a node, opened in one flight, and anew whenever it breaks, with all of its links.

Rules of this file: the only place that connects; what the links are for is not known here. Waiting between attempts
grows with jitter, and starts anew after a gain (backoff.py); after `retry_s` without one everything fails with one
error. No password is in any text.
Sources: AMQP 1.0 §2.4 (connections), §5.3 (SASL); silence of the peer is its loss (§2.4.5).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import conditions
from holdfast.amqp.connection import Connection as Engine
from holdfast.amqp.events import (
    ConnectionClosed,
    ConnEvent,
    CreditChanged,
    Delivery,
    DeliveryAborted,
    DeliveryPart,
    Drained,
    LinkAttached,
    LinkDetached,
    Opened,
    Outcomes,
    ProtocolFailed,
    ResumeAborted,
    SessionBegun,
    SessionEnded,
)
from holdfast.amqp.performatives import Error
from holdfast.amqp.session import Session
from holdfast.amqp.settings import Settings
from holdfast.amqp.types import Symbol
from holdfast.client.backoff import Outage, Telling
from holdfast.client.errors import AuthenticationFailed, ConnectionEnded, ConnectionFailed
from holdfast.client.link import ENDED_HERE, IGNORE, ClientLink
from holdfast.client.url import Url
from holdfast.client.wire import Wire, describe

if TYPE_CHECKING:
    import ssl

Dial = Callable[[str, int], Coroutine[Any, Any, socket.socket]]

log = logging.getLogger("holdfast.client")

CONNECT_LIMIT_S: Final = 5.0
"""One attempt to reach the node; a SYN that is lost is better sent anew than waited for."""
HANDLE_MAX: Final = 2**32 - 1
"""Of a node that has said nothing yet (§2.7.2)."""
CLOSE_LIMIT_S: Final = 5.0
SAID_NOTHING: Final = (
    " before it said anything; so does one that has no descriptors left or is about to end (see its log), "
    "and so does a port that speaks TLS: its URL begins with amqps://"
)


def _is_distrust(error: OSError) -> bool:
    """The node's certificate is not trusted: the next attempt would find the same."""
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)


class Reconnecting:
    """Base of the client's connection. `reconnects` counts connections after the first.

    Links outlive breaks of the transport: each is attached again on the next connection, until it or this ends.
    """

    def __init__(
        self,
        url: Url,
        *,
        retry_s: float,
        container_id: str,
        idle_time_out_s: float,
        tls: "ssl.SSLContext | None",
        rng: Random,
        dial: Dial | None,
    ) -> None:
        self.url = url
        self.retry_s = retry_s
        self.container_id = container_id
        self.reconnects = -1
        self.failure: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self.rng = rng
        self._tls = tls
        self._dial = dial
        self._settings = Settings(
            container_id=container_id,
            hostname=url.host,
            idle_time_out_s=idle_time_out_s,
            mechanism="ANONYMOUS" if url.user is None else "PLAIN",
            user=url.user,
            password=None if url.user is None else url.password or "",
        )
        self._settings.validate()
        self._links: dict[ClientLink, None] = {}
        self._dirty: dict[ClientLink, None] = {}
        self._wire: Wire | None = None
        self._session: Session | None = None
        self._handle_max = HANDLE_MAX
        """Of the node that was last spoken to, for the links that are attached before its begin."""
        self._is_open = False
        self._closing = False
        self._reason = ""
        self._final = False
        self._abandoned: Exception | None = None
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._outage = Outage(rng, since=self.loop.time())
        self._telling = Telling()
        self._running = self.loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.url}, {'open' if self._is_open else 'not open'}>"

    # ------------------------------------------------------------------------------------------ for users

    @property
    def is_open(self) -> bool:
        """There is a connection at this moment."""
        return self._is_open

    async def opened(self) -> None:
        """Returns once there was a first connection; raises ConnectionFailed."""
        await asyncio.shield(self._opened)

    async def abort(self) -> None:
        """Ends everything now; what is in doubt stays in doubt."""
        await self._end(polite=False)

    # ------------------------------------------------------------------------------------------ for links

    def touch(self, link: ClientLink) -> None:
        """`link.turn_ended` is called before the write that ends this turn."""
        if self._wire is not None:
            self._dirty[link] = None
            self._wire.schedule()

    def schedule(self) -> None:
        """This turn ends with a write."""
        if self._wire is not None:
            self._wire.schedule()

    @property
    def name_bytes_max(self) -> int:
        """Of a link's name, in UTF-8."""
        return self._settings.name_bytes_max

    @property
    def is_paused(self) -> bool:
        """The socket takes no more at the moment."""
        return self._wire is not None and self._wire.paused

    def acknowledged_bytes(self) -> int:
        """As of the wire; 0 without a connection."""
        return 0 if self._wire is None else self._wire.acknowledged_bytes()

    def attach_again(self, link: ClientLink) -> None:
        """After the node detached it: attach, if there is a connection; else the next one does."""
        session = self._session
        if session is not None and session.usable and link in self._links:
            link.attach_or_fail(session)
            self.schedule()

    def note_abandoned(self, error: Exception) -> None:
        """A sender failed with messages in doubt."""
        if not self._closing:
            self._abandoned = self._abandoned or error

    def note_gain(self, link: ClientLink) -> None:
        """Before the link forgets that it gained anything."""
        self._outage.gained |= link.outage.gained

    def forget(self, link: ClientLink) -> None:
        """The link is over."""
        self.note_gain(link)
        self._links.pop(link, None)
        self._dirty.pop(link, None)

    # ------------------------------------------------------------------------------------- for the wire

    def handle(self, wire: Wire, events: list[ConnEvent]) -> None:
        """What one read brought."""
        detached: list[LinkDetached] = []
        opened = False
        for event in events:
            if isinstance(event, Delivery):
                event.link.context.delivery(event)
            elif isinstance(event, DeliveryPart):
                event.link.context.delivery_part(event)
            elif isinstance(event, Outcomes):
                event.link.context.outcomes(event)
            elif isinstance(event, CreditChanged):
                event.link.context.credit_changed(event.link)
            elif isinstance(event, Drained):
                event.link.context.drained()
            elif isinstance(event, DeliveryAborted):
                event.link.context.delivery_aborted(event)
            elif isinstance(event, ResumeAborted):
                event.link.context.resume_aborted(event)
            elif isinstance(event, LinkAttached):
                self._link_attached(event)
            elif isinstance(event, SessionBegun):
                self._session_begun(event)
            elif isinstance(event, LinkDetached):
                detached.append(event)
            elif isinstance(event, Opened):
                self._settings = replace(self._settings, peer_frame_size=event.open.max_frame_size)
                opened = True
            elif isinstance(event, SessionEnded) and event.session.context is ENDED_HERE:
                pass
            elif isinstance(event, SessionEnded):
                self._ending(event.error, "the node ended the session")
                wire.engine.close()
            elif isinstance(event, ConnectionClosed):
                self._ending(event.error, "the node closed the connection")
            elif isinstance(event, ProtocolFailed):
                self._ending(event.error, "the connection failed")
        # A link that goes with its connection is attached again with the next; only a detach alone is meant.
        if not self._reason:
            for gone in detached:
                gone.link.context.detached(gone)
        if opened and not self._reason:  # a node that closes at once, for want of room, does so in one flight
            self._on_opened()

    def turn_ended(self, wire: Wire) -> None:
        """Every touched link sends what it has."""
        if wire is not self._wire or not self._dirty:
            return
        links = list(self._dirty)
        self._dirty.clear()
        for link in links:
            link.turn_ended(paused=wire.paused)

    def writing_resumed(self, wire: Wire) -> None:
        """What waited for the socket may go."""
        for link in self._links:
            self.touch(link)

    def wire_broken(self, wire: Wire, error: Exception) -> None:
        """Nothing is tried again after a defect: it would only come back."""
        if wire is self._wire and self.failure is None:
            self._fail(error)

    def wire_lost(self, wire: Wire, reason: str) -> None:
        """The transport is gone."""
        if wire is not self._wire:
            return
        self._reason = self._reason or (reason if wire.heard or self._tls is not None else reason + SAID_NOTHING)
        self._wire = self._session = None
        self._is_open = False
        self._dirty.clear()
        for link in list(self._links):
            self.note_gain(link)
            link.outage.interrupted(self.loop.time())
            link.lost()

    # ---------------------------------------------------------------------------------------- internals

    def _fresh_name(self) -> str:
        """A link's name, unique enough beside the container id; from `rng`, so that a run can be repeated."""
        return f"{self.container_id}-{self.rng.getrandbits(32):08x}"

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closing:
            raise ConnectionEnded(f"{self.url}: closed")

    def _add(self, link: ClientLink) -> None:
        self._links[link] = None
        self.attach_again(link)
        link.check()

    async def _ready(self, link: ClientLink) -> None:
        try:
            await link.ready()
        except BaseException:
            if link.failure is None:
                link.fail(ConnectionEnded(f"{self.url}: given up before the node answered"))
            raise

    @staticmethod
    def _session_begun(event: SessionBegun) -> None:
        if event.remote_initiated:
            event.session.context = ENDED_HERE
            event.session.end(Error(Symbol(conditions.NOT_ALLOWED), "a client takes no sessions"))

    @staticmethod
    def _link_attached(event: LinkAttached) -> None:
        link = event.link
        if event.remote_initiated:
            link.context = IGNORE
            link.refuse(conditions.NOT_ALLOWED, "a client takes no links")
        elif not link.refused:
            link.context.attached(link)

    def _on_opened(self) -> None:
        self._is_open = True
        self.reconnects += 1
        self._outage.up(self.loop.time())
        if self.reconnects:
            log.info("connected to %s again", self.url)
        if not self._opened.done():
            self._opened.set_result(None)

    def _ending(self, error: Error | None, what: str) -> None:
        if self._reason:
            return
        self._reason = what
        if self._session is not None:
            self._handle_max = self._session.handle_max_out
            self._session = None  # links that are made from now on wait for the next one
        if error is not None:
            self._reason = f"{error.description} ({error.condition})" if error.description else f"{error.condition}"
            self._final = not self._is_open and error.condition == conditions.UNAUTHORIZED_ACCESS
            if self._final and error.description:
                self._reason = error.description

    def _new_wire(self) -> Wire:
        engine = Engine(self._settings, server=False, now=self.loop.time())
        wire = Wire(engine, self, self.loop)
        self._wire = wire
        self._session = session = engine.begin()
        session.handle_max_out = self._handle_max
        for link in list(self._links):
            link.attach_or_fail(session)
        return wire

    async def _run(self) -> None:
        try:
            await self._keep_connected()
        except Exception as error:  # a defect: nobody looks at this task, and whoever waits would wait for ever
            self._fail(error)

    async def _keep_connected(self) -> None:
        while True:  # until `_end` cancels it
            self._reason = ""
            await self._connect_once()
            if self._final:
                wants = "" if self.url.user else "this node wants a user and a password, as in amqp://user@host: "
                self._fail(AuthenticationFailed(f"{self.url}: {wants}{self._reason}"))
                return
            if self._is_over():
                return
            outage, now = self._outage, self.loop.time()
            outage.failed(now)
            down_s = outage.down_s(now)
            if down_s >= self.retry_s:
                what = "cannot connect" if down_s < 1 else f"no connection for {down_s:.0f} s"
                if outage.flapped:
                    what = f"every connection ended at once, for {down_s:.0f} s"
                self._fail(ConnectionFailed(f"{self.url}: {what}: {self._reason}"))
                return
            if self._telling.is_due(self._reason, now):
                log.warning("%s: %s; trying again for %g s", self.url, self._reason, round(self.retry_s - down_s, 1))
            await asyncio.sleep(min(outage.next_wait_s(), self.retry_s - down_s))

    async def _connect_once(self) -> None:
        """One connection from its start to its end."""
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                wire = await self._reached()
        except OSError as error:  # also a time-out, a name that is not found, a certificate that is not trusted
            if self._wire is not None:
                self.wire_lost(self._wire, describe(error))
            self._reason = describe(error)
            self._final = False
            if self._tls is not None and _is_distrust(error):
                self._fail(ConnectionFailed(f"{self.url}: cannot connect: {self._reason}"))
            return
        await wire.lost

    async def _reached(self) -> Wire:
        url = self.url
        if self._dial is None:
            _, wire = await self.loop.create_connection(self._new_wire, url.host, url.port)
            return wire
        own = await self._dial(url.host, url.port)
        try:
            server = url.host if self._tls else None
            _, wire = await self.loop.create_connection(self._new_wire, sock=own, ssl=self._tls, server_hostname=server)
            return wire
        except BaseException:
            own.close()
            raise

    def _is_over(self) -> bool:
        return self._closing or self.failure is not None

    def _fail(self, error: Exception) -> None:
        self.failure = error
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()
        for link in list(self._links):
            link.fail(error)

    async def _end(self, *, polite: bool) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            await self._leave(polite=polite)
        finally:  # also where it is cancelled: no link, and no spool of one, outlives its connection
            if self._wire is not None:
                self._wire.abort("closed")
                self.wire_lost(self._wire, "closed")
            self._running.cancel()
            self._fail(self.failure or ConnectionEnded(f"{self.url}: closed"))

    async def _leave(self, *, polite: bool) -> None:
        wire = self._wire
        if wire is not None:
            wire.engine.close()
            wire.schedule()
            if polite:
                try:
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        await asyncio.shield(wire.lost)
                except TimeoutError:
                    pass
            wire.abort("closed")
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
