"""The work of a task of the sink: the rows of a partition, each under its number, until the node has stored all.

Rules of this file: one event loop, in the worker's own thread; rows are read in a thread, so that the connection lives
while Spark computes them. A producer's name is that of the sink and the partition, a number is a row's place: what is
sent again has the same, and the node drops it (docs/CUSTODY.md, Producers). A later attempt of a task fences the one
before it.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from holdfast.client import Connection, Message, Outcome, Rejected, Sender, connect
from holdfast.client.errors import ConnectionFailed, LinkError, LinkStolen
from holdfast.client.outcomes import is_not_taken
from holdfast.client.verbs.running import STALLED_S, STALLS, Progress, in_thread, telling_stalls
from holdfast.collecting import collecting_rarely
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import say
from pyspark_holdfast.outgoing import counting, message_of_row
from pyspark_holdfast.outgoing_plain import bodies_of
from pyspark_holdfast.sink_options import SinkOptions
from pyspark_holdfast.sink_state import Numbers

if TYPE_CHECKING:
    from pyarrow import RecordBatch

VERB: Final = "Spark sink"
"""How lines on standard error begin, after `holdfast`."""
IN_DOUBT_MAX: Final = 1000
"""Messages of one sender without an outcome."""
IN_DOUBT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the rows of all senders of a task: of each the message is held, and what the client has made of it."""
ROWS_AT_ONCE: Final = 200
"""Rows that are made into messages before the connection has its turn."""
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Of these rows, unless one alone has more."""
ADDRESSES_MAX: Final = 100
"""Addresses that a task sends to."""
CHECKED_MAX: Final = 1_000
"""Producers that are asked for their numbers before a batch, those that were used last."""
GONE: Final = ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed")
"""Why a node refuses a link to a place to which no row of ours can go."""
CHECKED_AT_ONCE: Final = 100
"""Producers that are asked for their numbers at the same time."""
PAUSE_S: Final = 0.5
"""Before a message that the node had no room for is sent again."""


def producer_name(producer: str, partition: int) -> str:
    return f"{producer}-{partition}"


def send_partition(
    options: SinkOptions,
    producer: str,
    partition: int,
    first: Mapping[str, int],
    batches: Iterator["RecordBatch"],
    *,
    knows: bool,
) -> dict[str, int]:
    """Sends all rows and returns how many there were for each address; returns once the node has stored them.

    `first`: the number of the first row for each address, 1 of those that are not there. `knows`: rows may have been
    sent before, so the node must know the numbers below. Raises HoldfastError, in one line.
    """
    task = _Task(options, producer_name(producer, partition), partition, first, knows=knows)
    with collecting_rarely():
        return asyncio.run(task.run(batches))


def check_numbers(options: SinkOptions, producer: str, numbers: Numbers) -> None:
    """Raises ConfigError where the node has numbers of these producers that come only later: then the checkpoint is an
    older copy, and new rows would be dropped for known ones."""
    wanted = [(address, partition, number) for address, of in numbers.items() for partition, number in of.items()]
    if wanted:
        asyncio.run(_check_numbers(options, producer, wanted[-CHECKED_MAX:]))


async def _check_numbers(options: SinkOptions, producer: str, wanted: list[tuple[str, int, int]]) -> None:
    async def check(connection: Connection, address: str, partition: int, number: int) -> None:
        sender = await _unless_gone(connection, address, producer_name(producer, partition))
        if sender is None:
            return
        if sender.last_number >= number:
            raise ConfigError(
                f"{_where(options, address)}: the node has number {sender.last_number} of producer "
                f"{sender.producer!r}, and the checkpoint gives {number} next: it is an older copy, or another query "
                "uses the name; use a new checkpoint, and another 'producer' if you name one"
            )
        await sender.close()

    try:
        async with await connect(options.url, retry_s=options.retry_s, ca_file=options.ca_file) as connection:
            for start in range(0, len(wanted), CHECKED_AT_ONCE):
                await asyncio.gather(*(check(connection, *one) for one in wanted[start : start + CHECKED_AT_ONCE]))
    except (LinkError, ConnectionFailed) as error:
        raise HoldfastError(f"{_where(options, wanted[0][0])}: {error}") from error


async def _unless_gone(connection: Connection, address: str, producer: str) -> Sender | None:
    """A sender that asks for a producer's numbers; None where the address is gone since they were used."""
    try:
        return await connection.sender(address, producer=producer)
    except LinkError as error:
        if error.condition in GONE:
            return None
        raise


def _where(options: SinkOptions, address: str) -> str:
    return f"queue {address!r} at {options.url}"


class _Task:
    def __init__(
        self, options: SinkOptions, producer: str, partition: int, first: Mapping[str, int], *, knows: bool
    ) -> None:
        self._options = options
        self._producer = producer
        self._partition = partition
        self._first = first
        self._knows = knows
        self._outflows: dict[str, _Outflow] = {}
        self._rows = 0

    async def run(self, batches: Iterator["RecordBatch"]) -> dict[str, int]:
        options = self._options
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(
                    await connect(options.url, retry_s=options.retry_s, ca_file=options.ca_file)
                )
                async for part in _slices(batches, self._settle):
                    for address, rows in groupby(self._messages(part), key=itemgetter(0)):
                        outflow = self._outflows.get(address)
                        if outflow is None:
                            outflow = self._outflows[address] = await self._attach(stack, connection, address)
                        await outflow.put(message for _, message in rows)
                for outflow in self._outflows.values():
                    await outflow.end()
                if self._knows:
                    await self._check_others(connection)
            except ConnectionFailed as error:
                raise HoldfastError(f"{options.url}: {error}") from error
        return {address: outflow.count for address, outflow in self._outflows.items()}

    async def _settle(self) -> None:
        """Returns once nothing is in doubt."""
        for outflow in self._outflows.values():
            await outflow.settle()

    async def _check_others(self, connection: Connection) -> None:
        """Raises HoldfastError where there were rows for an address the first time, and are none now."""
        named = self._options.address
        for address in self._first if named is None else (named,):
            if address not in self._outflows:
                where, last = _where(self._options, address), self._first.get(address, 1) - 1
                try:
                    sender = await _unless_gone(connection, address, self._producer)
                    if sender is not None:
                        _check_fewer(where, sender, last)
                        await sender.close()
                except LinkError as error:
                    raise _told(where, self._producer, error) from error

    def _messages(self, part: "RecordBatch") -> Iterator[tuple[str, Message | bytes]]:
        """Of each row its address and its message."""
        address = self._options.address
        bodies = None if address is None else bodies_of(part)
        if address is not None and bodies is not None:
            self._rows += part.num_rows
            yield from zip(repeat(address), bodies)
            return
        for row in self._rows_of(part):
            self._rows += 1
            yield self._message(row)

    def _rows_of(self, part: "RecordBatch") -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = part.to_pylist(maps_as_pydicts="strict")
        except (KeyError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"rows {self._rows + 1} to {self._rows + part.num_rows} of partition {self._partition}: "
                f"{error.args[0]}; expected times of the years 1 to 9999, and each key of a map once"
            ) from None
        return found

    def _message(self, row: dict[str, Any]) -> tuple[str, Message | bytes]:
        address = self._options.address or row.get("address")
        try:
            if not isinstance(address, str) or not address:
                raise ValueError(f"invalid value {address!r:.80} in column 'address'; expected a queue's name")
            return address, message_of_row(row)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"row {self._rows} of partition {self._partition}: {error}") from None

    async def _attach(self, stack: AsyncExitStack, connection: Connection, address: str) -> "_Outflow":
        if len(self._outflows) >= ADDRESSES_MAX:
            raise ConfigError(
                f"partition {self._partition} has rows for more than {ADDRESSES_MAX} addresses; partition by address"
            )
        where = _where(self._options, address)
        try:
            sender = await connection.sender(address, producer=self._producer, in_doubt_max=IN_DOUBT_MAX, wait=False)
            outflow = _Outflow(sender, where, self._partition, self._first.get(address, 1), self._options.stall_s)
            args = argparse.Namespace(
                verb=VERB, address=address, stall_timeout=self._options.stall_s, stall_option="stallSeconds"
            )
            await stack.enter_async_context(telling_stalls(args, sender, Progress()))
            await sender.ready()
        except LinkError as error:
            raise _told(where, self._producer, error) from error
        outflow.begin(must_know=self._knows)
        return outflow


class _Outflow:
    """To one address. `count`: its rows so far."""

    def __init__(self, sender: Sender, where: str, partition: int, first: int, stall_s: float | None) -> None:
        self.count = 0
        self._sender = sender
        self._where = where
        self._partition = partition
        self._first = first
        self._stall_s = stall_s
        self._returned: list[tuple[Message | bytes, int]] = []
        """What the node gave back, and has not been sent again."""
        self._returned_at: float | None = None
        """Since when the node has given back all that it was asked to take."""
        self._accepted = 0
        """What it had taken by then."""
        self._has_told = False

    def begin(self, *, must_know: bool) -> None:
        """The node has answered which numbers it has."""
        if must_know and self._sender.last_number < self._first - 1:
            raise HoldfastError(
                f"{self._where}: the node has forgotten producer {self._sender.producer!r} (its last number is "
                f"{self._sender.last_number}, expected {self._first - 1}): rows of this batch may be there, and would "
                "come twice; use a new checkpoint"
            )

    async def put(self, messages: Iterable[Message | bytes]) -> None:
        """Sends them under the next numbers, each once there is room."""
        try:
            for message in messages:
                if self._returned:
                    await self._send_again()
                number = self._first + self.count
                self.count += 1
                await self._sender.post(message, number=number, on_outcome=partial(self._not_accepted, message))
        except LinkError as error:
            raise _told(self._where, self._sender.producer, error) from error

    async def settle(self) -> None:
        """Waits until the node has stored all of it."""
        try:
            await self._sender.drain()
            while self._returned:
                await self._send_again()
                await self._sender.drain()
        except LinkError as error:
            raise _told(self._where, self._sender.producer, error) from error

    async def end(self) -> None:
        """The same, and no row follows."""
        await self.settle()
        _check_fewer(self._where, self._sender, self._first + self.count - 1)
        try:
            await self._sender.close()
        except LinkError as error:
            raise _told(self._where, self._sender.producer, error) from error

    def _not_accepted(self, message: Message | bytes, number: int | None, outcome: Outcome) -> None:
        """Called with each outcome but accepted; what it raises ends the sender, and the task with it."""
        assert number is not None, "a named producer's messages have numbers"
        if is_not_taken(outcome):
            self._returned.append((message, number))
            return
        reason = f"{outcome.condition}: {outcome.description}" if isinstance(outcome, Rejected) else str(outcome)
        row = number - self._first + 1
        raise HoldfastError(
            f"{self._where}: the node refused row {row} of partition {self._partition} for this address: {reason}"
        )

    async def _send_again(self) -> None:
        """What the node gave back, after a pause that all share which it gives back meanwhile."""
        now = asyncio.get_running_loop().time()
        if self._returned_at is None or self._sender.accepted > self._accepted:
            self._returned_at, self._accepted, self._has_told = now, self._sender.accepted, False
        if self._stall_s is not None and now - self._returned_at >= self._stall_s:
            text = f"given up after {self._stall_s:g} s (stallSeconds)"
            raise HoldfastError(f"{self._sender.address}: {STALLS['back']}; {text}")
        if not self._has_told and now - self._returned_at >= STALLED_S:
            self._has_told = True
            say(f"holdfast {VERB}: {self._sender.address}: {STALLS['back']}; waiting", file=sys.stderr)
        await asyncio.sleep(PAUSE_S)
        returned, self._returned = self._returned, []
        for message, number in returned:
            await self._sender.post(message, number=number, on_outcome=partial(self._not_accepted, message))


def _check_fewer(where: str, sender: Sender, last: int) -> None:
    """Raises HoldfastError where the node has more of a partition than this attempt, whose last number is `last`."""
    if sender.last_number > last:
        raise HoldfastError(
            f"{where}: the node has number {sender.last_number} of producer {sender.producer!r}, and this partition "
            f"ends at {last}: it was computed again with fewer rows; rows must be the same, and in the same order, "
            "each time"
        )


def _told(where: str, producer: str | None, error: HoldfastError) -> HoldfastError:
    if isinstance(error, LinkStolen):
        return HoldfastError(f"{where}: producer {producer!r} was taken over by another attempt of this task")
    return HoldfastError(f"{where}: {error}")


async def _slices(
    batches: Iterable["RecordBatch"], settle: Callable[[], Awaitable[None]]
) -> AsyncIterator["RecordBatch"]:
    """The columns that are sent, of some rows at a time, in their order; `settle` is awaited before more bytes are in
    doubt than may be."""
    iterator = iter(batches)
    in_doubt = 0
    while (batch := await in_thread(next, iterator, None)) is not None:
        wanted = counting(batch)
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            for part in _cut(wanted.slice(start, ROWS_AT_ONCE)):
                in_doubt += part.nbytes
                if in_doubt > IN_DOUBT_BYTES_MAX:
                    await settle()
                    in_doubt = part.nbytes
                yield part
                await asyncio.sleep(0)


def _cut(rows: "RecordBatch") -> Iterator["RecordBatch"]:
    """These rows in parts of a bounded size."""
    if rows.num_rows <= 1 or rows.nbytes <= BYTES_AT_ONCE:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _cut(rows.slice(0, half))
        yield from _cut(rows.slice(half))
