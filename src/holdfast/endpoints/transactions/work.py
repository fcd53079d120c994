"""The contents of a transaction until its discharge: messages that it posts, and deliveries that it takes (§4.4).

Rules of this file: data, and the protocols of the links that take part. A posted message has no sequence and no
identity; a taken delivery is held by the transaction alone.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from holdfast.amqp.connection import Delivery, Sender
from holdfast.amqp.wire.performatives import Error, Modified
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.blob import Blob
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.stored.producers import Producer
from holdfast.broker.topic import Topic
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use

TRANSACTION_BYTES: Final = 2_048
POST_BYTES: Final = 640
TAKE_BYTES: Final = 512
"""Bytes of memory that a transaction uses besides its work, and that each message and each delivery uses, about."""


class Prepared(NamedTuple):
    """A message that a link has checked: its entry without an identity, and its queue. `number`: that of its named
    producer, if it has one."""

    value: bytes
    size: int
    queue: Queue
    destination: str | None
    to: str
    unknown: str | None
    producer: Producer | None = None
    number: int = 0


class Answering(Protocol):
    """A client's link that brings messages of a transaction."""

    peer: Peer

    def settle_one(self, delivery_id: int, settled: bool, outcome: object) -> None: ...


@runtime_checkable
class Bringing(Answering, Protocol):
    """Such a link with a target queue."""

    link: Any
    remembers_tags: bool
    """Whether the tags of what is stored are remembered (endpoints/resumption/producer.py)."""

    def prepare(self, delivery: Delivery, *, large: Stream | None) -> Prepared:
        """The message as it would be stored if its queue had room. RemoteProtocolError or Refusal if it can never be
        accepted."""

    def stored(self, deliveries: list[int]) -> None: ...
    def refused(self, deliveries: list[int], outcome: object) -> None: ...
    def stays(self, lost: Any) -> bool: ...


class Taking(Protocol):
    """A client's consumer. `provisional`: by sequence, its deliveries without settlement that a transaction takes."""

    peer: Peer
    link: Sender
    cursor: Cursor
    queue: Queue
    use: Use | None
    provisional: "dict[int, Take]"

    def give(self, sequence: int, size: int) -> None:
        """Returns a delivery to the link."""

    def take_away(self, sequence: int, size: int) -> None:
        """Removes the delivery from those that the link holds."""

    def exclude(self, sequence: int) -> None:
        """The entry is undeliverable on this link."""


@dataclass(eq=False, slots=True)
class Post:
    """A message that waits for the discharge. `epoch`: that of its named producer when it was posted."""

    link: Bringing
    delivery_id: int
    settled: bool
    message: Prepared
    epoch: int
    blob: Blob | None
    told: bool = False
    """Whether its effects that need no disk were applied, after the commit."""

    @property
    def number(self) -> tuple[Producer, int] | None:
        """The number from its named producer, if it has one."""
        producer = self.message.producer
        return None if producer is None else (producer, self.message.number)


@dataclass(eq=False, slots=True)
class Take:
    """A delivery that got an outcome in a transaction. `left`: its link ended before the peer had settled it."""

    transaction: "Transaction"
    link: Taking
    sequence: int
    size: int
    outcome: Any
    settled: bool
    extra_bytes: int
    """Bytes that it counts beyond TAKE_BYTES, for the peer's outcome."""
    makes_room: bool
    """Whether it leaves its queue for all readers, as known when it was taken: `Share.taken` counts these."""
    left: bool = False

    @property
    def cursor(self) -> Cursor:
        return self.link.cursor

    @property
    def held_bytes(self) -> int:
        """What is counted of it in the node's memory."""
        return TAKE_BYTES + self.extra_bytes


@dataclass(eq=False, slots=True)
class Share:
    """The effect of a transaction on the bounds of one queue, in messages and bytes: what it adds, what it removes, and
    what it has reserved."""

    brought: int = 0
    brought_bytes: int = 0
    taken: int = 0
    taken_bytes: int = 0
    reserved: int = 0
    reserved_bytes: int = 0

    @property
    def wanted(self) -> tuple[int, int]:
        """What is to be reserved: messages, and bytes."""
        return max(0, self.brought - self.taken), max(0, self.brought_bytes - self.taken_bytes)


@dataclass(eq=False, slots=True)
class Transaction:
    """`error`: why only a rollback is left. `bytes`: what counts of its messages towards the bound."""

    txn_id: bytes
    peer: Peer
    until: float
    posts: list[Post] = field(default_factory=list)
    numbers: set[tuple[Producer, int]] = field(default_factory=set)
    """Of named producers, those of its messages."""
    takes: dict[tuple[Cursor, int], Take] = field(default_factory=dict)
    streams: dict[Any, None] = field(default_factory=dict)
    """Large messages of it that are whole, and not on disk yet."""
    shares: dict[Queue, Share] = field(default_factory=dict)
    operations: int = 0
    bytes: int = 0
    counted_bytes: int = TRANSACTION_BYTES
    """What is counted of it in the node's memory."""
    error: Error | None = None
    deciding: bool = False
    """Whether its work is in a turn's batch, which decides its result."""

    @property
    def held_bytes(self) -> int:
        """What it holds in memory, summed up."""
        held = TRANSACTION_BYTES + sum(POST_BYTES + len(post.message.value) for post in self.posts)
        return held + sum(taken.held_bytes for taken in self.takes.values())

    def share(self, queue: Queue) -> Share:
        found = self.shares.get(queue)
        if found is None:
            found = self.shares[queue] = Share()
        return found

    def brings(self) -> dict[Queue, tuple[int, int]]:
        """What it posts to each queue, summed up: messages, and bytes."""
        found: dict[Queue, tuple[int, int]] = {}
        for post in self.posts:
            messages, size = found.get(post.message.queue, (0, 0))
            found[post.message.queue] = messages + 1, size + post.message.size
        return found

    def takes_off(self) -> dict[Queue, tuple[int, int]]:
        """What it takes off each queue, in the same way."""
        found: dict[Queue, tuple[int, int]] = {}
        for taken in self.takes.values():
            if taken.makes_room:
                messages, size = found.get(taken.link.queue, (0, 0))
                found[taken.link.queue] = messages + 1, size + taken.size
        return found

    def recount(self) -> None:
        """Counts its contents again after a failure."""
        self.numbers = {post.number for post in self.posts if post.number is not None}
        brings, takes_off = self.brings(), self.takes_off()
        for queue in {*self.shares, *brings, *takes_off}:
            share = self.share(queue)
            if queue.kind is not QueueKind.DELAYED:  # there it is told by nothing else
                share.brought, share.brought_bytes = brings.get(queue, (0, 0))
            share.taken, share.taken_bytes = takes_off.get(queue, (0, 0))
            share.reserved, share.reserved_bytes = share.wanted


def reserve(queue: Queue, share: Share) -> bool:
    """Updates the reservation in the queue: what the transaction adds, less what it removes. Whether it has grown."""
    messages, size = share.wanted
    has_grown = messages > share.reserved or size > share.reserved_bytes
    queue.reserved += messages - share.reserved
    queue.reserved_bytes += size - share.reserved_bytes
    share.reserved, share.reserved_bytes = messages, size
    return has_grown


def stays_within(queue: Queue, share: Share) -> bool:
    """Whether there is still room for what the transaction adds, after it removes less and has reserved more; as
    in `fits`."""
    config = queue.config
    held, held_bytes = queue.occupied
    if config.messages_max is not None and share.reserved and held > config.messages_max:
        return False
    if config.bytes_max is None or not share.reserved_bytes:
        return True
    return held_bytes <= config.bytes_max or held <= 1  # an empty queue takes any size


def fits(queue: Queue, share: Share, size: int, priority: int) -> bool:
    """Whether one more message of `size` bytes and that priority fits into the queue, besides what others have
    reserved."""
    if isinstance(queue, Topic) and not queue.named:  # nothing of it is stored
        return True
    messages_max, bytes_max = queue.bounds(priority)
    messages = max(0, share.brought + 1 - share.taken) - share.reserved
    more = max(0, share.brought_bytes + size - share.taken_bytes) - share.reserved_bytes
    held, held_bytes = queue.occupied
    if messages_max is not None and messages > 0 and held + messages > messages_max:
        return False
    if queue.memory is not None and not queue.memory.fits(share.brought_bytes + size):
        return False
    if bytes_max is None or more <= 0 or held_bytes + more <= bytes_max:
        return True
    return held - share.taken <= 0 and not share.brought  # an empty queue takes any size


def requeue_settled(link: Taking, sequence: int, *, failed: bool) -> None:
    """Requeues a delivery that its peer had settled. It counts as failed with `failed`, or if the default outcome of
    its source says so."""
    outcome = link.link.default_outcome
    failed = failed or (isinstance(outcome, Modified) and bool(outcome.delivery_failed))
    link.cursor.requeue([sequence], failed=failed)
