"""One request and its reply, over a connection's links.

Rules of this file: a request is sent on one link only, and not again after a break, because it may have been carried
out. Senders are kept for the next request or reply to their addresses, up to SENDERS_MAX; the one that was not used for
the longest time is closed first.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.client.errors import NoReply
from holdfast.client.link import shown
from holdfast.client.messages import payload
from holdfast.client.outcomes import check_accepted
from holdfast.client.receive.delivery import Delivery
from holdfast.client.replies import Replies
from holdfast.client.send.sender import Sender
from holdfast.errors import ConfigError
from holdfast.units import written

REQUEST_LIMIT_S: Final = 60.0
SENDERS_MAX: Final = 64


class Makes(Protocol):
    """What conversations need of their connection."""

    def sender(self, address: str) -> Any:
        """Attaches a sender, once awaited."""


class Conversation:
    """The requests and replies of one connection. `replies`: makes the link for replies, or gives the one that lives;
    `fresh_id`: an id that no other request of this program has."""

    def __init__(self, connection: Makes, replies: Callable[[], Replies], fresh_id: Callable[[], str]) -> None:
        self._connection = connection
        self._replies = replies
        self._fresh_id = fresh_id
        self._senders: dict[str, asyncio.Task[Sender]] = {}
        """By address, the one that was not used for the longest time first."""

    async def request(self, address: str, message: Message | object, limit_s: float) -> Delivery:
        """See `Connection.request`."""
        replies = self._replies()
        wanted = payload.whole(message)
        properties = wanted.properties or Properties()
        if properties.message_id is None:
            properties = replace(properties, message_id=self._fresh_id())
        if properties.correlation_id is None:  # some that answer repeat this, others the message-id
            properties = replace(properties, correlation_id=properties.message_id)
        try:
            async with asyncio.timeout(limit_s):
                properties = replace(properties, reply_to=await replies.usable())
                reply = replies.expect(properties.message_id)
                sender = await self._sender(address)
                if reply.done():  # the connection broke meanwhile, and the address for the reply is gone
                    return await reply
                return await self._replied(address, sender, replace(wanted, properties=properties), reply)
        except TimeoutError:
            raise NoReply(f"{address}: no reply came within {written(limit_s)} s") from None
        finally:
            replies.forget(properties.message_id)

    @staticmethod
    async def _replied(address: str, sender: Sender, message: Message, reply: "asyncio.Future[Delivery]") -> Delivery:
        """Sends the request, and waits for its reply, which may come before the outcome."""
        sent = await sender.submit_once(message)
        assert sent.future is not None
        try:
            await asyncio.wait((sent.future, reply), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                check_accepted(sent.future.result(), f"request to {shown(address)}")
            return await reply
        finally:
            sender.take_back(sent)

    async def reply(self, request: Delivery, message: Message | object) -> None:
        """See `Connection.reply`."""
        address = request.reply_to
        if not address:
            raise ConfigError("the request has no reply-to; expected one that asks for a reply")
        answer = payload.whole(message)
        asked = request.message_id if request.correlation_id is None else request.correlation_id
        properties = replace(answer.properties or Properties(), correlation_id=asked)
        await (await self._sender(address)).send(replace(answer, properties=properties))

    async def _sender(self, address: str) -> Sender:
        making = self._senders.pop(address, None)
        if making is not None and making.done():
            failed = making.cancelled() or making.exception() is not None or making.result().is_over()
            making = None if failed else making
        if making is None:
            making = asyncio.ensure_future(self._connection.sender(address))
        self._senders[address] = making
        if len(self._senders) > SENDERS_MAX:
            await self._close_oldest()
        return await asyncio.shield(making)

    async def _close_oldest(self) -> None:
        """One whose messages all have their outcomes; where there is none, one more is kept for now."""
        for address, making in self._senders.items():
            if making.done() and (making.cancelled() or making.exception() is not None):
                del self._senders[address]
                return
            if making.done() and not making.result().in_doubt:
                del self._senders[address]
                await making.result().close()
                return
