"""The body of one message while it is sent: read one part ahead, written as fast as the node and the socket take it.

Rules of this file: an Outflow belongs to one attach of one link. When the link is gone it stops; on the next link
another one sends the body from its beginning. It knows its sender only as a `BodyOwner`.
"""

import asyncio
from contextlib import aclosing
from typing import Final, Literal, Protocol

from holdfast.amqp.links.outgoing import Outgoing
from holdfast.client.messages.bodies import Body
from holdfast.client.outcomes import Outcome, too_large
from holdfast.client.send.pending import PendingMessage
from holdfast.units import KIB

TURN_BYTES: Final = 256 * KIB
"""Most bytes of a body in one turn of the loop: other links of the connection send in between."""


class BodyOwner(Protocol):
    """What an Outflow needs of its sender."""

    def touch(self) -> None:
        """Has `went_on` called before this turn's write."""

    def is_in_doubt(self, message: PendingMessage) -> bool:
        """The message has no outcome yet."""

    def body_ended(self, message: PendingMessage, end: Exception | Outcome) -> None:
        """The message is not sent to its end: what reading its body raised, or its outcome."""


class Outflow:
    """`went_on` is called in each turn in which the link may take more."""

    def __init__(
        self,
        owner: BodyOwner,
        message: PendingMessage,
        body: Body,
        outgoing: Outgoing,
        head_bytes: int,
        bytes_max: int | None,
    ) -> None:
        """`bytes_max`: the largest message that the node takes, of which `head_bytes` are written already."""
        self._owner = owner
        self._message = message
        self._body = body
        self._outgoing = outgoing
        self._bytes = head_bytes
        self._bytes_max = bytes_max
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def went_on(self) -> bool:
        """Writes what was read; True once the link is free for another delivery."""
        outgoing = self._outgoing
        if not outgoing.over and not self._owner.is_in_doubt(self._message):
            outgoing.abort()  # it has an outcome before its end
        outgoing.flush(TURN_BYTES)
        if outgoing.over:
            self.stop()
            return True
        if outgoing.hungry:
            self._room.set()
        elif not outgoing.blocked:
            self._owner.touch()
        return False

    def is_sending(self, message: PendingMessage) -> bool:
        """Some of that message is not written yet."""
        return self._message is message and not self._outgoing.over

    @property
    def waits_for(self) -> Literal["window"] | None:
        """The session's window; None: the body, or nothing."""
        return "window" if self._outgoing.blocked else None

    def stop(self) -> None:
        """Its link is gone, or the message was sent."""
        self._task.cancel()

    async def _run(self) -> None:
        outgoing = self._outgoing
        end: Exception | Outcome | None = None
        try:
            async with aclosing(self._body.sections()) as parts:
                async for part in parts:
                    self._bytes += len(part)
                    if self._bytes_max is not None and self._bytes > self._bytes_max:
                        end = too_large(self._bytes_max)
                        break
                    while not outgoing.hungry:
                        self._room.clear()
                        self._owner.touch()
                        await self._room.wait()
                    outgoing.feed(part)
                    self._owner.touch()
            if end is None:
                outgoing.end()
        except Exception as error:  # the program's own iterator may raise anything, and the program gets it
            end = error
        if end is not None:
            self._owner.body_ended(self._message, end)
            outgoing.abort()
        self._owner.touch()
