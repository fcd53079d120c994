"""A message of which it is not known whether the node has it.

Rules of this file: one small object for each message; nothing is decided here.
"""

import asyncio
from collections.abc import Callable

from holdfast.client import payload
from holdfast.client.bodies import Body
from holdfast.client.outcomes import Outcome

OnOutcome = Callable[[int | None, Outcome], None]
"""Told the producer's number (None without a name) and how the message ended."""


class Doubt:
    """One message of which we do not know whether the node has it."""

    __slots__ = ("body", "cut", "future", "key", "local", "number", "on_outcome", "size")

    def __init__(
        self,
        key: int,
        cut: payload.Cut,
        number: int | None,
        future: "asyncio.Future[Outcome] | None",
        on_outcome: OnOutcome | None,
        body: Body | None = None,
    ) -> None:
        self.key = key
        self.cut = cut
        self.number = number
        self.future = future
        self.on_outcome = on_outcome
        self.body = body
        """What follows `cut`, where the message is sent in parts."""
        self.local = 0
        self.size = 0

    def whole(self) -> bytes | None:
        """Its payload without a number; None of one that is sent in parts."""
        return b"".join(self.cut.parts(None)) if self.body is None else None


def key_of(entry: Doubt) -> int:
    """By it messages stand in the order in which they were handed over."""
    return entry.key


def number_of(entry: Doubt) -> int:
    return entry.number or 0
