"""What the source asks of a node, and the errors that end a query.

Rules of this file: the port only; `node_bus.py` speaks to a real node. Sequences are whole numbers from 1,
ranges half-open. Numbers, not messages, are what a query's offsets hold, so that every call here may be
repeated.
"""

from collections.abc import Generator, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import ConfigError, HoldfastError
from holdfast.units import MIB

LARGE_BYTES: Final = 16 * MIB
"""A message with more bytes is read alone and, where its row would be too large, is never in memory as a whole."""


class ReaderFenced(HoldfastError):
    """Another reader opened the subscription after us: this query must end and touch nothing more."""


class NodeUnreachable(HoldfastError):
    """The node could not be reached, or did not answer, for as long as the query may wait."""


class QueueMadeAnew(ConfigError):
    """The queue is not the one that the checkpoint has read."""


class Position(NamedTuple):
    """A subscription's place: all below `advanced` is done; entries lie in [`head`, `tail`)."""

    queue_uuid: str
    advanced: int
    head: int
    tail: int
    lease_epoch: int


class Lease(NamedTuple):
    """What a call must show so that a predecessor's late one is refused."""

    subscription: str
    queue_uuid: str
    lease_epoch: int


class Entry(NamedTuple):
    """An entry of a queue: its place, when it was stored (ms since 1970), and the message, a Message or its bytes as
    the node delivers them. `undecodable`: of one that is larger than a row may be, its bytes as they come, to be read
    before the next entry, or left, and the reason."""

    sequence: int
    enqueued_ms: int | None
    message: Any
    undecodable: tuple[bytes | Iterator[bytes], str] | None = None


class Window(NamedTuple):
    """What a batch may take of a queue: the entries below `end`; `tail` is where the queue ends now, and `average` the
    size of its messages, 0 where it is not known. `messages` and `bytes` are counted only where an exact bound was
    asked for; then `more` says whether the bound ended the range."""

    end: int
    tail: int
    average: int = 0
    messages: int | None = None
    bytes: int | None = None
    more: bool = False


Start = str | int | datetime
"""Where a new subscription begins: `first`, `next`, a sequence, or the first message that was stored at a time."""


class Bus(Protocol):
    """One reader's way to one queue. Network errors are retried inside, for a bounded time."""

    def open(self, start: Start, mode: str) -> Position:
        """Takes the lease, which fences whoever had it; makes the subscription where missing."""

    def place(self) -> Position:
        """The subscription's place, without taking the lease. `lease_epoch` is that of whoever has it."""

    def bounds(self) -> Position:
        """The queue's, without a subscription: `advanced` is the head."""

    def peek(self, lease: Lease, start: int, rows_max: int | None, bytes_max: int | None) -> Window:
        """The range from `start`: at most `rows_max` sequences, one at least. `bytes_max` is met by the average size of
        what the queue holds: a range of larger messages than that has more bytes."""

    def measure(self, lease: Lease, start: int, rows_max: int, bytes_max: int) -> Window:
        """The range from `start` with at most so many messages and bytes, both counted; one message at least, whatever
        its size."""

    def gaps(self, lease: Lease, ranges: list[tuple[int, int]]) -> tuple[int, int]:
        """How many of the messages of these ranges expired, and how many were dropped, as far as the node knows."""

    def advance(self, lease: Lease, sequence: int) -> int:
        """All below `sequence` is done; returns the place reached. Idempotent and monotone."""

    def entries(self, start: int, end: int, lease: Lease | None) -> Generator[Entry, None, None]:
        """The entries of [`start`, `end`) in order, each once, over as many connections as it takes."""

    def close(self) -> None:
        """Idempotent."""


class Node(Protocol):
    """One reader's way to one node, over one connection; one thread at a time may call it and its queues."""

    @property
    def answered_at(self) -> float:
        """When it answered the last request, in steady seconds; any thread may ask."""

    def name(self) -> str:
        """The node's name, with the virtual host before it where the URL names one: `HOST@NODE`."""

    def queues(self) -> list[str]:
        """The names of all queues that can be read by sequence."""

    def bus(self, address: str) -> Bus:
        """The way to that queue; its `close` does not end the node's connection."""

    def close(self) -> None:
        """For good: what is asked later, by another thread too, is an error. Idempotent."""
