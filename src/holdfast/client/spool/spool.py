"""A producer's messages in a file, from before they are sent until the node has stored them.

Rules of this file: blocking file calls, all short but `sync`, a compaction and one sync for each block of numbers; no
clock, no event loop. The file is append-only (client/spool/records.py). A record whose length or CRC is wrong ends it:
what follows is kept beside it, in PATH.damaged, and never sent.

A power loss may take all that was not synced: messages of which the node has some already. Numbers are therefore
reserved, and given, as `numbering.py` says (docs/adr/0032-reserved-numbers.md; docs/client.md, Producers).
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.errors import ClientFull
from holdfast.client.spool import records
from holdfast.client.spool.disk import append_file, replace_locked
from holdfast.client.spool.numbering import Numbering
from holdfast.durable import sync_directories
from holdfast.errors import ConfigError, StorageError
from holdfast.units import MIB

COMPACT_BYTES: Final = 4 * MIB
"""The file is compacted once done messages take so many bytes, and more than the others."""


@dataclass(frozen=True, slots=True)
class Spool:
    """A file in which a sender keeps its messages until the node has stored them.

    `bytes_max` bounds those without an outcome, in bytes of the file. A message is handed to the operating system
    before `submit` returns: it survives a crash of this process. A crash of the machine may lose the messages of the
    last `fsync_interval_s` seconds; with 0 each `submit` waits for the disk.
    """

    path: Path | str
    bytes_max: int = 64 * MIB
    fsync_interval_s: float = 1.0

    def validate(self) -> None:
        """Raises ConfigError that names the field."""
        if self.bytes_max < 1:
            raise ConfigError(f"invalid value {self.bytes_max} for spool bytes_max; expected at least 1")
        if not self.fsync_interval_s >= 0:
            raise ConfigError(f"invalid value {self.fsync_interval_s} for spool fsync_interval_s; expected at least 0")


class SpoolFile:
    """An open spool of one producer at one address; one process at a time.

    A message is done when it has its outcome. `undone` counts the others; `damaged_bytes` is what could not be read
    and was moved to PATH.damaged. Raises ConfigError for a file that is no spool, another producer's or in use, and
    StorageError for I/O.
    """

    def __init__(self, spool: Spool, *, producer: str, address: str) -> None:
        spool.validate()
        self.path = Path(spool.path)
        self.bytes_max = spool.bytes_max
        self.numbering = Numbering()
        self.undone = 0
        self.undone_bytes = 0
        self.damaged_bytes = 0
        self.dirty = False
        self.syncing = False
        self._identity = {"producer": producer, "address": address}
        self._done = RangeSet()
        self._sizes: dict[int, int] = {}
        self._kept = RangeSet()
        """Places of earlier runs' messages that were not done when this run began."""
        self._end = 0
        self._cursor = 0
        self._sync_failed = False
        self._fd = self._open()
        try:
            self._recover()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def next_local(self) -> int:
        """The place of the next message."""
        return self.numbering.next_local

    def number(self, local: int) -> int | None:
        """The number of the message in that place; None before the node has said which are free."""
        return self.numbering.number(local)

    @property
    def is_numbered(self) -> bool:
        """Every message has a number."""
        return self.numbering.unnumbered is None

    # ------------------------------------------------------------------------------------------- writing

    def append(self, payload: bytes) -> int:
        """Writes one message, returns its local number; ClientFull past `bytes_max`, StorageError for I/O."""
        size = records.message_bytes(len(payload))
        if self.undone_bytes + size > self.bytes_max:
            raise ClientFull(
                f"spool {self.path} is full: it holds {self.undone_bytes} bytes that the node has not taken; the limit "
                f"is {self.bytes_max} with the next message"
            )
        if size - records.FRAME_BYTES > records.RECORD_BYTES_MAX:
            text = f"the message has {len(payload)} bytes; expected less than 4 GiB"
            raise ClientFull(f"spool {self.path}: {text}")
        self._check_synced()
        if self.numbering.needs_block():
            self._renumber(Numbering.reserve)
        local = self.numbering.next_local
        self._write(records.encode_message(local, payload), message=True)
        self.numbering.next_local = local + 1
        self.undone += 1
        self.undone_bytes += size
        return local

    def assign_numbers(self, last: int) -> None:
        """Gives each message without one a number above `last`, on the disk before it returns."""
        self._renumber(lambda numbering: numbering.assign(last, self._kept))

    def done(self, local: int, size: int) -> None:
        """Message `local`, of `size` payload bytes, has its outcome; `flush_done` writes it down."""
        self._done.add(local)
        self._sizes[local] = size
        self.undone -= 1
        self.undone_bytes -= records.message_bytes(size)

    def flush_done(self) -> None:
        """Writes down what is done, once for a turn, and compacts the file where that saves enough."""
        if self._sizes:
            noted = RangeSet((local, local) for local in sorted(self._sizes))
            self._write(b"".join(records.encode_done(first, last) for first, last in noted))
            self._sizes.clear()
        elif self.undone:
            return
        spent = self._end - self.undone_bytes
        if spent > COMPACT_BYTES and spent > self.undone_bytes and not self.syncing:
            self._compact()

    def sync(self) -> None:
        """fdatasync; may run in another thread, one at a time, and not beside `close`."""
        self.syncing, self.dirty = True, False
        try:
            self._datasync()
        finally:
            self.syncing = False

    def close(self) -> None:
        """Syncs and closes the file; a spool in which everything is done shrinks to its first record."""
        if self._fd < 0:
            return
        numbering = self.numbering
        try:
            self.flush_done()
            # After a sync that failed nobody knows what the disk holds: not a proper end.
            changed = self.is_numbered and not numbering.closed and not self._sync_failed
            numbering.closed = numbering.closed or changed
            if not self.undone and self._end > len(records.MAGIC) + 4096:
                self._compact()
            elif changed:
                self._write(self._base_record())
            self.sync()
        finally:
            os.close(self._fd)
            self._fd = -1

    # ------------------------------------------------------------------------------------------- reading

    def is_drained(self) -> bool:
        """`load` has returned everything that is in the file."""
        return self._cursor >= self._end

    def load(self, count_max: int) -> list[tuple[int, bytes]]:
        """The next messages after the cursor that are not done, as (local, payload), at most `count_max`."""
        found: list[tuple[int, bytes]] = []
        for offset, content in self._records(self._cursor, self._end):
            if len(found) >= count_max:
                self._cursor = offset
                return found
            if content[:1] == records.MESSAGE:
                local = records.place_of(content)
                if local not in self._done:
                    found.append((local, records.payload_of(content)))
        self._cursor = self._end
        return found

    def skip_loaded(self) -> None:
        """Moves the cursor to the end: all messages of the file are in memory."""
        self._cursor = self._end

    # ------------------------------------------------------------------------------------------ internals

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(descriptor)
                    raise ConfigError(f"spool {self.path} is in use; open it in one sender at a time") from None
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    return descriptor
                os.close(descriptor)  # another sender has just put a compacted file in its place
        except OSError as error:
            text = f"spool {self.path} cannot be opened ({error.strerror}); give a file that can be written"
            raise ConfigError(text) from None

    def _recover(self) -> None:
        size = os.fstat(self._fd).st_size
        magic = self._read(0, len(records.MAGIC))
        if magic != records.MAGIC and not records.MAGIC.startswith(magic):
            raise ConfigError(f"{self.path} is another kind of file; give a spool, or a new name")
        self._sync_directories()  # also of a file that is there: its maker may have been killed before
        if magic != records.MAGIC:
            self._replace([records.MAGIC + self._base_record()])
            self._cursor = self._end
            return
        sizes: dict[int, int] = {}
        has_base, highest, readable = False, 0, len(records.MAGIC)
        for offset, content in records.read(self._read, readable, size):
            kind = content[:1]
            if kind == records.BASE:
                self._read_base(content[1:])
                has_base = True
            elif kind == records.MESSAGE:
                local = records.place_of(content)
                sizes[local] = records.FRAME_BYTES + len(content)
                highest = max(highest, local)
            elif kind == records.DONE:
                first, last = records.range_of(content)
                self._done.add(first, last)
                for local in range(first, last + 1):
                    sizes.pop(local, None)
            readable = offset + records.FRAME_BYTES + len(content)
        if readable < size:
            self._set_aside(readable, size)
        self._end = readable
        self._cursor = len(records.MAGIC) if sizes else readable
        self.undone = len(sizes)
        self.undone_bytes = sum(sizes.values())
        if self.numbering.recovered(highest) or not has_base:
            self._write(self._base_record())
        self._kept = RangeSet((local, local) for local in sorted(sizes))

    def _records(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(offset, content) of each record in [start, end). Raises StorageError where one is damaged."""
        ended = yield from records.read(self._read, start, end)
        if ended < end:
            raise StorageError(f"spool {self.path}: the record at byte {ended} is damaged")

    def _read_base(self, body: bytes) -> None:
        try:
            held = json.loads(body)
            identity = {"producer": held["producer"], "address": held["address"]}
            self.numbering.load(held)
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"spool {self.path} has an unreadable base; give a spool that Holdfast wrote") from None
        if identity != self._identity:
            raise ConfigError(
                f"spool {self.path} is of producer {identity['producer']!r} to {identity['address']!r}; expected "
                f"{self._identity['producer']!r} to {self._identity['address']!r}"
            )

    def _base_record(self, numbering: Numbering | None = None) -> bytes:
        numbers = (numbering or self.numbering).as_dict()
        return records.encode(records.BASE + json.dumps({**self._identity, **numbers}).encode())

    def _renumber(self, change: Callable[[Numbering], None]) -> None:
        """Changes the numbering once the change is stored, since the next message relies on it."""
        self._check_synced()
        changed = deepcopy(self.numbering)
        change(changed)
        self._write(self._base_record(changed))
        self._datasync()
        self.numbering = changed

    def _check_synced(self) -> None:
        """After a sync that failed the next one may succeed without having written what the first one lost."""
        if self._sync_failed:
            text = f"spool {self.path}: an earlier sync failed; open the sender again"
            raise StorageError(text)

    def _set_aside(self, offset: int, size: int) -> None:
        """Moves what cannot be read to PATH.damaged, for a person to look at."""
        aside = self.path.with_name(self.path.name + ".damaged")
        text = f"spool {self.path}: its last {size - offset} bytes cannot be read"

        def pieces() -> Iterator[bytes]:
            at = offset
            while at < size and (piece := self._read(at, records.READ_BYTES)):
                yield piece
                at += len(piece)

        try:
            append_file(aside, pieces())
        except OSError as error:
            raise StorageError(f"{text}, and {aside.name} cannot take them: {error.strerror}") from None
        self._sync_directories()
        try:
            os.ftruncate(self._fd, offset)
        except OSError as error:
            raise StorageError(f"{text}, nor be cut off: {error.strerror}") from None
        self._datasync()  # before something is written there: what was cut off must not come back behind it
        self.damaged_bytes = size - offset

    def _compact(self) -> None:
        """Replaces the file by one of its base and its messages that are not done, in their order."""
        cursor = -1

        def pieces() -> Iterator[bytes]:
            nonlocal cursor
            out = bytearray(records.MAGIC + self._base_record())
            written = 0
            for offset, content in self._records(len(records.MAGIC), self._end):
                if offset >= self._cursor and cursor < 0:
                    cursor = written + len(out)
                if content[:1] == records.MESSAGE and records.place_of(content) not in self._done:
                    out += records.encode(content)
                    if len(out) >= records.READ_BYTES:
                        written += len(out)
                        yield bytes(out)
                        out.clear()
            yield bytes(out)

        self._replace(pieces())
        self._cursor = self._end if cursor < 0 else cursor
        self._done = RangeSet()

    def _replace(self, pieces: Iterable[bytes]) -> None:
        """Replaces the file by one of `pieces`, atomically."""
        try:
            fresh, written = replace_locked(self.path, pieces)
        except OSError as error:
            raise StorageError(f"spool {self.path}: cannot be rewritten: {error.strerror}") from None
        os.close(self._fd)
        self._fd, self._end = fresh, written
        self._sync_directories(1)

    def _datasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._sync_failed = True
            raise StorageError(f"spool {self.path}: a sync failed: {error.strerror}; look at its disk") from None

    def _sync_directories(self, count: int | None = None) -> None:
        """Syncs the directory of the file and those above it, at most `count`."""
        try:
            sync_directories(self.path.resolve().parent, count)
        except OSError as error:
            self._sync_failed = True
            text = f"spool {self.path}: a sync of its directories failed: {error.strerror}; look at its disk"
            raise StorageError(text) from None

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
            while data and len(data) < length and (more := os.pread(self._fd, length - len(data), offset + len(data))):
                data += more  # Linux hands on somewhat less than 2 GiB at once
            return data
        except OSError as error:
            raise StorageError(f"spool {self.path}: cannot be read: {error.strerror}") from None

    def _write(self, data: bytes, *, message: bool = False) -> None:
        try:
            written = os.pwrite(self._fd, data, self._end)
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._end + written)
        except OSError as error:
            raise StorageError(f"spool {self.path}: {error.strerror}, {len(data)} bytes were not kept") from None
        if not message and self._cursor == self._end:
            self._cursor += len(data)  # nothing for `load`
        self._end += len(data)
        self.dirty = True
