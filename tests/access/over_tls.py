"""A client of raw frames over TLS, for a node's process: what it asks for is put together here, frame by frame.

Rules of this file: one thing is asked at a time, and the answer awaited; who logged in asks many over one connection.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from amqp.joined import performatives, wire
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import (
    Attach,
    Begin,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Open,
    Properties,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol

LIMIT_S: Final = 30.0
PASSWORD: Final = "pass word"

ANONYMOUS: Final = 1
REQUESTS: Final = 2
REPLIES: Final = 3
CONTROL: Final = 4
"""Handles of the links that a connection keeps; each row has one of its own, TRIED."""
TRIED: Final = 5


class Client:
    """One connection of one user."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent = 0
        self._names = 0

    async def hear(self, kind: type | tuple[type, ...]) -> Any:
        """The next frame of that kind, with what it carries; others before it are left out."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                head = await self._reader.readexactly(4)
                if head == b"AMQP":
                    await self._reader.readexactly(4)
                    continue
                ((_, value, payload),) = performatives(
                    head + await self._reader.readexactly(int.from_bytes(head, "big") - 4)
                )
                if isinstance(value, kind):
                    return value, payload

    def say(self, *values: Any) -> None:
        self._writer.write(wire(*values))

    async def log_in(self, user: str, host: str) -> None:
        hostname = f"vhost:{host}" if host else "localhost"
        init = SaslInit(Symbol("PLAIN"), f"\0{user}\0{PASSWORD}".encode(), hostname)
        self._writer.write(SASL_HEADER + frame(0, encode(init), SASL_FRAME) + AMQP_HEADER)
        self.say(Open(f"raw-{user}", hostname=hostname), Begin(None, 0, 5_000, 5_000))
        outcome, _ = await self.hear(SaslOutcome)
        assert outcome.code == 0
        await self.hear(Begin)
        for handle, target in ((ANONYMOUS, Target()), (REQUESTS, Target("$management")), (CONTROL, Coordinator())):
            self.say(Attach(f"kept-{handle}", handle, False, source=Source(), target=target, initial_delivery_count=0))
            await self.hear(Attach)
        self.say(Attach("replies", REPLIES, True, source=Source("$management"), target=Target("replies")))
        await self.hear(Attach)
        self.say(Flow(0, 5_000, 0, 5_000, handle=REPLIES, delivery_count=0, link_credit=100_000))

    # ------------------------------------------------------------------------------------------------ what is tried

    async def attach(self, *, role: bool, source: Source, target: Target) -> str:
        """The condition of the refusal; "" where the link was taken. It is detached then."""
        self._names += 1
        first = {} if role else {"initial_delivery_count": 0}
        self.say(Attach(f"tried-{self._names}", TRIED, role, source=source, target=target, **first))
        answer, _ = await self.hear(Attach)
        ours = answer.source if role else answer.target
        if ours is not None:
            self.say(Detach(TRIED, True))
            await self.hear(Detach)
            return ""
        told, _ = await self.hear(Detach)
        self.say(Detach(TRIED, True))
        return str(told.error.condition)

    async def message(self, to: str) -> str:
        """The condition with which a message of the link without an address was rejected; "" where it was not."""
        return await self._outcome(to, None)

    async def in_transaction(self, to: str) -> str:
        """The same of a message of a transaction, which is rolled back."""
        declared = await self._decided(self._transfer(CONTROL, Message(value=Declare()).encode()))
        found = await self._outcome(to, TransactionalState(declared.txn_id))
        await self._decided(self._transfer(CONTROL, Message(value=Discharge(declared.txn_id, True)).encode()))
        return found

    async def _outcome(self, to: str, state: Any) -> str:
        payload = Message(properties=Properties(to=to), data=[b"x"]).encode()
        told = await self._decided(self._transfer(ANONYMOUS, payload, state=state))
        outcome = told.outcome if isinstance(told, TransactionalState) else told
        error = getattr(outcome, "error", None)
        return "" if error is None else str(error.condition)

    async def _decided(self, number: int) -> Any:
        """The outcome of that delivery."""
        while True:
            told, _ = await self.hear(Disposition)
            if told.first <= number <= (told.first if told.last is None else told.last):
                return told.state

    def _transfer(self, handle: int, payload: bytes, **told: Any) -> int:
        """The number of the delivery."""
        number, self._sent = self._sent, self._sent + 1
        self.say((Transfer(handle, number, number.to_bytes(4, "big"), 0, **told), payload))
        return number

    async def manage(self, operation: str, kind: str, name: str, **arguments: Any) -> int:
        """The status code of a request."""
        told = {"operation": operation, "type": f"holdfast:{kind}", "name": name}
        properties = Properties(message_id="m", reply_to="replies")
        payload = Message(properties=properties, application_properties=told, value=arguments).encode()
        self._transfer(REQUESTS, payload, settled=True)
        answer, body = await self.hear(Transfer)
        while answer.more:
            answer, more = await self.hear(Transfer)
            body += more
        return int((Message.decode(body).application_properties or {})["statusCode"])


@asynccontextmanager
async def connected(port: int, context: ssl.SSLContext, user: str, host: str) -> AsyncIterator[Client]:
    """A connection of that user of that host."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        client = Client(reader, writer)
        await client.log_in(user, host)
        yield client
    finally:
        writer.transport.abort()
