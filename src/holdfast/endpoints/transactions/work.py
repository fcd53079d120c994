"""What a transaction holds until it is discharged: messages that it posts, and deliveries that it takes (§4.4).

Rules of this file: data, and the contracts of the links whose work it is. A message that is posted has no sequence and
no identity; a delivery that is taken is in the hands of the transaction, and in nobody else's.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from holdfast.amqp.connection import Delivery, Sender
from holdfast.amqp.wire.performatives import Error
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.blob import Blob
from holdfast.broker.queue import Queue
from holdfast.broker.stored.producers import Producer
from holdfast.broker.topic import Topic
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use

TRANSACTION_BYTES: Final = 2_048
POST_BYTES: Final = 640
TAKE_BYTES: Final = 512
"""What a transaction holds in memory beside its work, and what each message and each delivery holds, about."""


class Prepared(NamedTuple):
    """A message that a link has checked: its entry without an identity, and where it goes. `number`: of its named
    producer, where it has one."""

    value: bytes
    size: int
    queue: Queue
    destination: str | None
    to: str
    unknown: str | None
    producer: Producer | None = None
    number: int = 0


class Answering(Protocol):
    """A client's link on which messages of a transaction come."""

    peer: Peer

    def settle_one(self, delivery_id: int, settled: bool, outcome: object) -> None: ...


@runtime_checkable
class Bringing(Answering, Protocol):
    """One that knows where its messages go."""

    link: Any
    remembers_tags: bool
    """Whether the tags of what is stored are remembered (endpoints/resumption/producer.py)."""

    def prepare(self, delivery: Delivery, *, large: Stream | None) -> Prepared:
        """What would be stored of it, if its queue had room. RemoteProtocolError or Refusal where it cannot be taken
        whatever room there is."""

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
        """A delivery that it had is in its hands again."""

    def take_away(self, sequence: int, size: int) -> None:
        """A delivery is in its hands no more."""

    def exclude(self, sequence: int) -> None:
        """The entry is undeliverable on it."""


@dataclass(eq=False, slots=True)
class Post:
    """A message that waits for the discharge. `epoch`: of its named producer, as it was posted."""

    link: Bringing
    delivery_id: int
    settled: bool
    message: Prepared
    epoch: int
    blob: Blob | None
    told: bool = False
    """Whether what needs no disk was done of it, after the commit."""


@dataclass(eq=False, slots=True)
class Take:
    """A delivery that was given an outcome in a transaction. `left`: its link ended before its peer had settled it."""

    transaction: "Transaction"
    link: Taking
    sequence: int
    size: int
    outcome: Any
    settled: bool
    extra_bytes: int
    """What is counted of it beyond TAKE_BYTES: its outcome in the peer's own words."""
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
    """What a transaction does to the bounds of one queue: what it brings, what it takes off, and what it has reserved.
    A count of messages, and of bytes."""

    brought: int = 0
    brought_bytes: int = 0
    taken: int = 0
    taken_bytes: int = 0
    reserved: int = 0
    reserved_bytes: int = 0


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
    """Whether its work is in a turn's batch: what becomes of it is decided with that."""

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


def reserve(queue: Queue, share: Share) -> None:
    """Brings what is reserved in the queue up to date: what the transaction brings, less what it takes off."""
    messages = max(0, share.brought - share.taken)
    size = max(0, share.brought_bytes - share.taken_bytes)
    queue.reserved += messages - share.reserved
    queue.reserved_bytes += size - share.reserved_bytes
    share.reserved, share.reserved_bytes = messages, size


def stays_within(queue: Queue, share: Share) -> bool:
    """Whether what the transaction brings has room still, now that it takes less off the queue; as `fits` says."""
    config = queue.config
    held = queue.messages + queue.reserved
    if config.messages_max is not None and share.reserved and held > config.messages_max:
        return False
    if config.bytes_max is None or not share.reserved_bytes:
        return True
    return queue.bytes_held + queue.reserved_bytes <= config.bytes_max or held <= 1  # an empty queue takes any size


def fits(queue: Queue, share: Share, size: int, priority: int) -> bool:
    """Whether a message more of `size` bytes stays within the bounds of the queue for its priority, beside what others
    have reserved."""
    if isinstance(queue, Topic) and not queue.named:  # nothing of it is stored
        return True
    messages_max, bytes_max = queue.bounds(priority)
    messages = max(0, share.brought + 1 - share.taken) - share.reserved
    more = max(0, share.brought_bytes + size - share.taken_bytes) - share.reserved_bytes
    held = queue.messages + queue.reserved
    if messages_max is not None and messages > 0 and held + messages > messages_max:
        return False
    if queue.memory is not None and not queue.memory.fits(share.brought_bytes + size):
        return False
    if bytes_max is None or more <= 0 or queue.bytes_held + queue.reserved_bytes + more <= bytes_max:
        return True
    return held - share.taken <= 0 and not share.brought  # an empty queue takes any size
