"""Links that send messages: what all of them share, and links that get a queue's messages.

Rules of this file: it only sends messages that are on disk.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.conditions import UNKNOWN_TRANSACTION
from holdfast.amqp.wire.performatives import Error, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries import entry
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.engine.clock import Clock
from holdfast.links.large_sends import LargeSends, bare_length
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer, PeerLink
from holdfast.settings.node import NodeConfig


def size_of(parts: tuple[Any, ...], value: bytes = b"\0\0") -> int:
    """The size of the delivery of an entry."""
    return bare_length(value, parts) if value[1] & entry.BLOB else sum([len(part) for part in parts])


def too_large(link: Sender, parts: tuple[Any, ...], value: bytes = b"\0\0") -> bool:
    """Whether the delivery exceeds the peer's max-message-size (§2.7.3); `value`: its entry."""
    limit = link.message_bytes_max
    return limit is not None and size_of(parts, value) > limit


def refuse_transaction(link: "Offered", state: TransactionalState) -> None:
    """Handles a disposition with an unknown transaction: the link ends, and its entries are requeued."""
    text = f"transaction {state.txn_id.hex()[:64]} is not known here; declare it on this connection first"
    link.detach_with(text, UNKNOWN_TRANSACTION)


class Egress(PeerLink):
    """What all links that send messages share."""

    def __init__(self, peer: Peer, link: Sender) -> None:
        self.peer = peer
        self.link: Sender = link
        peer.egress[self] = None

    def credited(self) -> None:
        """The peer changed the credit, or the session's window opened."""

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        """The peer's state for our deliveries; `contexts` in the order in which they were sent."""

    def answered(self) -> None:
        """Outcomes of the peer are on disk, and it was told so."""
        self.peer.touch()

    def gone(self, unsettled: list[Any]) -> None:
        """The link was detached, by either side, or its connection is lost."""

    def forget(self) -> None:
        """We detached it ourselves: it is no longer needed."""
        self.link.context = None
        self.peer.egress.pop(self, None)
        self.gone([])


@dataclass(frozen=True, slots=True)
class OutgoingParts:
    """What all links use that get a queue's messages."""

    config: NodeConfig
    clock: Clock
    work: Work[Queue]
    links: LinkTables
    memory: Memory
    large_sends: LargeSends


class Offered(Egress):
    """A link that gets the messages of a queue, as far as its connection's budget for the turn goes."""

    def __init__(self, parts: OutgoingParts, peer: Peer, link: Sender, queue: Queue) -> None:
        super().__init__(peer, link)
        self.parts = parts
        self.queue = queue
        self.last_budget = 0
        """The number of the last budget of its connection from which it was handed a message (Peer.budget_number)."""

    @property
    def room_bytes(self) -> int:
        """Bytes of messages that its connection may still get in this turn."""
        return max(1, min(READ_BYTES, self.parts.memory.handed_max - self.peer.handed_bytes))

    @property
    def may_write(self) -> bool:
        """`has_budget`, and the link has credit and room in the session's window for a message."""
        return self.link.sendable and self.has_budget

    @property
    def has_budget(self) -> bool:
        """Whether its connection accepts messages now, and has budget left in this turn."""
        return self.peer.writable and not self._is_used_up

    @property
    def _is_used_up(self) -> bool:
        return self.peer.handed_bytes >= self.parts.memory.handed_max

    def defer(self) -> None:
        """It could send now: if its connection's budget for the turn is used up, its queue is offered in the next
        turn."""
        if self.peer.writable and self._is_used_up:
            self.peer.deferred[self] = None

    def handed(self, size: int) -> None:
        """Counts messages of so many bytes that were handed to the connection."""
        peer = self.peer
        peer.handed_bytes += size
        self.last_budget = peer.budget_number
        peer.touch()

    def detach_with(self, reason: str, condition: str) -> None:
        """Detaches the link with the error: a newer link took its place, say, or its queue is gone."""
        self.link.detach(closed=True, error=Error(Symbol(condition), reason))
        self.peer.touch()
        self.forget()
        self.parts.links.drains.pop(self, None)

    def credited(self) -> None:
        self.queue.touch()
        self.parts.links.draining(self)

    def drain_if_idle(self) -> bool:
        """Answers a drain if there is nothing to send now; True if the drain was answered (CLIENTS 23, 24)."""
        raise AssertionError("such a link is a consumer or a reader")

    def offer_again(self) -> None:
        """It was deferred in this turn: its queue is offered in the next one, after those for which this was called
        before."""
        self.queue.work.dirty_queues.pop(self.queue, None)
        self.queue.touch()
