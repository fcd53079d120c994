"""Turns of the loop: the contents of the gathered one, what waits for its commit, and the one that is being committed.

Rules of this file: data only. Order of a turn: gather, commit, then settle (CUSTODY: no accepted answer before a stored
copy). A refused turn is undone: its numbers are given back, and moved copies stay where they were.
"""

from collections.abc import Collection, Container
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.amqp.connection import Sender
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.blob import Blob
from holdfast.broker.queue import Queue
from holdfast.broker.stored.custody_records import OriginRecord, Renewal
from holdfast.broker.stored.groups import Waiting
from holdfast.broker.stored.loss_records import LossRecord
from holdfast.broker.stored.origins import Origin
from holdfast.broker.stored.producers import Producer
from holdfast.broker.stored.ranges import RangeSet
from holdfast.engine.effects import Effect, Effects, described
from holdfast.engine.port import Batch
from holdfast.peers.peer import Peer


class OfPeer(Protocol):
    """A link of that peer."""

    peer: Peer


class Arrivals(OfPeer, Protocol):
    """A link with deliveries in the turn: it is notified when they are on disk or were refused."""

    def stored(self, deliveries: list[int]) -> None: ...
    def refused(self, deliveries: list[int], outcome: object) -> None: ...
    def stays(self, lost: Container[Queue]) -> bool:
        """Whether its messages stay although their turn is undone. `lost`: queues in memory that lost some of them."""


class Arriving(Protocol):
    """A large message with pieces in the batch; `bringer`: its link."""

    blob: Blob

    @property
    def bringer(self) -> OfPeer: ...
    def refuse(self, why: str) -> None:
        """Its pieces in the batch were not stored, for that reason."""


class Tied(NamedTuple):
    """An entry that leaves only if its turn is stored: its holder, its size as its queue counts it, and its failed
    deliveries."""

    cursor: Cursor
    consumer: object
    size: int
    failures: int | None


Extent = tuple[int, ...] | None
"""How much a turn had gathered (Turn.extent); None: not known."""


@dataclass(slots=True)
class Turn:
    """Gathered since the last commit was handed over. Snapshots hold the state before the turn's first change."""

    batch: Batch
    arrivals: dict[Arrivals, list[int]] = field(default_factory=dict)
    moves: list[tuple[Queue, int, bytes]] = field(default_factory=list)
    """Entries whose copy elsewhere is in this very batch: (queue, sequence, value)."""
    tied: dict[tuple[int, int], Tied] = field(default_factory=dict)
    """By (queue id, sequence): entries among those that leave which stay if the turn is undone. Of others that is true
    of no entry: what was taken is taken."""
    answers: list[tuple[Sender, int, int, object]] = field(default_factory=list)
    """Dispositions of receivers that settle second: answered when the retirement is on disk."""
    then: list[Effect] = field(default_factory=list)
    """Carried out once all that was taken before is on disk, or was refused."""
    decided: list[Effect] = field(default_factory=list)
    """Carried out once it is on disk, or was undone and nothing of it has happened; their handlers get which."""
    visible: list[tuple[Queue, int]] = field(default_factory=list)
    watermarks: list[tuple[Cursor, int]] = field(default_factory=list)
    producers: dict[Producer, RangeSet] = field(default_factory=dict)
    origins: dict[Origin, tuple[OriginRecord, list[tuple[int, Waiting | None]]]] = field(default_factory=dict)
    """As they were, and what of their waiting numbers changed: (number, what it had been), in the order of change."""
    touched: dict[Origin, None] = field(default_factory=dict)
    """Origins whose records go with it."""
    reached: dict[tuple[UUID, str], int] = field(default_factory=dict)
    """By origin and virtual host: its mark, once the batch is on disk."""
    hops: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    """By the key of a hop: (epoch, last stored), once the batch is on disk."""
    identities: dict[str, int] = field(default_factory=dict)
    begun_anew: bool = False
    """Whether the store got a new UUID in it: all numbers of identities begin anew with its batch."""
    renewals: dict[str, tuple[Renewal, int]] = field(default_factory=dict)
    """By destination: what was numbered anew, and where that had come to before."""
    failures: dict[tuple[int, int], int] = field(default_factory=dict)
    """By (queue id, sequence): failed deliveries of what is in `moves`, where those are stored."""
    counts: list[tuple[Cursor, frozenset[int]]] = field(default_factory=list)
    """(cursor, sequences) whose failed deliveries are in it."""
    rewritten: dict[tuple[Queue, int], bytes] = field(default_factory=dict)
    """Entries whose value was put anew at its old place, and the last that the turn gave them."""
    losses: list[LossRecord] = field(default_factory=list)
    """What it gives up: reported once it is on disk (losses.py)."""
    settled_bytes: int = 0
    """Of messages that consumers rejected or annotated, and that are in the batch anew (endpoints/settlements.py)."""
    changes: int = 0
    """Counts changes of rows that the turn already has, which no size shows."""
    heard: dict[Peer, int] = field(default_factory=dict)
    """Bytes read from each connection, and all together."""
    heard_bytes: int = 0
    streams: dict[Arriving, None] = field(default_factory=dict)
    """Large messages of which pieces are in the batch."""
    referred: list[tuple[Queue, int, int]] = field(default_factory=list)
    """(queue, sequence, blob) of what is appended and refers to a blob."""
    left: list[tuple[int, int]] = field(default_factory=list)
    """(queue id, sequence) of entries that referred to a blob and left a queue in memory."""
    blobs: dict[Blob, dict[tuple[int, int], None]] = field(default_factory=dict)
    """The entries that refer to each blob, once the batch is on disk."""
    dropped: list[tuple[Blob, int]] = field(default_factory=list)
    """Blobs of which all pieces below that index are gone, once the batch is on disk."""

    def __bool__(self) -> bool:
        return bool(self.batch or self.arrivals or self.answers or self.then or self.decided)

    def extent(self) -> tuple[int, ...]:
        """How much was gathered, by kind: a difference from an earlier result means that the turn has changed since."""
        batch = self.batch
        return (
            len(batch.appends), len(batch.retires), len(batch.puts), len(batch.deletes), len(batch.pieces),
            len(self.arrivals), len(self.moves), len(self.answers), len(self.then), self.changes,
        )  # fmt: skip

    def describe(self) -> str:
        """Its contents in words: how much of each kind, and each effect."""
        batch = self.batch
        deliveries = sum(map(len, self.arrivals.values()))
        return (
            f"{len(batch.appends)} appended, {len(batch.retires)} retired, {len(self.moves)} moved, "
            f"{len(batch.puts)} rows put, {len(batch.deletes)} deleted, {len(batch.pieces)} pieces; "
            f"{deliveries} deliveries on {len(self.arrivals)} links, {len(self.answers)} answers; "
            f"then: {described(self.then) or 'nothing'}; decided: {described(self.decided) or 'nothing'}"
        )

    def forget_heard(self) -> None:
        """The bytes that were read do not need the disk."""
        self.heard.clear()
        self.heard_bytes = self.settled_bytes = 0

    def arrived(self, link: Arrivals, delivery_id: int) -> None:
        ids = self.arrivals.get(link)
        if ids is None:
            self.arrivals[link] = [delivery_id]
        else:
            ids.append(delivery_id)

    def arrived_all(self, link: Arrivals, first_id: int, count: int) -> None:
        """As `arrived`, for `count` deliveries with consecutive ids."""
        self.arrivals.setdefault(link, []).extend(range(first_id, first_id + count))

    def keep_producer(self, producer: Producer) -> None:
        self.changes += 1
        if producer not in self.producers:
            self.producers[producer] = producer.stored.copy()

    def keep_origin(self, origin: Origin) -> None:
        self.changes += 1
        if origin not in self.origins:
            record = origin.record()
            finished, ended, clocks = record.finished.copy(), record.ended.copy(), record.clocks.copy()
            self.origins[origin] = (record._replace(finished=finished, ended=ended, clocks=clocks), [])

    def waiting_changes(self, origin: Origin, number: int) -> None:
        """That number begins or stops waiting; the origin's snapshot was taken already."""
        self.origins[origin][1].append((number, origin.waiting.get(number)))


@dataclass(slots=True)
class Undone:
    """Turns that are undone, the latest first. `refusal`: why the disk refused them, empty after a contained failure;
    `ended`: the peers that end because of it. `lost`: queues in memory that lose something."""

    turns: tuple[Turn, ...]
    refusal: str
    ended: Collection[Peer]
    lost: dict[Queue, None] = field(default_factory=dict)


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """The numbers, in order, as inclusive ranges, each of which fits one disposition (AMQP 1.0 §2.7.6). Serial numbers
    of 32 bits: a range ends at the wrap. A peer may choose them in any order.
    """
    first = last = numbers[0]
    count = len(numbers)
    if numbers[-1] - first == count - 1 and (count == 1 or numbers == list(range(first, first + count))):
        return [(first, numbers[-1])]  # one run, the usual case
    found: list[tuple[int, int]] = []
    for number in numbers[1:]:
        if number == last + 1:
            last = number
            continue
        found.append((first, last))
        first = last = number
    found.append((first, last))
    return found


class Turns:
    """`gathered`: the turn to which events add. `in_flight`: the one whose commit is not answered yet. `number`: that
    of the last commit. `event`: the number of the event that is being handled, from 1. `effects`: the handlers of what
    follows a commit; parts that add effects to a turn register them."""

    __slots__ = ("effects", "event", "gathered", "in_flight", "number")

    def __init__(self, batch: Batch) -> None:
        self.gathered = Turn(batch)
        self.in_flight: Turn | None = None
        self.number = self.event = 0
        self.effects = Effects()

    @property
    def has_changes(self) -> bool:
        """Whether a turn waits for the disk, so that what is in memory may not be on disk yet."""
        return self.in_flight is not None or bool(self.gathered)

    def answers_later(self, link: object) -> bool:
        """Whether messages of that link wait for a commit, and then for their answers."""
        return link in self.gathered.arrivals or (self.in_flight is not None and link in self.in_flight.arrivals)
