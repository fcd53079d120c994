"""One body on its way out: read ahead by a part, written as fast as the node and the socket take it.

Rules of this file: made for one attach of one link; when the link is gone it stops, and another begins the body anew.
"""

import asyncio
from contextlib import aclosing
from typing import Final, Literal, Protocol

from holdfast.amqp.outgoing import Outgoing
from holdfast.client.bodies import Body
from holdfast.client.doubt import Doubt
from holdfast.client.outcomes import Outcome, too_large
from holdfast.units import KIB

TURN_BYTES: Final = 256 * KIB
"""What one turn of the loop writes of it: everything else of the connection comes between."""


class SendsParts(Protocol):
    """What an Outflow asks of its sender."""

    def touch(self) -> None:
        """This turn ends with a call of `went_on`."""

    def is_in_doubt(self, entry: Doubt) -> bool:
        """Nothing is decided about the message yet."""

    def body_ended(self, entry: Doubt, end: Exception | Outcome) -> None:
        """The message is given up: what its body raised, or why it does not go on."""


class Outflow:
    """`went_on` is called in each turn in which there may be room."""

    def __init__(
        self, sender: SendsParts, entry: Doubt, body: Body, outgoing: Outgoing, head_bytes: int, bytes_max: int | None
    ) -> None:
        """`bytes_max`: the largest message that the node takes, of which `head_bytes` are out already."""
        self._sender = sender
        self._entry = entry
        self._body = body
        self._outgoing = outgoing
        self._bytes = head_bytes
        self._bytes_max = bytes_max
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def went_on(self) -> bool:
        """Writes what there is; True once the link is free for another delivery."""
        outgoing = self._outgoing
        if not outgoing.over and not self._sender.is_in_doubt(self._entry):
            outgoing.abort()  # decided before its end
        outgoing.flush(TURN_BYTES)
        if outgoing.over:
            self.stop()
            return True
        if outgoing.hungry:
            self._room.set()
        elif not outgoing.blocked:
            self._sender.touch()
        return False

    def is_sending(self, entry: Doubt) -> bool:
        """Some of that message has yet to go out."""
        return self._entry is entry and not self._outgoing.over

    @property
    def waits_for(self) -> Literal["window"] | None:
        """The node's window; None: for the body, or for nothing."""
        return "window" if self._outgoing.blocked else None

    def stop(self) -> None:
        """Its link is gone, or it is done."""
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
                        self._sender.touch()
                        await self._room.wait()
                    outgoing.feed(part)
                    self._sender.touch()
            if end is None:
                outgoing.end()
        except Exception as error:  # whatever the program's own iterator raises is the program's to hear
            end = error
        if end is not None:
            self._sender.body_ended(self._entry, end)
            outgoing.abort()
        self._sender.touch()
