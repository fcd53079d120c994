"""Messages that are too large for the consumer they are offered to (docs/amqp.md, "Messages that a consumer cannot
have").

Rules of this file: a link that holds messages gets no more and is detached only once these are settled, so that their
outcomes count. A link that settles nothing for PATIENCE_S is detached with what it holds. A stopped link continues if
another consumer has the message, or accepts one so large, or if the message has left the queue. Source:
docs/adr/0115-too-large-for-its-link.md.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.engine.clock import Clock
from holdfast.peers.link_tables import LinkTables
from holdfast.state.turns import Turns

PATIENCE_S: Final = 300.0
"""How long a stopped link may settle nothing before it is detached."""


class Consuming(Protocol):
    """A consumer's link. `stopped`: whether it stopped because it met a message that is too large for it while it held
    others. Reset by `TooLarge.forget`."""

    link: Sender
    cursor: Cursor
    queue: Queue
    held: int
    settling: int
    stopped: bool

    @property
    def links_ended_max(self) -> int: ...
    def detach_with(self, reason: str, condition: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Met:
    """An entry whose delivery of `size` bytes is too large for a consumer; `alone`: no other one accepted it."""

    sequence: int
    size: int
    alone: bool


class TooLarge:
    """`waiting`: links that get nothing before they settle what they hold, and until when they are waited for.
    `met_in`: what they were offered, by queue."""

    def __init__(self, clock: Clock, turns: Turns, links: LinkTables, dead_lettering: DeadLettering) -> None:
        self._clock = clock
        self._turns = turns
        self._dead_lettering = dead_lettering
        self.waiting: dict[Consuming, float] = {}
        self.met_in: dict[Queue, dict[Consuming, Met]] = {}
        table: dict[Any, Any] = self.waiting
        links.wait_in("too large", lambda: table)

    def met(self, consumer: Consuming, sequence: int, value: bytes, size: int) -> None:
        """The consumer was offered an entry whose delivery of `size` bytes is too large for it: it stops, or its link
        is detached, or, after some links, the entry becomes a dead letter."""
        cursor = consumer.cursor
        alone = not cursor.another_takes(sequence, size)
        ended = cursor.links_ended.get(sequence, 0)
        if alone and ended >= consumer.links_ended_max:
            if self._dead_lettering.end_too_large(cursor, sequence, value, size):
                return
            if cursor.set_aside(sequence, size):  # it waits for a consumer that accepts more
                return
        cursor.requeue([sequence], failed=False)
        if self.holds_any(consumer) and not consumer.stopped:
            cursor.links_ended[sequence] = ended  # also 0: this marks that the message still exists (no_longer_blocks)
            consumer.stopped = True
            self.met_in.setdefault(consumer.queue, {})[consumer] = Met(sequence, size, alone)
            self.waiting[consumer] = self._until()
            return
        if alone:
            cursor.links_ended[sequence] = ended + 1
        text = f"sequence {sequence} has {size} bytes; the limit of this link is {consumer.link.message_bytes_max}"
        consumer.detach_with(text, MESSAGE_SIZE_EXCEEDED)

    def holds_any(self, consumer: Consuming) -> bool:
        """Whether the peer has not settled something, or has not been told that an outcome is on disk."""
        link = consumer.link
        if consumer.held or consumer.settling or link.unsettled:
            return True
        turns = (self._turns.gathered, self._turns.in_flight)
        return any(answer[0] is link for turn in turns if turn is not None for answer in turn.answers)

    def _until(self) -> float:
        return self._clock.now + PATIENCE_S

    def stops(self, consumer: Consuming) -> bool:
        """Whether the consumer gets nothing now."""
        return consumer in self.waiting and self.holds_any(consumer)

    def answered(self, consumer: Consuming) -> None:
        """The consumer's outcomes are on disk, and it was told so."""
        if consumer in self.waiting:
            consumer.queue.touch()

    def settled_some(self, consumer: Consuming) -> None:
        """The consumer settled some of what it holds: if it is waited for, the time begins anew."""
        if self.waiting.pop(consumer, None) is not None:  # the order is that of their ends
            self.waiting[consumer] = self._until()

    def forget(self, consumer: Consuming) -> None:
        """The consumer was handed a message, has ended, or no longer waits because of the message that was too
        large."""
        consumer.stopped = False
        self.waiting.pop(consumer, None)
        self._forget_met(consumer)

    def look_again(self, queue: Queue) -> None:
        """The queue was offered: those of its consumers continue that the message no longer blocks."""
        found: dict[tuple[Cursor, Met], bool] = {}
        for consumer, met in list(self.met_in.get(queue, {}).items()):
            if consumer not in self.waiting:
                self._forget_met(consumer)
                continue
            key = consumer.cursor, met
            if key not in found:
                found[key] = no_longer_blocks(*key)
            if found[key]:
                self.forget(consumer)
                queue.touch()

    def _forget_met(self, consumer: Consuming) -> None:
        """Forgets what the consumer was offered."""
        there = self.met_in.get(consumer.queue)
        if there is not None:
            there.pop(consumer, None)
            if not there:
                del self.met_in[consumer.queue]

    def next_deadline(self) -> float | None:
        return next(iter(self.waiting.values()), None)

    def tick(self, now: float) -> None:
        """The links whose time is over are offered messages again."""
        while (at := self.next_deadline()) is not None and at <= now:
            consumer = next(iter(self.waiting))
            del self.waiting[consumer]
            self._forget_met(consumer)
            consumer.queue.touch()


def no_longer_blocks(cursor: Cursor, met: Met) -> bool:
    """Whether the link need not wait because of the entry: another consumer holds or accepts it, or it has left."""
    if met.sequence in cursor.acquired or met.sequence not in cursor.links_ended:
        return True
    return met.alone and cursor.another_takes(met.sequence, met.size)
