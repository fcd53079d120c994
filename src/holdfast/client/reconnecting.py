"""One connection to a node, opened in one flight, and opened again whenever it breaks, with all of its links.

Rules of this file: only here is a connection opened again; what its links are for is not known here. The waits between
attempts grow with jitter, and are short again after progress (client/network/backoff.py); after `retry_s` seconds
without progress the connection and all links fail with one error. No text contains a password. Sources: AMQP 1.0 §2.4
(connections), §5.3 (SASL); a peer that sends nothing for the idle time-out is lost (§2.4.5).
"""

import asyncio
import logging
import secrets
from dataclasses import replace
from random import Random
from typing import Final

from holdfast.amqp.connection import Connection as Engine
from holdfast.amqp.login.mechanisms import EXTERNAL, MECHANISMS, mechanisms_for
from holdfast.amqp.session.events import (
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
from holdfast.amqp.session.session import Session
from holdfast.amqp.settings import Settings
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.client.errors import AuthenticationFailed, ConnectionEnded, ConnectionFailed
from holdfast.client.link import ENDED_HERE, IGNORE, ClientLink
from holdfast.client.network.backoff import LogThrottle, Outage
from holdfast.client.network.tls import Tls
from holdfast.client.network.transport import Dial, is_untrusted, open_wire
from holdfast.client.network.url import Url
from holdfast.client.network.wire import Wire, describe

log = logging.getLogger("holdfast.client")

HANDLE_MAX: Final = 2**32 - 1
"""The handle-max of a node that has not answered yet (§2.7.2)."""
NO_HOST: Final = (conditions.NOT_FOUND, conditions.NOT_ALLOWED)
"""The conditions with which a node closes a connection to a virtual host that does not exist, or not for that user."""

NONCE_BYTES: Final = 18
"""Of random bytes, for a login that needs some."""
CLOSE_LIMIT_S: Final = 5.0
"""Time limit for the node's answer to a close."""
SAID_NOTHING: Final = (
    " before it said anything; so does one that has no descriptors left or is about to end (see its log), "
    "and so does a port that speaks TLS: its URL begins with amqps://"
)


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
        tls: Tls | None,
        mechanism: str | None,
        rng: Random,
        dial: Dial | None,
    ) -> None:
        self.url = url
        """Where the node listens."""
        self.retry_s = retry_s
        self.container_id = container_id
        """The AMQP container-id of this side."""
        self.node = ""
        """The container-id of the other side, of a Holdfast node its name; empty before the first connection."""
        self.reconnects = -1
        """Connections after the first one; -1 before it."""
        self.failure: Exception | None = None
        """What ended the connection; None while it lives."""
        self.loop = asyncio.get_running_loop()
        self.rng = rng
        self._tls = tls
        self._mechanism = mechanism
        self._dial = dial
        self._settings = Settings(
            container_id=container_id,
            hostname=url.hostname,
            idle_time_out_s=idle_time_out_s,
            user=url.user,
            password=None if url.user is None else url.password or "",
        )
        self._with_login(local=True).validate()
        self._links: dict[ClientLink, None] = {}
        self._dirty: dict[ClientLink, None] = {}
        self._wire: Wire | None = None
        self._session: Session | None = None
        self._handle_max = HANDLE_MAX
        """The last node's, for links that are attached before the begin of the next one arrives."""
        self._is_open = False
        self._closing = False
        self._reason = ""
        self._final = False
        self._is_no_host = False
        self._abandoned: Exception | None = None
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._outage = Outage(rng, since=self.loop.time())
        self._log_throttle = LogThrottle()
        self._running = self.loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.url}, {'open' if self._is_open else 'not open'}>"

    # ------------------------------------------------------------------------------------------ for users

    @property
    def is_open(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._is_open

    async def opened(self) -> None:
        """Returns once there was a first connection; raises ConnectionFailed."""
        await asyncio.shield(self._opened)

    async def abort(self) -> None:
        """Ends the connection and all links at once; messages in doubt stay in doubt."""
        await self._end(polite=False)

    # ------------------------------------------------------------------------------------------ for links

    def touch(self, link: ClientLink) -> None:
        """Schedules the write that ends this turn of the loop; `link.turn_ended` is called before it."""
        if self._wire is not None:
            self._dirty[link] = None
            self._wire.schedule()

    def schedule(self) -> None:
        """Schedules a write at the end of this turn of the loop."""
        if self._wire is not None:
            self._wire.schedule()

    @property
    def name_bytes_max(self) -> int:
        """Most bytes of a link's name, in UTF-8."""
        return self._settings.name_bytes_max

    @property
    def is_paused(self) -> bool:
        """The socket accepts no more output at the moment."""
        return self._wire is not None and self._wire.paused

    def acknowledged_bytes(self) -> int:
        """See `Wire.acknowledged_bytes`; 0 without a connection."""
        return 0 if self._wire is None else self._wire.acknowledged_bytes()

    def attach_again(self, link: ClientLink) -> None:
        """Attaches a link that was detached: now, or else on the next connection."""
        session = self._session
        if session is not None and session.usable and link in self._links:
            link.attach_or_fail(session)
            self.schedule()

    def note_abandoned(self, error: Exception) -> None:
        """A sender failed with messages in doubt; `close` raises `error`."""
        if not self._closing:
            self._abandoned = self._abandoned or error

    def note_refused(self, reason: str, left_s: float) -> None:
        """Logs why a link is not attached yet."""
        if self._log_throttle.is_due(reason, self.loop.time()):
            log.warning("%s: %s; trying again for %g s", self.url, reason, round(left_s, 1))

    def note_gain(self, link: ClientLink) -> None:
        """Counts the link's progress as progress of the connection; called before the link resets it."""
        self._outage.gained |= link.outage.gained

    def forget(self, link: ClientLink) -> None:
        """The link has ended and is not attached again."""
        self.note_gain(link)
        self._links.pop(link, None)
        self._dirty.pop(link, None)

    # ------------------------------------------------------------------------------------- for the wire

    def handle(self, wire: Wire, events: list[ConnEvent]) -> None:
        """Handles the events of one read: those of a link go to its context."""
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
                self.node = str(event.open.container_id)
                opened = True
            elif isinstance(event, SessionEnded) and event.session.context is ENDED_HERE:
                pass
            elif isinstance(event, SessionEnded):
                self._ending(wire, event.error, "the node ended the session")
                wire.engine.close()
            elif isinstance(event, ConnectionClosed):
                self._ending(wire, event.error, "the node closed the connection")
            elif isinstance(event, ProtocolFailed):
                self._ending(wire, event.error, "the connection failed")
        # A link that ends with its connection is attached again on the next one; only a detach by itself counts.
        if not self._reason:
            for gone in detached:
                gone.link.context.detached(gone)
        if opened and not self._reason:  # a node without room for a connection opens and closes it in one flight
            self._on_opened()

    def turn_ended(self, wire: Wire) -> None:
        """Every touched link writes what it has to send."""
        if wire is not self._wire or not self._dirty:
            return
        links = list(self._dirty)
        self._dirty.clear()
        for link in links:
            link.turn_ended(paused=wire.paused)

    def writing_resumed(self, wire: Wire) -> None:
        """The socket accepts output again: every link goes on."""
        for link in self._links:
            self.touch(link)

    def wire_broken(self, wire: Wire, error: Exception) -> None:
        """A defect: the connection fails at once, since another attempt would meet it again."""
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

    def _ending(self, wire: Wire, error: Error | None, what: str) -> None:
        if self._reason:
            return
        self._reason = what
        if self._session is not None:
            self._handle_max = self._session.handle_max_out
            self._session = None  # links that are made from now on wait for the next one
        if error is not None:
            self._reason = f"{error.description} ({error.condition})" if error.description else f"{error.condition}"
            # after the node's open it is no refused login: the user was logged out just then, and may log in again
            self._final = wire.engine.remote_open is None and error.condition == conditions.UNAUTHORIZED_ACCESS
            # there is no such virtual host, or not for this user: neither comes by trying again
            self._is_no_host = self.url.vhost is not None and error.condition in NO_HOST
            self._final |= self._is_no_host
            if self._final and error.description:
                self._reason = error.description

    def _with_login(self, *, local: bool) -> Settings:
        """The settings of one connection. `local`: what is said on it stays on this machine."""
        if self._mechanism is not None:
            wanted: tuple[str, ...] = (self._mechanism,)
        else:
            certified = self._tls is not None and self._tls.identified
            exposed = self._tls is None and not local
            wanted = mechanisms_for(self.url.user, certified=certified, exposed=exposed, plain_allowed=False)
        at_once = all(MECHANISMS[name].at_once for name in wanted)
        nonce = "" if at_once else secrets.token_urlsafe(NONCE_BYTES)
        return replace(self._settings, mechanism=wanted, nonce=nonce)

    def _new_wire(self, local: bool) -> Wire:
        engine = Engine(self._with_login(local=local), server=False, now=self.loop.time())
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
        except Exception as error:  # a defect: nobody awaits this task, and whoever waits for a link would never return
            self._fail(error)

    async def _keep_connected(self) -> None:
        while True:  # until `_end` cancels it
            self._reason = ""
            await self._connect_once()
            if self._is_no_host:
                self._fail(ConnectionFailed(f"{self.url}: {self._reason}"))
                return
            if self._final:
                self._fail(AuthenticationFailed(f"{self.url}: {self._wanted_login()}{self._reason}"))
                return
            if self._is_over():
                return
            outage, now = self._outage, self.loop.time()
            outage.failed(now)
            down_s = outage.down_s(now)
            if down_s >= self.retry_s:
                what = "cannot connect" if down_s < 1 or not self.retry_s else f"no connection for {down_s:.0f} s"
                if outage.flapped:
                    what = f"every connection ended at once, for {down_s:.0f} s"
                self._fail(ConnectionFailed(f"{self.url}: {what}: {self._reason}"))
                return
            if self._log_throttle.is_due(self._reason, now):
                log.warning("%s: %s; trying again for %g s", self.url, self._reason, round(self.retry_s - down_s, 1))
            await asyncio.sleep(min(outage.next_wait_s(), self.retry_s - down_s))

    def _wanted_login(self) -> str:
        """What to do about a refused login, where it was one without a user."""
        if self.url.user:
            return ""
        if EXTERNAL in self._with_login(local=False).wanted:
            advice = "use a URL with a user and a password, or another certificate"
            return f"this certificate is the login of no user at this node; {advice}: "
        return "this node requires a user and a password, as in amqp://user@host: "

    async def _connect_once(self) -> None:
        """One connection from its start to its end."""
        try:
            wire = await open_wire(self.url, self._new_wire, tls=self._tls, dial=self._dial)
        except OSError as error:
            if self._wire is not None:
                self.wire_lost(self._wire, describe(error))
            self._reason = describe(error)
            self._final = False
            if self._tls is not None and is_untrusted(error):
                self._fail(ConnectionFailed(f"{self.url}: cannot connect: {self._reason}"))
            return
        await wire.lost

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
        finally:  # also if cancelled: no link, and no spool of one, outlives its connection
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
