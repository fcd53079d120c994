"""Readers by sequence, and browsers: links that leave messages in the queue (CUSTODY, "Readers")."""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED
from holdfast.amqp.wire.performatives import Accepted, TransactionalState
from holdfast.broker.cursors.cursor import PUMP_BYTES
from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.entries import annotate, entry
from holdfast.broker.entries.read_ahead import READ_COUNT
from holdfast.broker.queue import Queue
from holdfast.custody.names.store_names import StoreNames
from holdfast.custody.transfers.carried import passed_by
from holdfast.endpoints.addresses.dynamic_nodes import DynamicNodes
from holdfast.endpoints.drains import offers
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.links.large_sends import LargeSend
from holdfast.links.outgoing import Offered, OutgoingParts, refuse_transaction, too_large
from holdfast.peers.peer import Peer

BROWSE_LIMIT: Final = 256
"""Entries that a reader by sequence gets when it is offered its queue; it may skip as many."""


@dataclass(slots=True)
class Looked:
    """The entries that a reader read when it was offered its queue. `size`: bytes of entries that were sent or
    skipped."""

    sent: int = 0
    passed: int = 0
    """Entries that had expired, or that its selector does not match."""
    size: int = 0
    waits: bool = False
    """It ended for want of credit, or because the connection takes no more."""

    @property
    def is_all(self) -> bool:
        """Whether this is the maximum at once: the rest is offered again."""
        return self.sent >= BROWSE_LIMIT or self.passed >= BROWSE_LIMIT or self.size >= PUMP_BYTES


@dataclass(frozen=True, slots=True)
class ReaderParts(OutgoingParts):
    """What readers use besides `OutgoingParts`. `resting`: what is paused after a failure, queues among them."""

    dynamic_nodes: DynamicNodes
    resting: Container[object]
    store_names: StoreNames
    transactions: Transactions


class ReaderLink(Offered):
    """Reads `[start, end)` of a queue by sequence and leaves it unchanged; without an end it continues with new
    messages."""

    parts: ReaderParts

    def __init__(
        self,
        parts: ReaderParts,
        peer: Peer,
        link: Sender,
        queue: Queue,
        *,
        start: int | None,
        end: int | None,
        selector: EntrySelector | None,
        settled: bool,
        tells_path: bool,
    ) -> None:
        super().__init__(parts, peer, link, queue)
        self.browsing = start is None
        """A range by sequence always has the same messages; a browser does not see expired ones."""
        self.position = start or 0
        self.end = end
        self.selector = selector
        self.presettled = settled
        self.tells_path = tells_path
        self.following = -1
        """The entry at the position or the next one, as it was when it could not be sent."""
        self.large: LargeSend | None = None
        parts.links.readers_of(queue)[self] = None

    def drain_if_idle(self) -> bool:
        """As ConsumerLink's, for the cases that no pump answers: no credit is left, or the queue offers nothing."""
        link = self.link
        if link.detached or not link.drain:
            return True
        if self.large is not None or (link.credit and offers(self.queue, self.parts.resting)):
            return False
        link.drained()
        self.peer.touch()
        return True

    @property
    def has_more(self) -> bool:
        """Whether there are entries ahead of it, and its connection accepts them."""
        return self.position < self.queue.visible and self.large is None and self.may_write

    def pump(self) -> None:
        """Sends what credit and the connection allow; ends the link at the end of its range."""
        link = self.link
        if self.large is not None:
            return
        limit = BROWSE_LIMIT
        if not self.presettled:
            limit = min(limit, self.parts.config.limits.unsettled_max - len(link.unsettled))
        looked = self._send_some(limit)
        if looked.sent or looked.passed:
            self._count(looked)
        if link.detached or self.large is not None:
            return
        if self._over(look=not looked.is_all and self not in self.peer.deferred):
            link.detach(closed=True)
            self.peer.touch()
            self.forget()
        elif looked.is_all:
            self.queue.touch()
        elif link.drain and not looked.waits:  # there is nothing, or its unsettled messages are at their bound
            link.drained()
            self.peer.touch()

    def _send_some(self, limit: int) -> Looked:
        """Sends up to `limit` entries, and passes over those that its selector does not match or, if it browses, that
        have expired."""
        link, end = self.link, self.end
        weight = 1 if self.selector is None else self.selector.weight
        ahead: deque[tuple[int, bytes]] = deque()
        looked = Looked()
        while looked.sent < limit and not looked.is_all and not link.detached:
            if end is not None and self.position >= end:
                break
            if not self.may_write:
                if link.sendable:
                    self.defer()
                looked.waits = True
                break
            if not ahead:  # no more than may be sent, or as many again as were passed: what is not is read again
                count = min(link.credit, link.session.window_out, limit - looked.sent)
                count = min(READ_COUNT, max(count, looked.passed))
                ahead.extend(self.queue.read(self.position, count_max=count, bytes_max=self.room_bytes))
            if end is not None and (ahead[0][0] if ahead else self.queue.visible) >= end:
                self.position = end
                break
            if not ahead:
                break
            sequence, value = ahead.popleft()
            self.position = sequence + 1
            if (self.browsing and self.queue.expired(value)) or (
                self.selector is not None and not self.selector.matches(value)
            ):
                looked.passed += 1
                looked.size += len(value) * weight
                continue
            way = self._way(value) if self.tells_path and value[1] & entry.CUSTODY else b""
            parts = annotate.for_consumer(value, sequence, None, self.parts.clock.steady_ms, way)
            if too_large(link, parts, value):
                self.detach_with(f"sequence {sequence} is larger than this link takes", MESSAGE_SIZE_EXCEEDED)
                break
            message_format = int.from_bytes(value[20:24], "big")
            if value[1] & entry.BLOB:
                self.large = LargeSend(
                    self.parts.large_sends, self.peer, link, value, parts,
                    context=sequence, settled=self.presettled, message_format=message_format, ended=self._large_ended,
                )  # fmt: skip
                break  # entries that were read refer to blobs that may be deleted before this one was sent
            link.send(parts, context=sequence, settled=self.presettled, message_format=message_format)
            self.handed(len(value))
            looked.sent += 1
            looked.size += len(value) * weight
        return looked

    def _count(self, looked: Looked) -> None:
        """Counts it for the turn: the queue's other readers have their turn before this one."""
        self.parts.work.offered_bytes += looked.size
        self.parts.work.offered_count += looked.sent + looked.passed
        readers = self.parts.links.readers_of(self.queue)
        if len(readers) > 1 and self in readers:
            del readers[self]
            readers[self] = None

    def _way(self, value: bytes) -> bytes:
        """The annotations with the nodes that a message passed, this one last, and with its identity."""
        nodes = (*self.parts.store_names.names_of(passed_by(value)), self.parts.config.name)
        return annotate.way_items(value, nodes)

    def _over(self, *, look: bool) -> bool:
        """Whether the whole range was sent: everything below the end is visible and was read. `look`: also reads the
        store, once for each position, because no entry there may have to be sent."""
        if self.end is None or self.position >= self.end:
            return self.end is not None
        if self.queue.visible < self.end or self.following >= self.position or not look:
            return False
        found = self.queue.read(self.position, count_max=1, bytes_max=1)
        self.following = found[0][0] if found else self.end
        return self.following >= self.end

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        if isinstance(state, TransactionalState):  # it moves nothing, so the transaction has no part of it
            if self.parts.transactions.find(self.peer, state.txn_id) is None:
                refuse_transaction(self, state)
                return
            state = state.outcome
        self.queue.touch()
        if not settled:
            self.link.settle(first, last, state if state is not None else Accepted())
            self.peer.touch()

    def _large_ended(self) -> None:
        self.large = None
        self.queue.touch()

    def gone(self, unsettled: list[Any]) -> None:
        if self.large is not None:
            self.large.close()
            self.large = None
        self.parts.links.readers_of(self.queue).pop(self, None)
        self.parts.dynamic_nodes.left(self, self.queue)
