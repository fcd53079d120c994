"""A bus in one SQLite file: the management calls and range reads that the source needs, over process borders.

Rules of this file: answers as the node's `$management` does, errors included; a change is one transaction.
The source's readers, the test and Spark's workers each open the file for themselves.
"""

import contextlib
import sqlite3
import threading
import uuid
from collections.abc import Generator
from pathlib import Path

from holdfast.amqp.wire.types import Long, Symbol, Timestamp
from holdfast.client import Message, Properties
from holdfast.errors import HoldfastError
from pyspark_holdfast.bus import Entry, Lease, Node, Position, QueueMadeAnew, ReaderFenced, Start, Window
from pyspark_holdfast.options import SourceOptions
from pyspark_holdfast.source import HoldfastDataSource

TABLES = """
create table queue (uuid text, next integer);
create table entry (seq integer primary key, body blob);
create table subscription (name text primary key, advanced integer, epoch integer);
create table gone (seq integer primary key, why text);
create table call (number integer primary key autoincrement, what text, sequence integer);
"""


class FakeQueue:
    """The queue itself, for the test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("pragma synchronous = off")
        return connection

    def make(self) -> None:
        """A queue made anew: another UUID, nothing in it, subscriptions gone."""
        self.path.unlink(missing_ok=True)
        with contextlib.closing(self.connect()) as connection:
            connection.executescript(TABLES)
            connection.execute("insert into queue values (?, 1)", (str(uuid.uuid4()),))

    def put(self, count: int) -> None:
        """`count` entries more; the body of each is its sequence as text."""
        with contextlib.closing(self.connect()) as connection:
            connection.execute("begin immediate")
            (first,) = connection.execute("select next from queue").fetchone()
            connection.executemany(
                "insert into entry values (?, ?)", [(n, str(n).encode()) for n in range(first, first + count)]
            )
            connection.execute("update queue set next = ?", (first + count,))
            connection.execute("commit")

    def lose(self, why: str, *sequences: int) -> None:
        """These entries leave: they have `expired`, were `dropped`, or nobody knows why."""
        with contextlib.closing(self.connect()) as connection:
            for sequence in sequences:
                connection.execute("delete from entry where seq = ?", (sequence,))
                connection.execute("insert into gone values (?, ?)", (sequence, why))

    def advanced(self, name: str = "s") -> int:
        with contextlib.closing(self.connect()) as connection:
            return int(connection.execute("select advanced from subscription where name = ?", (name,)).fetchone()[0])

    def calls(self, what: str) -> list[int]:
        """The sequences of all calls `what`, in order."""
        with contextlib.closing(self.connect()) as connection:
            found = connection.execute("select sequence from call where what = ? order by number", (what,))
            return [int(row[0]) for row in found]


class FakeBus:
    """One reader's way to a FakeQueue; `options.address` is its file."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.connection = FakeQueue(Path(options.address)).connect()

    def _position(self) -> Position:
        uuid_text, tail = self.connection.execute("select uuid, next from queue").fetchone()
        (head,) = self.connection.execute("select coalesce(min(seq), ?) from entry", (tail,)).fetchone()
        row = self.connection.execute(
            "select advanced, epoch from subscription where name = ?", (self.options.subscription,)
        ).fetchone() or (head, 0)
        return Position(uuid_text, row[0], head, tail, row[1])

    def _check(self, lease: Lease) -> None:
        place = self._position()
        if lease.queue_uuid != place.queue_uuid:
            raise QueueMadeAnew("queue was deleted and created again")
        if lease.lease_epoch != place.lease_epoch:
            raise ReaderFenced(f"subscription {lease.subscription!r} was taken over")

    def open(self, start: Start, mode: str) -> Position:
        place = self._position()
        first = start if isinstance(start, int) else place.head if start == "first" else place.tail
        self.connection.execute(
            "insert into subscription values (?, ?, 1) on conflict (name) do update set epoch = epoch + 1",
            (self.options.subscription, first),
        )
        return self._position()

    def place(self) -> Position:
        return self._position()

    def bounds(self) -> Position:
        place = self._position()
        return place._replace(advanced=place.head, lease_epoch=0)

    def peek(self, lease: Lease, start: int, rows_max: int | None, bytes_max: int | None) -> Window:
        self._check(lease)
        tail = self._position().tail
        return Window(tail if rows_max is None else min(tail, start + rows_max), tail)

    def measure(self, lease: Lease, start: int, rows_max: int, bytes_max: int) -> Window:
        """A message has as many bytes as its body."""
        self._check(lease)
        rows = self.connection.execute("select seq, length(body) from entry where seq >= ? order by seq", (start,))
        end, messages, size, tail = start, 0, 0, self._position().tail
        for sequence, own in rows:
            if messages and (messages >= rows_max or size + own > bytes_max):
                return Window(end, tail, 0, messages, size, True)
            end, messages, size = sequence + 1, messages + 1, size + own
        return Window(max(start, tail), tail, 0, messages, size)

    def gaps(self, lease: Lease, ranges: list[tuple[int, int]]) -> tuple[int, int]:
        gone = self.connection.execute("select seq, why from gone").fetchall()
        reasons = [why for sequence, why in gone for first, end in ranges if first <= sequence < end]
        return reasons.count("expired"), reasons.count("dropped")

    def advance(self, lease: Lease, sequence: int) -> int:
        self._check(lease)
        self.connection.execute("begin immediate")
        self.connection.execute("insert into call (what, sequence) values ('advance', ?)", (sequence,))
        self.connection.execute(
            "update subscription set advanced = max(advanced, ?) where name = ?",
            (sequence, lease.subscription),
        )
        self.connection.execute("delete from entry where seq < ?", (sequence,))
        self.connection.execute("commit")
        return self._position().advanced

    def entries(self, start: int, end: int, lease: Lease | None) -> Generator[Entry, None, None]:
        if lease is not None:
            self._check(lease)
        rows = self.connection.execute(
            "select seq, body from entry where seq >= ? and seq < ? order by seq", (start, end)
        )
        for sequence, body in rows:
            message = Message(
                properties=Properties(message_id=f"m-{sequence}", creation_time=Timestamp(1_700_000_000_000)),
                application_properties={"number": Long(sequence)},
                message_annotations={Symbol("x-opt-a"): True},
                data=[body],
            )
            yield Entry(sequence, 1_700_000_000_123 + 1_000 * sequence, message)

    def close(self) -> None:
        self.connection.close()


class FakeNode:
    """A node whose queues are files: an address is a file's path. The URL's host is its name."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.answered_at = 0.0
        self.buses: list[FakeBus] = []
        self.lock = threading.RLock()
        self.closed = False

    def name(self) -> str:
        return self.options.url.host

    def queues(self) -> list[str]:
        directory = Path(self.options.address).parent
        return sorted(str(path) for path in directory.glob("*.db"))

    def bus(self, address: str) -> FakeBus:
        with self.lock:
            if self.closed:
                raise HoldfastError(f"{self.options.url}: the connection was closed")
            self.buses.append(FakeBus(self.options.at(self.options.url, address)))
            return self.buses[-1]

    def close(self) -> None:
        with self.lock:
            self.closed = True
            while self.buses:
                self.buses.pop().close()


class FakeDataSource(HoldfastDataSource):
    """The source, over a FakeQueue."""

    @classmethod
    def name(cls) -> str:
        return "fakebus"

    def node(self, options: SourceOptions) -> Node:
        return FakeNode(options)
