"""What is in the journal, to the node: each message under its number, until it has its outcome.

Rules of this file: nothing is sent that is not on disk. What the node has no room for is offered again, in the order of
the numbers; only messages that were on their way already can overtake it.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.client.errors import ProducerConflict
from holdfast.client.feed.intake import Intake
from holdfast.client.feed.journal import Journal, Kept
from holdfast.client.outcomes import Accepted, Outcome, Rejected
from holdfast.client.send.sender import Sender

AGAIN_S: Final = 0.5
"""How long what came back waits to be offered again."""
ENDED_EACH_S: Final = 0.2
"""Seconds between two updates of the journal about finished messages."""


class Delivering:
    """The sender's side of a feed."""

    def __init__(self, journal: Journal, intake: Intake, sender: Sender) -> None:
        self.accepted = 0
        """Messages that the node has."""
        self.rejected = 0
        """Messages that it will never take."""
        self._journal = journal
        self._intake = intake
        self._sender = sender
        self._first_new = journal.next_number
        """The first number that this run may give: the node has none from there on."""
        self._ended: list[int] = []
        self._again: list[Kept] = []
        self._in_order = asyncio.Event()
        """Nothing that came back waits to be offered again."""
        self._in_order.set()

    async def begin(self) -> None:
        """Gives a new journal its first number, as soon as the node has said which are free. ProducerConflict where the
        node has numbers that this journal never gave."""
        if not self._journal.is_new:
            return
        await self._sender.ready()
        await self._intake.in_turn(self._journal.begin, self._sender.next_number)
        self._first_new = self._journal.next_number

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """What runs beside each other, for ever; each raises what ends the feed."""
        return [self._run(), self._retry(), self._note(), self._watch()]

    async def _run(self) -> None:
        sender = self._sender
        await sender.ready()
        if sender.last_number >= self._first_new:
            last = sender.last_number
            raise ProducerConflict(
                f"producer {sender.producer!r} to {sender.address!r}: the node has stored number {last}, and "
                f"{self._first_new - 1} was the last of the journal: another sender uses the name, or the journal is "
                "an older copy; begin a new --journal with another --producer"
            )
        while True:
            for kept in await self._intake.following():
                await self._in_order.wait()
                await self._send(kept)

    async def _retry(self) -> None:
        """Offers again what came back; meanwhile nothing new is sent."""
        while True:
            await asyncio.sleep(AGAIN_S)
            again, self._again = sorted(self._again), []
            for kept in again:
                await self._send(kept)
            if not self._again:
                self._in_order.set()

    async def _watch(self) -> None:
        """Raises what ended the sender."""
        await asyncio.shield(self._sender.over)
        self._sender.check()

    async def ended(self) -> None:
        """Returns when all that is journaled has its outcome."""
        while self._journal.ended_below < self._journal.next_number:
            self._sender.check()
            await asyncio.sleep(ENDED_EACH_S)

    async def note(self) -> None:
        """Records in the journal which messages have finished since the last call."""
        ended, self._ended = self._ended, []
        if ended:
            await self._intake.ended(ended)

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(ENDED_EACH_S)
            await self.note()

    async def _send(self, kept: Kept) -> None:
        future = await self._sender.submit(Message.decode(kept.message), number=kept.number)
        future.add_done_callback(partial(self._decided, kept))

    def _decided(self, kept: Kept, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the sender has failed, and says so
        outcome = future.result()
        if isinstance(outcome, Accepted):
            self.accepted += 1
        elif isinstance(outcome, Rejected) and not outcome.is_full:
            self.rejected += 1
            text = f"{outcome.condition} {outcome.description}".rstrip()
            self._intake.complaints.tell(f"number {kept.number} was rejected: {text}")
        else:
            self._again.append(kept)
            self._in_order.clear()
            return
        self._ended.append(kept.number)
