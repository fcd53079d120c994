"""The control messages of federation: their fields, how they are written, and what is accepted of them.

Rules of this file: whatever a peer wrote becomes one of these values within its bounds, or is Malformed, which ends the
session with one line. Names are written by the aliases of the session. The form is that of all control messages
(docs/CUSTODY.md, "The session").
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.subjects import Pattern
from holdfast.errors import ConfigError
from holdfast.federation.aliases import Heard, Malformed, Said
from holdfast.federation.modes import MODES, TOPICS_MAX, Ask, read_asks, write_asks
from holdfast.federation.rows import BITS_END, DIGEST_END, HASH_DIGITS, STAMP_END, VOID, Row, Stamp
from holdfast.federation.sets import BRANCHING, Edition, Key
from holdfast.schema import is_whole_within

ROWS_MAX: Final = 500
BYTES_MAX: Final = 16_384
"""The maximum size of the added and removed rows in one message. A larger version becomes several; a single row may be
larger."""

LIST_MAX: Final = 250
"""Rows of a `follow`, names of a `stored`."""

EDGES_MAX: Final = 250
TRACE_MAX: Final = 64
PREDICATE_BYTES_MAX: Final = 1_024
FOLLOWED_MAX: Final = 20_000
"""Sets that one neighbour takes from us; the count in a `compare`."""


class Federate(NamedTuple):
    """What the sender forwards to the receiver: (topic, mode), and what it asks the receiver to forward to it. The
    whole lists each time."""

    rows: tuple[tuple[str, str], ...]
    asks: tuple[Ask, ...] = ()


class Follow(NamedTuple):
    """Sets that the sender takes from the receiver, and what it has of each; `whole`: it takes no others. `stop`: sets
    that it stops taking."""

    rows: tuple[tuple[Key, Edition], ...]
    stop: tuple[Key, ...] = ()
    whole: bool = False


class Compare(NamedTuple):
    """How many sets the sender takes, and the sum of what it has and has sent about them. `again`: the answer if the
    receiver has a different sum; both then send everything again."""

    sets: int
    digest: int
    again: bool = False


class Change(NamedTuple):
    """The change from one edition of a set to another. Without rows if only the stamp changes."""

    key: Key
    old: Edition
    new: Edition
    edges: frozenset[str]
    add: tuple[Row, ...] = ()
    remove: tuple[Row, ...] = ()


class PartsOf(NamedTuple):
    """The sums of the sixteen parts below `prefix`. `edges`: where it begins, with an empty prefix; `new`: the edition
    that is to be reached."""

    key: Key
    new: Edition
    prefix: str
    digests: tuple[int, ...]
    edges: frozenset[str] | None = None

    @property
    def is_question(self) -> bool:
        """Whether who takes the set asks; the prefixes of who gives it have an even number of digits."""
        return len(self.prefix) % 2 == 1


class RowsOf(NamedTuple):
    """All rows of one part of a set."""

    key: Key
    new: Edition
    prefix: str
    rows: tuple[Row, ...]
    edges: frozenset[str] | None = None


class Stored(NamedTuple):
    """The sender has stored this edition. `names`: nodes that take the set through the sender, and what they have
    stored; only those that changed; None for one that stopped. `whole`: all its followers are complete."""

    key: Key
    has: Edition
    whole: bool
    names: tuple[tuple[str, Stamp | None], ...] = ()


class Claim(NamedTuple):
    """A node has this edition, which is higher than the one known here; the claim travels to the origin."""

    key: Key
    has: Edition
    trace: tuple[str, ...]


class Reset(NamedTuple):
    """The origin restarts its stamps; the receiver voids the stamp that it has."""

    key: Key
    nonce: int


Message = Federate | Follow | Compare | Change | PartsOf | RowsOf | Stored | Claim | Reset


# ---------------------------------------------------------------------------------------------------- writing


def write(message: Message, said: Said) -> dict[str, Any]:
    """The fields of a control message. Aliases that it assigns stay assigned, so the message must be sent."""
    match message:
        case Federate(rows, asks):
            told = [[said.write(topic), mode] for topic, mode in rows]
            asked = {"asks": write_asks(asks, said)} if asks else {}
            return {"kind": "federate", "rows": told, **asked}
        case Follow(rows, stop, whole):
            return {
                "kind": "follow",
                "rows": [[*_key(key, said), *_edition(edition)] for key, edition in rows],
                "stop": [_key(key, said) for key in stop],
                "whole": whole,
            }
        case Compare(sets, digest, again):
            return {"kind": "compare", "count": Ulong(sets), "digest": Ulong(digest), "again": again}
        case Change():
            return {
                **_head("change", message.key, said),
                "from": _edition(message.old),
                "to": _edition(message.new),
                "edges": _edges(message.edges, said),
                "add": _rows(message.add),
                "remove": _rows(message.remove),
            }
        case PartsOf() | RowsOf():
            fields = {
                **_head("parts" if isinstance(message, PartsOf) else "rows", message.key, said),
                "to": _edition(message.new),
                "prefix": message.prefix,
            }
            if isinstance(message, PartsOf):
                fields["digests"] = [Ulong(digest) for digest in message.digests]
            else:
                fields["rows"] = _rows(message.rows)
            if message.edges is not None:
                fields["edges"] = _edges(message.edges, said)
            return fields
        case Stored():
            return {
                **_head("stored", message.key, said),
                "has": _edition(message.has),
                "whole": message.whole,
                "names": [[said.write(name), *_stamp(stamp)] for name, stamp in message.names],
            }
        case Claim():
            fields = {**_head("claim", message.key, said), "has": _edition(message.has)}
            return fields | {"trace": [said.write(name) for name in message.trace]}
        case Reset():
            return {**_head("void", message.key, said), "nonce": Ulong(message.nonce)}


def _key(key: Key, said: Said) -> list[Any]:
    return [said.write(key.origin), said.write(key.topic)]


def _head(kind: str, key: Key, said: Said) -> dict[str, Any]:
    return {"kind": kind, "origin": said.write(key.origin), "topic": said.write(key.topic)}


def _edition(edition: Edition) -> list[Any]:
    return [Ulong(edition.stamp.life), Ulong(edition.stamp.version), Ulong(edition.digest)]


def _stamp(stamp: Stamp | None) -> list[Any]:
    return [None] if stamp is None else [Ulong(stamp.life), Ulong(stamp.version)]


def _edges(edges: frozenset[str], said: Said) -> list[Any]:
    return [said.write(name) for name in sorted(edges)]


def _rows(rows: tuple[Row, ...]) -> list[Any]:
    return [row.pattern if not row.bits and row.predicate is None else _long(row) for row in rows]


def _long(row: Row) -> list[Any]:
    return [row.pattern, row.predicate, Ulong(row.bits)]


# ---------------------------------------------------------------------------------------------------- reading


def read(fields: dict[Any, Any], heard: Heard) -> Message:
    """Raises Malformed. Fields of a newer version are ignored."""
    kind = fields.get("kind")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise Malformed(f"invalid kind; expected one of {', '.join(KINDS)}")
    return reader(fields, heard)


def _read_federate(fields: dict[Any, Any], heard: Heard) -> Federate:
    rows = []
    for row in _list("rows of federate", fields.get("rows"), TOPICS_MAX):
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str) or row[1] not in MODES:
            raise Malformed(f"invalid row of federate; expected a topic and one of {', '.join(MODES)}")
        rows.append((heard.read("a topic", row[0]), str(row[1])))
    return Federate(tuple(rows), read_asks(fields.get("asks"), heard))


def _read_follow(fields: dict[Any, Any], heard: Heard) -> Follow:
    rows = []
    for row in _list("rows of follow", fields.get("rows"), LIST_MAX):
        if not isinstance(row, list) or len(row) != 5:
            raise Malformed("invalid row of follow; expected origin, topic, life, version and digest")
        rows.append((_read_key(row, heard), _read_edition("a row of follow", row[2:])))
    stop = []
    for row in _list("stop of follow", fields.get("stop"), LIST_MAX):
        if not isinstance(row, list) or len(row) != 2:
            raise Malformed("invalid stop of follow; expected origin and topic")
        stop.append(_read_key(row, heard))
    return Follow(tuple(rows), tuple(stop), _flag("whole", fields))


def _read_compare(fields: dict[Any, Any], _: Heard) -> Compare:
    count = _whole("count of compare", fields.get("count"), FOLLOWED_MAX + 1)
    return Compare(count, _whole("digest of compare", fields.get("digest"), DIGEST_END), _flag("again", fields))


def _read_change(fields: dict[Any, Any], heard: Heard) -> Change:
    return Change(
        _read_head(fields, heard),
        _read_edition("from of change", fields.get("from")),
        _read_edition("to of change", fields.get("to")),
        _read_edges(fields.get("edges"), heard),
        _read_rows("add of change", fields.get("add")),
        _read_rows("remove of change", fields.get("remove")),
    )


def _read_parts(fields: dict[Any, Any], heard: Heard) -> PartsOf:
    digests = _list("digests of parts", fields.get("digests"), BRANCHING)
    if len(digests) != BRANCHING:
        raise Malformed(f"{len(digests)} digests of parts; expected {BRANCHING}")
    sums = tuple(_whole("a digest of parts", digest, DIGEST_END) for digest in digests)
    prefix = _prefix(fields.get("prefix"), HASH_DIGITS - 1)
    new = _read_edition("to of parts", fields.get("to"))
    return PartsOf(_read_head(fields, heard), new, prefix, sums, _read_part_edges(prefix, fields, heard))


def _read_rows_of(fields: dict[Any, Any], heard: Heard) -> RowsOf:
    prefix = _prefix(fields.get("prefix"), HASH_DIGITS)
    new = _read_edition("to of rows", fields.get("to"))
    rows = _read_rows("rows of rows", fields.get("rows"))
    return RowsOf(_read_head(fields, heard), new, prefix, rows, _read_part_edges(prefix, fields, heard))


def _read_part_edges(prefix: str, fields: dict[Any, Any], heard: Heard) -> frozenset[str] | None:
    if prefix or fields.get("edges") is None:
        return None
    return _read_edges(fields.get("edges"), heard)


def _read_stored(fields: dict[Any, Any], heard: Heard) -> Stored:
    key, has = _read_head(fields, heard), _read_edition("has of stored", fields.get("has"))
    names: list[tuple[str, Stamp | None]] = []
    for row in _list("names of stored", fields.get("names"), LIST_MAX):
        if not isinstance(row, list) or not (len(row) == 3 or (len(row) == 2 and row[1] is None)):
            raise Malformed("invalid name of stored; expected a name and a stamp, or a name and none")
        stamp = None if len(row) == 2 else _read_stamp("a name of stored", row[1:])
        names.append((heard.read("a name of stored", row[0]), stamp))
    return Stored(key, has, _flag("whole", fields), tuple(names))


def _read_claim(fields: dict[Any, Any], heard: Heard) -> Claim:
    key, has = _read_head(fields, heard), _read_edition("has of claim", fields.get("has"))
    trace = _list("trace of claim", fields.get("trace"), TRACE_MAX)
    return Claim(key, has, tuple(heard.read("a name of a claim's trace", name) for name in trace))


def _read_reset(fields: dict[Any, Any], heard: Heard) -> Reset:
    return Reset(_read_head(fields, heard), _whole("nonce of reset", fields.get("nonce"), DIGEST_END))


_READERS: Final[dict[str, Callable[[dict[Any, Any], Heard], Message]]] = {
    "federate": _read_federate,
    "follow": _read_follow,
    "compare": _read_compare,
    "change": _read_change,
    "parts": _read_parts,
    "rows": _read_rows_of,
    "stored": _read_stored,
    "claim": _read_claim,
    "void": _read_reset,
}
KINDS: Final = tuple(_READERS)


def _list(what: str, value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"invalid {what}; expected a list of at most {most}")
    return value


def _whole(what: str, value: object, end: int) -> int:
    if not is_whole_within(value, 0, end):
        raise Malformed(f"invalid {what}; expected a whole number below {end}")
    return int(value)


def _flag(what: str, fields: dict[Any, Any]) -> bool:
    value = fields.get(what)
    if not isinstance(value, bool):
        raise Malformed(f"invalid {what}; expected true or false")
    return value


def _read_key(row: list[Any], heard: Heard) -> Key:
    return Key(heard.read("an origin", row[0]), heard.read("a topic", row[1]))


def _read_head(fields: dict[Any, Any], heard: Heard) -> Key:
    return Key(heard.read("an origin", fields.get("origin")), heard.read("a topic", fields.get("topic")))


def _read_stamp(what: str, row: list[Any]) -> Stamp:
    return Stamp(_whole(f"life in {what}", row[0], STAMP_END), _whole(f"version in {what}", row[1], STAMP_END))


def _read_edition(what: str, value: object) -> Edition:
    if not isinstance(value, list) or len(value) != 3:
        raise Malformed(f"invalid {what}; expected life, version and digest")
    stamp = _read_stamp(what, value)
    if (stamp.life == 0) != (stamp.version == 0):
        raise Malformed(f"invalid stamp in {what}; expected a life and a version, or none of them")
    return Edition(stamp if stamp.life else VOID, _whole(f"digest in {what}", value[2], DIGEST_END))


def _read_edges(value: object, heard: Heard) -> frozenset[str]:
    return frozenset(heard.read("an edge", name) for name in _list("edges", value, EDGES_MAX))


def _read_rows(what: str, value: object) -> tuple[Row, ...]:
    rows, size = [], 0
    for found in _list(what, value, ROWS_MAX):
        row = _read_row(what, found)
        size += row.size
        rows.append(row)
    if size > BYTES_MAX and len(rows) > 1:
        raise Malformed(f"{size} bytes in {what}; expected at most {BYTES_MAX}")
    return tuple(rows)


def _read_row(what: str, value: object) -> Row:
    pattern, predicate, bits = (value, None, 0) if not isinstance(value, list) else (*value, 0, 0, 0)[:3]
    if isinstance(value, list) and len(value) != 3:
        raise Malformed(f"invalid row in {what}; expected a pattern, a selector or none, and bits")
    if not isinstance(pattern, str):
        raise Malformed(f"invalid pattern in {what}; expected text")
    try:
        text = Pattern(str(pattern)).text
    except (ConfigError, UnicodeError):
        text = ""
    if text != pattern:
        raise Malformed(f"invalid pattern in {what}; expected words joined by dots, in the shortest form")
    if predicate is not None:
        if not isinstance(predicate, str) or not 0 < len(predicate.encode("utf-8", "replace")) <= PREDICATE_BYTES_MAX:
            raise Malformed(f"invalid selector in {what}; expected at most {PREDICATE_BYTES_MAX} bytes")
        predicate = str(predicate)
    return Row(text, predicate, _whole(f"bits in {what}", bits, BITS_END))


def _prefix(value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most or any(digit not in "0123456789abcdef" for digit in value):
        raise Malformed(f"invalid prefix; expected at most {most} hexadecimal digits in lower case")
    return str(value)
