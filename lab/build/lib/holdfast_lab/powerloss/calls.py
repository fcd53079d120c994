"""The log of a recorded process: its calls on the files below one directory, and its own marks between them.

Rules of this file: the bytes are those of `shim.c`; nothing is judged here.
"""

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import HoldfastError

HEAD: Final = struct.Struct("=BBHHHqQ")
"""kind, synced, path bytes, second path bytes, unused, offset, data bytes; then path, second path, data."""


class RecordingFailed(HoldfastError):
    """No log came of it, or one that does not tell all."""


@dataclass(frozen=True, slots=True)
class Record:
    """One call, or one mark (`kind` "M", `data` its JSON). Paths are relative to the recorded directory.

    Kinds: w write (`synced`: the call returned with the data on disk), f that sync alone, s sync of all of a file
    or directory, t truncate to `offset`, g grow to `offset` at least, m mapped for writing, o open (created where
    it is not there; `offset` 1: emptied), d mkdir, u unlink or rmdir, r rename to `second`.
    """

    kind: str
    path: str = ""
    second: str = ""
    offset: int = 0
    data: bytes = b""
    synced: bool = False

    @property
    def mark(self) -> dict[str, Any]:
        return dict(json.loads(self.data))


def mark_bytes(**fields: Any) -> bytes:
    """A mark as it stands in the log."""
    data = json.dumps(fields).encode()
    return HEAD.pack(ord("M"), 0, 0, 0, 0, 0, len(data)) + data


def read_log(log: Path, root: Path) -> list[Record]:
    """The records in `log`, in order; `root` is the recorded directory. Raises `RecordingFailed` at one cut off."""
    return list(_records(log, root))


def _records(log: Path, root: Path) -> Iterator[Record]:
    content = log.read_bytes()
    place = 0
    while place < len(content):
        if place + HEAD.size > len(content):
            raise RecordingFailed(f"{log}: cut off at byte {place}")
        kind, synced, path_bytes, second_bytes, _, offset, data_bytes = HEAD.unpack_from(content, place)
        path_at = place + HEAD.size
        second_at = path_at + path_bytes
        data_at = second_at + second_bytes
        place = data_at + data_bytes
        if place > len(content):
            raise RecordingFailed(f"{log}: cut off at byte {path_at - HEAD.size}")
        path = os.path.relpath(content[path_at:second_at].decode(), root) if path_bytes else ""
        second = os.path.relpath(content[second_at:data_at].decode(), root) if second_bytes else ""
        yield Record(chr(kind), path, second, offset, content[data_at:place], bool(synced))


def parted(records: list[Record]) -> list[Record]:
    """Each synced write as two records, so that a cut may fall between the write and its sync."""
    parts: list[Record] = []
    for one in records:
        if one.kind == "w" and one.synced:
            parts += [replace(one, synced=False), replace(one, kind="f")]
        else:
            parts.append(one)
    return parts
