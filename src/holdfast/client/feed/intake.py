"""What all sources of a feed hand their lines to: bounded, in batches into the journal.

Rules of this file: a source reads when `room` has returned, and adds what it read at once. A line that is not a message
is printed and counted; its place counts all the same. The journal is used by one thread at a time.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.client.feed.forms import Form
from holdfast.client.feed.journal import Journal, Kept, Line
from holdfast.client.feed.places import FileId, Place
from holdfast.client.verbs.running import in_thread
from holdfast.errors import LocalProtocolError
from holdfast.lines import say

T = TypeVar("T")

PENDING_BYTES_MAX: Final = 1024 * 1024
"""Of lines that wait for the journal; each source may add what one of its reads gave."""
BATCH_LINES_MAX: Final = 1_000
LINE_COST: Final = 100
"""Bytes that a line counts beside its own."""
TOLD_PER_MINUTE: Final = 20
"""Lines about what devices do wrong; more are counted."""
AGAIN_S: Final = 1.0
"""Between two tries to write to a disk that takes nothing."""


class Given(NamedTuple):
    """A device's line. `line`: None of one that was too long; `names`: the columns that its stream has named."""

    source: str
    line: bytes | None
    names: list[str] | None = None
    place: Place | None = None


class Complaints:
    """What devices do wrong, on standard error, a bounded number of lines each minute."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._until = 0.0
        self._left = 0
        self._more = 0

    def tell(self, text: str) -> None:
        """Says it, or counts it."""
        now = time.monotonic()
        if now >= self._until:
            more, self._more = self._more, 0
            self._until, self._left = now + 60.0, TOLD_PER_MINUTE
            if more:
                say(f"holdfast {self._verb}: {more} lines like these were left out", file=sys.stderr)
        if self._left:
            self._left -= 1
            say(f"holdfast {self._verb}: {text}", file=sys.stderr)
        else:
            self._more += 1


class Intake:
    """Lines on their way into the journal."""

    def __init__(
        self,
        journal: Journal,
        form: Form,
        producer: str,
        *,
        held_bytes_max: int,
        line_bytes_max: int,
        complaints: Complaints,
    ) -> None:
        self.read = 0
        """Lines that came, the empty ones left out."""
        self.invalid = 0
        """Of those, and of lines that were to name columns, how many are no message; and files that are read once and
        could not be."""
        self.journaled = 0
        """Messages that this run put into the journal."""
        self.form = form
        self.line_bytes_max = line_bytes_max
        self.complaints = complaints
        self._journal = journal
        self._producer = producer
        self._held_bytes_max = held_bytes_max
        self._pending: list[Given] = []
        self._pending_bytes = 0
        self._writing = 0
        self._changes = 0
        self._turn = asyncio.Lock()
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def places(self) -> dict[FileId, Place]:
        """How far each file has been journaled."""
        return self._journal.places

    def follow(self, files: Container[FileId]) -> None:
        """These are read, and their places are kept as long as they are."""
        self._journal.followed = files

    async def room(self) -> None:
        """Returns when more may be read: while a node takes nothing that is never. What comes of one read is added
        without another wait, so that only one source goes past the bound at a time."""
        await self._until(lambda: self._pending_bytes < PENDING_BYTES_MAX)

    def add(self, lines: Sequence[Given]) -> None:
        """Takes the lines of one read."""
        self._pending += lines
        self._pending_bytes += sum(map(_cost, lines))
        self._changed()

    @property
    def is_idle(self) -> bool:
        """Whether all that was added is in the journal."""
        return not self._pending and not self._writing

    async def stored(self) -> None:
        """Returns when all that was added is in the journal."""
        await self._until(lambda: self.is_idle)

    async def run(self) -> None:
        """Writes what is added, for ever. Raises StorageError."""
        while True:
            await self._until(lambda: bool(self._pending) and self._journal.held_bytes < self._held_bytes_max)
            batch = self._pending[:BATCH_LINES_MAX]
            del self._pending[: len(batch)]
            self._writing = len(batch)
            await self._append([(given, self._made(given)) for given in batch])
            self._writing = 0
            self._pending_bytes -= sum(map(_cost, batch))
            self._changed()

    async def following(self) -> list[Kept]:
        """The next messages of the journal, in their order; waits for one."""
        while True:
            changes = self._changes
            if found := await self.in_turn(self._journal.read):
                return found
            await self._until(partial(self._has_changed, changes))

    async def ended(self, numbers: Iterable[int]) -> None:
        """These messages have their outcome."""
        await self.in_turn(self._journal.ended, list(numbers))
        self._changed()

    def _has_changed(self, since: int) -> bool:
        return self._changes != since

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _changed(self) -> None:
        self._changes += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def in_turn(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function`, which uses the journal, in a thread: the only one until its end, also if this is cancelled."""
        async with self._turn:
            work = asyncio.ensure_future(in_thread(function, *arguments))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise

    # ------------------------------------------------------------------------------------------ internals

    def _made(self, given: Given) -> Message | None:
        """None where the line is no message."""
        if given.line is not None and not given.line.strip():
            return None
        self.read += 1
        try:
            if given.line is None:
                raise ValueError(f"the line is too long; the limit is {self.line_bytes_max} bytes")
            return self.form.message(given.line, given.names)
        except ValueError as error:
            self._leave_out(given, error)
            return None

    def _leave_out(self, given: Given, error: Exception) -> None:
        self.invalid += 1
        self.complaints.tell(f"{given.source}: not sent: {error}")

    async def _append(self, batch: list[tuple[Given, Message | None]]) -> None:
        created_ms = int(time.time() * 1000)
        number = self._journal.next_number
        lines = []
        for given, message in batch:
            payload = None
            if message is not None and message.properties is not None:
                message.properties.message_id = f"{self._producer}-{number}"
                message.properties.creation_time = created_ms
                try:
                    payload = message.encode()
                    number += 1
                except LocalProtocolError as error:
                    self._leave_out(given, error)
            lines.append(Line(payload, given.place))
        while True:
            try:
                await self.in_turn(self._journal.append, lines)
                break
            except OSError as error:
                text = f"{self._journal.directory}: {error.strerror}; nothing is read until the disk takes more"
                self.complaints.tell(text)
                await asyncio.sleep(AGAIN_S)
        self.journaled += sum(line.message is not None for line in lines)


def _cost(given: Given) -> int:
    return LINE_COST + len(given.line or b"")
