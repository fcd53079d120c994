"""The journal of a feed: lines that were taken from devices, each with its number, on disk before any of them is sent.

Rules of this file: blocking, for one thread at a time; nothing is asked of a clock or a node. A record is whole or was
never there. What `append` has returned is synced; where the disk refuses, nothing of the batch is there.

A journal is a directory of segments. Each begins with a BASE: whose journal it is, the next number, and the places of
all files, so that those before it can go once their messages have ended. MESSAGE is a number, the place behind its line
(if it came from a file), and the message. PLACE is a place alone, behind lines that were no messages. ENDED is a number
below which all have ended.
"""

import fcntl
import json
import os
import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.client.feed.places import PLACE_BYTES, FileId, Place, decode
from holdfast.client.spool import records
from holdfast.client.spool.disk import write_all
from holdfast.durable import sync_directories, sync_file
from holdfast.errors import ConfigError, StorageError
from holdfast.units import MIB

BASE: Final = b"B"
MESSAGE: Final = b"M"
PLACE: Final = b"P"
ENDED: Final = b"E"
SEGMENT_BYTES: Final = 4 * MIB
"""Where the next segment begins."""
PLACES_MAX: Final = 20_000
"""Files whose places are kept; of more, those that were read longest ago, and are followed no more, are forgotten. It
is more than may be followed."""
READ_RECORDS: Final = 500
"""Messages that `read` gives at once."""
READ_BYTES: Final = MIB

_NUMBER: Final = struct.Struct(">Q")
_SUFFIX: Final = ".journal"


class Line(NamedTuple):
    """What is to be kept: a message, or None where the line was none; the place behind it, None if it has none."""

    message: bytes | None
    place: Place | None


class Kept(NamedTuple):
    """A message with its number."""

    number: int
    message: bytes


class _Segment:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = 0
        """The number that its first message has, or would have."""
        self.size = 0


class Journal:
    """The journal in `directory`, which is made; ConfigError if it is another producer's or in use, StorageError."""

    def __init__(self, directory: Path, producer: str, address: str) -> None:
        self.directory = directory
        self.next_number = 0
        """Of the next message; 0 until `begin`, for a new journal."""
        self.ended_below = 1
        """All numbers below have ended."""
        self.places: dict[FileId, Place] = {}
        self.followed: Container[FileId] = ()
        """Files that are there: if their places were forgotten, they would be read again after a restart."""
        self.held_bytes = 0
        """Of messages that have not ended."""
        self._owner = {"producer": producer, "address": address}
        self._segments: list[_Segment] = []
        self._descriptor = -1
        self._sizes: dict[int, int] = {}
        self._reading: _Segment | None = None
        """The segment that is read next, None for the first, and how far it was read."""
        self._read_at = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(f"invalid value {str(directory)!r} for --journal; expected a directory") from None
        except OSError as error:
            raise self._failed("made", error) from None
        try:
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failed("opened", error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(f"{directory} is in use by another feed; give each its own --journal") from None
        try:
            self._load()
        except OSError as error:
            os.close(self._lock)
            raise self._failed("read", error) from None
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def is_new(self) -> bool:
        """Whether it has no numbers yet."""
        return self.next_number == 0

    def begin(self, next_number: int) -> None:
        """The first number of a new journal."""
        self.next_number = self.ended_below = next_number
        self._roll()

    def append(self, lines: Sequence[Line]) -> None:
        """Numbers the messages, and syncs all of them to disk. OSError where the disk takes no more, and nothing has
        changed; StorageError where that is not certain."""
        if self._segments[-1].size >= SEGMENT_BYTES:
            self._roll()
        segment, number, pieces = self._segments[-1], self.next_number, []
        if self.ended_below > segment.first:
            pieces.append(records.encode(ENDED + _NUMBER.pack(self.ended_below)))
        sizes: dict[int, int] = {}
        for message, place in lines:
            told = b"" if place is None else place.encode()
            if message is not None:
                pieces.append(records.encode(MESSAGE + _NUMBER.pack(number) + bytes((len(told),)) + told + message))
                sizes[number] = len(message)
                number += 1
            elif told:
                pieces.append(records.encode(PLACE + told))
        data = b"".join(pieces)
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            try:
                os.ftruncate(self._descriptor, segment.size)
            except OSError:
                raise self._failed("written", error) from None
            raise
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:  # what the disk has now nobody knows
            raise self._failed("synced", error) from None
        segment.size += len(data)
        self.next_number = number
        self._sizes.update(sizes)
        self.held_bytes += sum(sizes.values())
        for _, place in lines:
            if place is not None:
                self._keep(place)
        self._forget_places()

    def read(self) -> list[Kept]:
        """The next messages in their order, from the first that has not ended; empty when all were read."""
        found: list[Kept] = []
        size = 0
        segments = self._segments
        while segments and not found:
            index = 0 if self._reading is None else segments.index(self._reading)
            self._reading = segments[index]
            for end, content in self._records(segments[index], self._read_at):
                self._read_at = end
                if content[:1] != MESSAGE:
                    continue
                number, _, message = _message(content)
                if number >= self.ended_below:
                    found.append(Kept(number, message))
                    size += len(message)
                    if len(found) >= READ_RECORDS or size >= READ_BYTES:
                        return found
            if index == len(segments) - 1:
                break
            self._reading, self._read_at = segments[index + 1], 0
        return found

    def ended(self, numbers: Iterable[int]) -> None:
        """These messages have their outcome: they are not sent again. Deletes the segments that have no others.
        StorageError."""
        for number in numbers:
            self.held_bytes -= self._sizes.pop(number, 0)
        self.ended_below = next(iter(self._sizes), self.next_number)  # they are in the order of their numbers
        try:
            while len(self._segments) > 1 and self._segments[1].first <= self.ended_below:
                if self._reading is self._segments[0]:
                    self._reading, self._read_at = self._segments[1], 0
                self._segments[0].path.unlink()
                del self._segments[0]
        except OSError as error:
            raise self._failed("deleted", error) from None

    def close(self) -> None:
        """Notes what has ended; the journal is free for another process. StorageError."""
        try:
            if self._descriptor >= 0:
                write_all(self._descriptor, records.encode(ENDED + _NUMBER.pack(self.ended_below)))
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failed("written", error) from None
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            os.close(self._lock)

    # ------------------------------------------------------------------------------------------ internals

    def _keep(self, place: Place) -> None:
        self.places.pop(place.file, None)
        self.places[place.file] = place

    def _forget_places(self) -> None:
        """As many as there are too many. Those of files that are followed are the last to be asked again."""
        for _ in range(len(self.places)):
            if len(self.places) <= PLACES_MAX:
                return
            file = next(iter(self.places))
            place = self.places.pop(file)
            if file in self.followed:
                self.places[file] = place

    def _roll(self) -> None:
        """Begins the next segment; OSError, and nothing has changed, where the disk takes no more."""
        last = int(self._segments[-1].path.stem) if self._segments else 0
        path = self.directory / f"{last + 1:012d}{_SUFFIX}"
        told = {**self._owner, "next": self.next_number, "ended": self.ended_below}
        told_places = [[*place[:3], place.mark.hex()] for place in self.places.values()]
        data = records.encode(BASE + json.dumps({**told, "places": told_places}).encode())
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
            sync_directories(self.directory, None if not self._segments else 1)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        segment = _Segment(path)
        segment.first, segment.size = self.next_number, len(data)
        self._segments.append(segment)

    def _load(self) -> None:
        paths = sorted(self.directory.glob(f"*{_SUFFIX}"))
        for path in paths:
            segment = _Segment(path)
            segment.size = path.stat().st_size
            end = 0
            for after, content in self._records(segment, 0):
                end = after
                self._take(segment, path, content)
            if end == 0 and path == paths[-1]:  # a crash as it was made; what it would have said the one before it says
                path.unlink()
                continue
            if end < segment.size and path != paths[-1]:
                raise StorageError(
                    f"{path} is damaged at byte {end}; put it back from a copy, or begin a new --journal"
                )
            if end < segment.size:  # never synced, so never sent
                os.truncate(path, end)
                sync_file(path)
                segment.size = end
            self._segments.append(segment)
        if self._segments:
            self._descriptor = os.open(self._segments[-1].path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._sizes = {number: size for number, size in self._sizes.items() if number >= self.ended_below}
        self.held_bytes = sum(self._sizes.values())
        self.ended_below = next(iter(self._sizes), max(1, self.next_number))

    def _take(self, segment: _Segment, path: Path, content: bytes) -> None:
        kind = content[:1]
        if kind == BASE:
            told: dict[str, Any] = json.loads(content[1:])
            for name, mine in self._owner.items():
                if told[name] != mine:
                    text = f"{path} belongs to {name} {told[name]!r}, not to {mine!r}"
                    raise ConfigError(f"{text}; give each feed its own --journal")
            self.next_number = segment.first = int(told["next"])
            self.ended_below = max(self.ended_below, int(told["ended"]))
            self.places = {}
            for device, inode, offset, mark in told["places"]:
                self._keep(Place(device, inode, offset, bytes.fromhex(mark)))
        elif kind == MESSAGE:
            number, place, message = _message(content)
            self._sizes[number] = len(message)
            self.next_number = number + 1
            if place is not None:
                self._keep(place)
        elif kind == PLACE:
            self._keep(decode(content[1:]))
        elif kind == ENDED:
            self.ended_below = max(self.ended_below, int(_NUMBER.unpack(content[1:])[0]))

    @staticmethod
    def _records(segment: _Segment, start: int) -> Iterator[tuple[int, bytes]]:
        """(offset behind it, content) of each whole record from `start` on."""
        with segment.path.open("rb", buffering=0) as file:

            def read_bytes(offset: int, length: int) -> bytes:
                return os.pread(file.fileno(), length, offset)

            for offset, content in records.read(read_bytes, start, segment.size):
                yield offset + records.FRAME_BYTES + len(content), content

    def _failed(self, what: str, error: OSError) -> StorageError:
        why = f"{self.directory} cannot be {what} ({error.strerror})"
        return StorageError(f"{why}; give a --journal that can be written")


def _message(content: bytes) -> tuple[int, Place | None, bytes]:
    number = int(_NUMBER.unpack_from(content, 1)[0])
    at = 2 + _NUMBER.size
    if not content[at - 1]:
        return number, None, content[at:]
    return number, decode(content[at : at + PLACE_BYTES]), content[at + PLACE_BYTES :]
