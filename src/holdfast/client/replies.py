"""Requests and replies: a request goes to an address, and its reply comes to a node of this connection's own.

Rules of this file: the replies of one connection come over one link, from a dynamic node that the peer makes (AMQP 1.0
§3.5.3) and that ends with the link. A reply names its request by correlation-id. What a break leaves without a reply is
NoReply: a request is not sent again, because it may have been carried out.
"""

import asyncio
from typing import Any, Final

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.amqp.session.events import Delivery as Arrived
from holdfast.amqp.session.events import LinkDetached
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.performatives import Accepted, Source, Target
from holdfast.client.errors import NoReply, UndecodableMessage
from holdfast.client.link import ClientLink, LinkHost
from holdfast.client.receive.delivery import Delivery

CREDIT: Final = 200


class Replies(ClientLink):
    """The link over which replies come; made by `Connection.request`."""

    def __init__(self, connection: LinkHost, name: str) -> None:
        super().__init__(connection, f"replies of {connection.url}", name)
        self.address = ""
        """Of the dynamic node, where replies are to be sent; empty while there is none."""
        self._link: EngineReceiver | None = None
        self._waiting: dict[Any, asyncio.Future[Delivery]] = {}
        """By the ids of their requests."""
        self._usable = asyncio.Event()
        self._attaches = 0

    async def usable(self) -> str:
        """The address for replies; waits for the node to make it. Raises what ended the link."""
        while not self.address:
            self.check()
            await self._usable.wait()
        return self.address

    def expect(self, message_id: Any) -> "asyncio.Future[Delivery]":
        """The future of the reply to that request; `forget` it in any case."""
        future = self._waiting[message_id] = self._loop.create_future()
        return future

    def forget(self, message_id: Any) -> None:
        """Stops waiting for that reply."""
        future = self._waiting.pop(message_id, None)
        if future is not None and future.done() and not future.cancelled():
            future.exception()  # marks it as retrieved

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        self._attaches += 1  # under a new name: the node may not have answered the detach of the last one yet
        name = f"{self._name}-{self._attaches}"
        self._link = session.attach_receiver(name, Source(dynamic=True), Target(address=name))
        self._link.context = self
        self._link.grant(CREDIT)

    def attached(self, link: EngineLink) -> None:
        told = link.remote_attach.source if link.remote_attach is not None else None
        if isinstance(told, Source) and isinstance(told.address, str) and told.address:
            self.address = told.address
            self._usable.set()
        super().attached(link)

    def lost(self) -> None:
        super().lost()
        self._link = None
        self.address = ""
        self._usable.clear()
        self._end_all(NoReply("the connection broke before the reply came; the request may have been carried out"))

    def detached(self, event: LinkDetached) -> None:
        if event.link is self._link:
            self.lost()
            super().detached(event)

    def delivery(self, event: Arrived) -> None:
        link = event.link
        if not event.settled:
            link.settle(event.delivery_id, event.delivery_id, Accepted())
        if link.credit * 2 <= CREDIT:
            link.grant(CREDIT)
        self._connection.schedule()
        reply = Delivery(self, event, 0, 0)
        reply.settled = True
        try:
            future = self._waiting.get(reply.correlation_id)
        except (UndecodableMessage, TypeError):  # nothing tells which request it answers
            return
        self.outage.gained = True
        if future is not None and not future.done():
            future.set_result(reply)

    def fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        super().fail(error)
        self._usable.set()
        self._end_all(error)

    def settle(self, delivery: Delivery, outcome: Any) -> None:
        """Replies are settled as they come."""

    def holds(self, delivery: Delivery) -> bool:
        """A reply is settled, and cannot be part of a transaction."""
        return False

    # ---------------------------------------------------------------------------------------- internals

    def _end_all(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def _engine_links(self) -> list[EngineLink]:
        return [] if self._link is None else [self._link]
