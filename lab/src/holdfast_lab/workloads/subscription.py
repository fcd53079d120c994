"""`subscription`: a queue read by sequence as the Spark source reads it: OPEN, PEEK, a range, a checkpoint, ADVANCE.

Rules of this file: only the checkpoint outlives a reader's life; what lies in it was committed once and for all, and
is what may be advanced. CUSTODY, "Readers"; docs/spark.md.
"""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.wire.extensions import PATH
from holdfast.client import Connection, Delivery, Lease, LinkError, ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, asked, closed, key_shown

EMPTY_WITHIN_S: Final = 5.0
"""How long a queue may hold entries that its only subscription has advanced past."""


class _Table:
    """What the sink holds of one queue on one disk: the checkpoint, the keys, and every entry as first read."""

    def __init__(self) -> None:
        self.place: int | None = None
        self.keys: dict[bytes, int] = {}
        self.entries: dict[int, bytes] = {}
        self.read_to = 0
        """All below was read whole, so that to read it again gives the same."""


class _Reader:
    """One life of the reader: a connection, a lease and a place."""

    def __init__(self, connection: Connection, told: dict[str, Any], disk: int) -> None:
        self.connection = connection
        self.queue_uuid = str(told["queue_uuid"])
        self.epoch = int(told["lease_epoch"])
        self.advanced = int(told["advanced"])
        self.disk = disk


class Fenced(Exception):
    """Another reader has the lease, or the queue was deleted and created again."""


@dataclass(kw_only=True)
class Subscription:
    """One taking subscription on `queue` at `node`, read in ranges of up to `range_max` sequences.

    After a range: `forget` of the readers crash before their checkpoint, `late` after it and before ADVANCE, and with
    `rival` a second reader opens and fences the first, which advances and reads nothing more. `alone`: no other
    subscription, so an advanced queue is empty. With `bytes_max` the node counts what is in a range, which has no more.
    `short`: the links of ranges have short names, where frames are too small for all that an attach says.
    """

    kind: ClassVar[str] = "subscription"

    node: str
    queue: str
    range_max: int = 40
    forget: float = 0.15
    late: float = 0.1
    rival: float = 0.1
    bytes_max: int = 0
    poll_s: float = 0.1
    alone: bool = True
    short: bool = False
    name: str = "subscription"
    tables: dict[tuple[str, int], _Table] = field(default_factory=dict, init=False)
    lives: int = field(default=0, init=False)
    ranges: int = field(default=0, init=False)
    read_again: int = field(default=0, init=False)
    fenced: int = field(default=0, init=False)
    committed: int = field(default=0, init=False)

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.node}-{self.queue}"

    async def setup(self, bed: Bed) -> None:
        """The queue is taken before anyone sends."""
        connection = await bed.connect(self.node, f"{self.full_name}-setup")
        await self._asked(connection, "OPEN", {"mode": "take"})
        await closed(connection)

    def start(self, bed: Bed) -> None:
        bed.spawn(self._run(bed), self.full_name, background=True)

    async def _asked(self, connection: Connection, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await asked(connection, operation, "subscription", self.full_name, {"queue": self.queue, **arguments})

    async def _run(self, bed: Bed) -> None:
        random = bed.stream(self.full_name)
        reader = await self._open(bed)
        while True:
            try:
                other = await self._live(bed, reader, random)
            except (Fenced, *BREAKS):
                other = None
            except ManagementError as error:
                if error.code not in (404, 409, 412):
                    raise
                other = None
            if other is None:
                await reader.connection.abort()
                await asyncio.sleep(random.uniform(0.0, RETRY_S))
                other = await self._open(bed)
            reader = other

    async def _open(self, bed: Bed) -> _Reader:
        self.lives += 1
        connection = await bed.connect(self.node, f"{self.full_name}-{self.lives}")
        while True:
            disk = bed.history.disks_changed[self.node]
            try:
                told = await self._asked(connection, "OPEN", {"mode": "take"})
                return _Reader(connection, told, disk)
            except ManagementError as error:
                if error.code not in (404, 409):  # the queue is not there yet, or has consumers for a moment
                    raise
                await asyncio.sleep(RETRY_S)

    async def _live(self, bed: Bed, reader: _Reader, random: Random) -> _Reader | None:
        """Reads until this life ends; the reader that took over, None where it crashed."""
        table = self.tables.setdefault((reader.queue_uuid, reader.disk), _Table())
        if table.place is None:
            table.place = reader.advanced
        elif reader.advanced > table.place:
            raise Violation(f"{self.full_name} has advanced to {reader.advanced}, its checkpoint is at {table.place}")
        held = {"queue_uuid": reader.queue_uuid, "lease_epoch": reader.epoch}
        at = table.place
        if at > reader.advanced:  # the life before committed, and did not come to say so
            await self._asked(reader.connection, "ADVANCE", {**held, "sequence": at})
        idle_since: float | None = None
        while True:
            limit = random.randint(1, self.range_max)
            wanted = {**held, "start": at, "messages_max": limit}
            if self.bytes_max:
                wanted |= {"bytes_max": self.bytes_max, "exact": True}
            told = await self._asked(reader.connection, "PEEK", wanted)
            end = int(told["end"])
            if end <= at:
                if await self._empty(bed, reader, at):
                    idle_since = None
                elif idle_since is None:
                    idle_since = bed.now()
                elif bed.now() - idle_since > EMPTY_WITHIN_S:
                    raise Violation(
                        f"{self.queue} at {self.node} holds entries that {self.full_name} has advanced past"
                    )
                await asyncio.sleep(self.poll_s)
                continue
            idle_since = None
            keys = await self._read(bed, reader, table, at, end)
            if self.bytes_max:
                self._counted(table, told, at, limit)
            if random.random() < self.forget:
                return None
            self._commit(bed, reader, table, end, keys)
            at = end
            if random.random() < self.late:
                return None
            if random.random() < self.rival:
                return await self._replaced(bed, reader, at, held)
            await self._asked(reader.connection, "ADVANCE", {**held, "sequence": at})

    async def _read(self, bed: Bed, reader: _Reader, table: _Table, first: int, end: int) -> dict[bytes, int]:
        """One range, whole; its keys by sequence."""
        self.ranges += 1
        lease = Lease(self.full_name, reader.queue_uuid, reader.epoch)
        receiver = await reader.connection.receiver(
            self.queue,
            start_sequence=first,
            end_sequence=end,
            lease=lease,
            name=f"{'range' if self.short else self.full_name}-{self.lives}-{self.ranges}",
        )
        found: dict[int, bytes] = {}
        keys: dict[bytes, int] = {}
        before = first - 1
        async for delivery in receiver:
            if reader.disk != bed.history.disks_changed[self.node]:
                raise Fenced
            sequence = delivery.sequence
            if not before < sequence < end:
                raise Violation(f"{self.full_name} was shown sequence {sequence} of [{first}, {end}) after {before}")
            before = sequence
            found[sequence] = _told(delivery)
            key = key_shown(bed.history, delivery, self.full_name)
            if key is not None:
                keys[key] = sequence
        if reader.disk != bed.history.disks_changed[self.node]:
            raise Fenced
        self._compare(table, first, end, found)
        return keys

    def _counted(self, table: _Table, told: dict[str, Any], first: int, limit: int) -> None:
        """A range has as many messages as the node counted, and both bounds hold, but for one message alone."""
        messages, size, end = int(told["messages"]), int(told["bytes"]), int(told["end"])
        found = sum(sequence in table.entries for sequence in range(first, end))
        if messages != found:
            raise Violation(f"{self.full_name} was told of {messages} messages of [{first}, {end}), and read {found}")
        if messages > limit or (size > self.bytes_max and messages > 1):
            raise Violation(
                f"{self.full_name} asked for {limit} messages and {self.bytes_max} bytes, and [{first}, {end}) has "
                f"{messages} and {size}"
            )

    def _compare(self, table: _Table, first: int, end: int, found: dict[int, bytes]) -> None:
        """What was read before is byte for byte the same, and nothing came or went within what was read whole."""
        for sequence in range(first, min(end, table.read_to)):
            old, new = table.entries.get(sequence), found.get(sequence)
            if old != new:
                what = "came later" if old is None else "is gone" if new is None else "has other bytes"
                raise Violation(f"{self.full_name} read sequence {sequence} of {self.queue} again, and it {what}")
            self.read_again += old is not None
        table.entries.update(found)
        table.read_to = max(table.read_to, end)

    def _commit(self, bed: Bed, reader: _Reader, table: _Table, end: int, keys: dict[bytes, int]) -> None:
        """The checkpoint: from now on these rows are in the table, once."""
        table.place = end
        for key, sequence in keys.items():
            if key in table.keys and key not in bed.history.may_repeat:
                raise Violation(
                    f"{key.decode()} is sequence {sequence} of {self.queue} at {self.node}, and {table.keys[key]} too"
                )
            table.keys[key] = sequence
            bed.history.receive(key, f"{self.queue} at {self.node}", marked=True, sequence=sequence)
            self.committed += 1

    async def _replaced(self, bed: Bed, reader: _Reader, at: int, held: dict[str, Any]) -> _Reader:
        """A second reader opens while the first still lives: the first can move nothing any more."""
        other = await self._open(bed)
        try:
            await self._asked(reader.connection, "ADVANCE", {**held, "sequence": at})
        except ManagementError as error:
            if error.code not in (404, 409, 412):
                raise
            self.fenced += 1
        else:
            if reader.disk == bed.history.disks_changed[self.node]:
                raise Violation(f"{self.full_name} advanced under lease {reader.epoch}, after {other.epoch} was given")
        await self._refused(bed, reader, at, other)
        await reader.connection.abort()
        return other

    async def _refused(self, bed: Bed, reader: _Reader, at: int, other: _Reader) -> None:
        """Nor does the first read anything more."""
        lease = Lease(self.full_name, reader.queue_uuid, reader.epoch)
        try:
            receiver = await reader.connection.receiver(
                self.queue, start_sequence=at - 1, end_sequence=at, lease=lease, name=f"{self.full_name}-late"
            )
            async for _ in receiver:
                pass
        except LinkError:
            return
        if reader.disk == bed.history.disks_changed[self.node]:
            raise Violation(f"{self.full_name} read under lease {reader.epoch}, after {other.epoch} was given")

    async def _empty(self, bed: Bed, reader: _Reader, at: int) -> bool:
        """Whether the queue holds nothing below `at`; True too where it cannot be told. The question is asked again
        after a break: if another disk answers it then, nothing of that queue was advanced."""
        if not self.alone:
            return True
        told = await asked(reader.connection, "READ", "queue", self.queue)
        if reader.disk != bed.history.disks_changed[self.node]:
            raise Fenced
        return not int(told["messages"]) or int(told["next_sequence"]) > at or int(told["head"]) >= at

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {
            "committed": self.committed,
            "ranges": self.ranges,
            "lives": self.lives,
            "read again": self.read_again,
            "fenced": self.fenced,
        }


def _told(delivery: Delivery) -> bytes:
    """What must be the same each time: the bytes, but for what is left of a time to live, and for the names of the
    nodes that were passed, which are those that the node knows when it is asked."""
    message = delivery.message
    header, notes = message.header, message.message_annotations or {}
    if header is not None and header.ttl is not None:
        return b"".join(message.data or ())
    if PATH in notes:
        named = {key: value for key, value in notes.items() if key != PATH}
        return replace(message, message_annotations=named).encode()
    return delivery.payload
