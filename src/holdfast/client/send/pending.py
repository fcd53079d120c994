"""A message that has no outcome yet: what its sender keeps of it until the node has decided.

Rules of this file: one small object for each message; nothing is decided here.
"""

import asyncio
from collections.abc import Callable

from holdfast.amqp.wire.performatives import TransactionalState
from holdfast.client.messages import payload
from holdfast.client.messages.bodies import Body
from holdfast.client.outcomes import Outcome

OnOutcome = Callable[[int | None, Outcome], None]
"""Called with the producer's number (None without a name) and the outcome."""


class PendingMessage:
    """One message whose outcome is not known: the node may have stored it or not."""

    __slots__ = ("body", "cut", "future", "key", "local", "number", "on_outcome", "once", "size", "state")

    def __init__(
        self,
        key: int,
        cut: payload.Cut,
        number: int | None,
        future: "asyncio.Future[Outcome] | None",
        on_outcome: OnOutcome | None,
        body: Body | None = None,
    ) -> None:
        """`key`: its place in the order of the program's calls. `cut`: what was encoded of it."""
        self.key = key
        self.cut = cut
        self.number = number
        self.future = future
        self.on_outcome = on_outcome
        self.body = body
        """What follows `cut`, where the message is sent in parts."""
        self.state: TransactionalState | None = None
        """Of the transaction that it is sent in, which ends with its connection."""
        self.once = False
        """It is not sent on a second link, whatever became of it on the first."""
        self.local = 0
        """Its place in the spool, if there is one."""
        self.size = 0
        """Bytes of its payload in the spool."""

    def whole(self) -> bytes | None:
        """Its payload without a number; None for a message that is sent in parts."""
        return b"".join(self.cut.parts(None)) if self.body is None else None


def key_of(message: PendingMessage) -> int:
    """Sorts messages in the order in which the program sent them."""
    return message.key


def number_of(message: PendingMessage) -> int:
    """Sorts a producer's messages by its numbers."""
    return message.number or 0
