"""The sets that a node holds, as rows of table `bindings`, and the entries that requests made, as rows of table `node`.
Publications have rows of their own beside the sets (`publications`).

Rules of this file: pure packing. A key holds the hash of two names, because both together may be longer than a key; the
names are in the row. Source: docs/adr/0081.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.broker.stored.records import FEDERATION
from holdfast.errors import ConfigError, RemoteProtocolError, StorageError
from holdfast.federation import publications
from holdfast.federation.keeping import ROW, SET, Put, Write
from holdfast.federation.modes import TO
from holdfast.federation.rows import Row, row_hash
from holdfast.federation.settings import Entry

TABLE: Final = "bindings"
ENTRIES: Final = "node"
"""The table of entries. A change by a request is kept there even if its turn is undone: the next turn stores it."""

_SET: Final = b"s"
_ROW: Final = b"r"
_ENTRY: Final = FEDERATION
_ASKED: Final = "asked"
"""In place of a direction: the neighbour asks for it."""
KINDS: Final = (_SET, _ROW, publications.PREFIX)
"""The first bytes of the keys of table `bindings`."""

_HASH_BYTES: Final = 16
_ROW_HASH_BYTES: Final = 8


def _hash(*names: str) -> bytes:
    return blake2b("\0".join(names).encode(), digest_size=_HASH_BYTES).digest()


def key_of(path: tuple[str, ...]) -> bytes:
    """The key of a row of a set."""
    if path[0] == SET:
        return _SET + _hash(*path[1:])
    return _ROW + _hash(path[1], path[2]) + bytes.fromhex(path[3])


def row_of(write: Write) -> tuple[bytes, bytes | None]:
    """The key and value to write; no value if the row is deleted."""
    if not isinstance(write, Put):
        return key_of(write.key), None
    value = [*write.key[1:], *write.value] if write.key[0] == SET else write.value
    return key_of(write.key), encode(value)


def entry_key(topic: str, neighbour: str, *, asked: bool = False) -> bytes:
    return _ENTRY + (_hash(topic, neighbour, _ASKED) if asked else _hash(topic, neighbour))


def pack_entry(entry: Entry) -> bytes:
    """In the form of earlier versions, unless the entry has more."""
    head = [entry.topic, entry.neighbour, entry.mode]
    if entry.direction == TO and not entry.asked:
        return encode([*head, *entry.patterns])
    return encode([*head, list(entry.patterns), _ASKED if entry.asked else entry.direction])


def entries_of(rows: Iterable[tuple[bytes, bytes]]) -> list[Entry]:
    """The entries in table `node`. Raises StorageError."""
    return [entry_of(unpack(key, value)) for key, value in rows if key[:1] == _ENTRY]


def sets_of(rows: Iterable[tuple[bytes, bytes]]) -> dict[tuple[str, ...], list[Any]]:
    """The whole table `bindings` in the form for `Federation`. A row without its set is ignored. Raises
    StorageError."""
    found: dict[tuple[str, ...], list[Any]] = {}
    names: dict[bytes, tuple[str, str]] = {}
    of_sets: list[tuple[bytes, list[Any]]] = []
    for key, value in rows:
        if key[:1] == publications.PREFIX:
            continue
        fields = unpack(key, value)
        if key[:1] == _SET:
            origin, topic = names[key[1:]] = str(fields[0]), str(fields[1])
            found[SET, origin, topic] = fields[2:]
        else:
            of_sets.append((key, fields))
    for key, fields in of_sets:
        of = names.get(key[1 : 1 + _HASH_BYTES])
        if of is not None:
            found[ROW, *of, key[1 + _HASH_BYTES :].hex()] = fields
    return found


_LENGTHS: Final = {_SET: 1 + _HASH_BYTES, _ROW: 1 + _HASH_BYTES + _ROW_HASH_BYTES, _ENTRY: 1 + _HASH_BYTES}
_FIELDS: Final = {_SET: 6, _ROW: 3, _ENTRY: 3}


def unpack(key: bytes, value: bytes) -> list[Any]:
    """The fields of a row. Raises StorageError."""
    try:
        fields, _ = decode(value)
    except RemoteProtocolError as error:
        raise StorageError(f"a row of federation cannot be read: {error.description}") from error
    if len(key) != _LENGTHS.get(key[:1]) or not isinstance(fields, list) or len(fields) < _FIELDS[key[:1]]:
        raise StorageError(f"a row of federation cannot be read: it has another form than {key[:1]!r} has")
    return fields


def check_row(key: bytes, value: bytes) -> None:
    """Raises StorageError if the row does not have the form of its kind, or if its key does not match its names."""
    if key[:1] == publications.PREFIX:
        publications.unpack(key, value)
        return
    fields = unpack(key, value)
    if key[:1] == _ROW:
        right = key[1 + _HASH_BYTES :].hex() == f"{row_hash(Row(str(fields[0]), fields[1], int(fields[2]))):016x}"
    else:
        names = str(fields[0]), str(fields[1])
        right = key[1:] == _hash(*names)
        if key[:1] == _ENTRY:
            right = key == entry_key(*names, asked=entry_of(fields).asked)
    if not right:
        raise StorageError("a row of federation cannot be read: its key is another's")


def entry_of(fields: list[Any]) -> Entry:
    """Raises StorageError."""
    topic, neighbour, mode, *rest = fields
    patterns, direction = rest, TO
    if rest and isinstance(rest[0], list):
        patterns, direction = rest[0], str(rest[-1])
    asked = direction == _ASKED
    entry = Entry(
        str(topic), str(neighbour), str(mode), tuple(map(str, patterns)), TO if asked else direction, asked=asked
    )
    try:
        entry.validate()
    except ConfigError as error:
        raise StorageError(f"a row of federation cannot be read: {error}") from error
    return entry
