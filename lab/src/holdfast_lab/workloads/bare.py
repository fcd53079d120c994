"""Clients of the protocol engine alone, for what the client library has no words for: settled transfers, links without
an address, dynamic nodes.

Rules of this file: keeps to AMQP 1.0, and judges nothing. A connection is one session; it does not come back, its
program makes another. Whoever waits for something that a lost connection will not bring is told by `Broken`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from holdfast.amqp.connection import Connection as Engine
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.session.events import ConnEvent, Delivery, Opened, Outcomes
from holdfast.amqp.session.session import Session
from holdfast.amqp.settings import Settings
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.client.network.wire import Wire
from holdfast_lab.base.harness import HARNESS
from holdfast_lab.workloads.bed import Bed

IDLE_TIME_OUT_S: Final = 10.0
SETTLED: Final = 1
"""snd-settle-mode (§2.8.2): all that is sent is settled."""


class Broken(Exception):
    """The connection is gone, or the link is."""


class Refused(Exception):
    """An attach was refused. `condition`: of the node's error, empty where it told none."""

    def __init__(self, link: Link) -> None:
        super().__init__(str(link.error))
        self.condition = "" if link.error is None else str(link.error.condition)


class Bare:
    """One connection with one session; made by `connected`. `lost`: it is gone, whoever ended it."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, user: str | None = None, vhost: str = "", **bounds: int
    ) -> None:
        """`user`: as whom it logs in; a node without users of its own lets in whoever comes. `vhost`: of a node that
        has virtual hosts. `bounds`: of `Settings`."""
        told: dict[str, Any] = {**bounds}
        if user is not None:
            told |= {"mechanism": "PLAIN", "user": user, "password": HARNESS}
        hostname = f"vhost:{vhost}" if vhost else HARNESS
        settings = Settings(container_id=name, hostname=hostname, idle_time_out_s=IDLE_TIME_OUT_S, **told)
        self.name = name
        self.engine = Engine(settings, server=False, now=loop.time())
        self.wire = Wire(self.engine, self, loop)
        self.session: Session | None = None
        self.lost = False
        self._links = 0
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------------------------------------ what comes

    def handle(self, wire: Wire, events: list[ConnEvent]) -> None:
        for event in events:
            if isinstance(event, Opened):
                if self.engine.usable:  # else its program has closed it meanwhile
                    self.session = self.engine.begin()
            elif isinstance(event, Delivery):
                event.link.context(event)
            elif isinstance(event, Outcomes):
                for decided in event.contexts:
                    if decided is not None:
                        decided(event.state)
        self._changed.set()

    def turn_ended(self, wire: Wire) -> None:
        return

    def writing_resumed(self, wire: Wire) -> None:
        self._changed.set()

    def wire_broken(self, wire: Wire, error: Exception) -> None:
        raise error

    def wire_lost(self, wire: Wire, reason: str) -> None:
        self.lost = True
        self.handle(wire, self.engine.transport_lost())

    # ------------------------------------------------------------------------------------------------ what it does

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for that, which something that the node says brings about. Raises Broken."""
        while not self.lost:
            if holds():
                return
            self._changed.clear()
            await self._changed.wait()
        raise Broken

    async def opened(self) -> None:
        """The node takes links. Raises Broken."""
        await self._usable()

    async def sender(self, target: Target, **terms: Any) -> Sender:
        """A link to `target`, attached. Raises Broken, Refused."""
        session = await self._usable()
        link = session.attach_sender(self._new_name(), Source(), target, **terms)
        await self._attached(link)
        return link

    async def receiver(
        self,
        source: Source,
        taken: Callable[[Delivery], None],
        credit: int,
        *,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
    ) -> Receiver:
        """A link from `source`, attached; `taken` is given what comes on it, whatever its size: `max_message_size` is
        what the node is told, and its program judges. Raises Broken, Refused."""
        session = await self._usable()
        link = session.attach_receiver(
            self._new_name(), source, Target(), rcv_settle_mode=rcv_settle_mode, max_message_size=max_message_size
        )
        link.size_max = self.engine.settings.max_message_size
        link.context = taken
        if credit:
            link.grant(credit)
        await self._attached(link)
        return link

    async def send(
        self, link: Sender, payload: bytes, decided: Callable[[Any], None] | None, *, settled: bool = False
    ) -> None:
        """As soon as the node takes it. `decided` is told the outcome. Raises Broken where the link is gone."""
        await self.until(lambda: link.detached or (link.sendable and not self.wire.paused))
        if link.detached:
            raise Broken
        link.send(payload, context=decided, settled=settled)
        self.wire.schedule()

    async def detach(self, link: Link) -> None:
        """Closes the link, and waits for the answer. Raises Broken."""
        if not link.detached:
            link.detach()
            self.wire.schedule()
            await self.until(lambda: link.detached)

    def end(self, *, abort: bool) -> None:
        """Ends the connection, by a close or by nothing but the end of its transport."""
        if self.lost:
            return
        if abort:
            self.wire.abort("ended")
        else:
            self.engine.close()
            self.wire.schedule()

    async def _usable(self) -> Session:
        await self.until(lambda: self.session is not None and self.session.usable)
        assert self.session is not None
        return self.session

    def _new_name(self) -> str:
        self._links += 1
        return f"{self.name}-{self._links}"

    async def _attached(self, link: Link) -> None:
        self.wire.schedule()
        await self.until(lambda: link.attached or link.detached)
        if link.refused:  # its detach, with the error, comes next
            await self.until(lambda: link.detached)
        if link.detached:
            raise Refused(link)


async def connected(
    bed: Bed,
    node: str,
    name: str,
    *,
    honest: bool = True,
    retry_s: float = 1.0,
    user: str | None = None,
    vhost: str = "",
    **bounds: int,
) -> Bare:
    """A connection to that node, dialled until there is one. `honest`: see `Bed.dial`; `user`, `vhost` and `bounds`:
    see `Bare`."""
    user = user or bed.history.rights.login_at(node)
    while True:
        bare = Bare(name, asyncio.get_running_loop(), user, vhost, **bounds)
        try:
            await bed.dial(node, name, lambda made=bare: made.wire, honest=honest)  # type: ignore[misc]
            return bare
        except OSError:
            await asyncio.sleep(retry_s)
