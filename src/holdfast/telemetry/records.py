"""The records of what a node measures and reports: their schema, version 1, and how one is read back.

Rules of this file: no input or output, no clock. One record is one JSON object on one line (NDJSON). A field
is declared once, in its dataclass: its type is the JSON type, `unit` in its metadata is what the page
docs/telemetry.md says of it (a test compares them), `choices` are the only texts allowed.

Forward compatibility: a reader keeps fields that it does not know (`Telemetry.extra`) and refuses a version
newer than its own. So a writer may add fields within a version, and raises the version to change or drop one.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.errors import RemoteProtocolError

__all__ = [
    "COMMON",
    "KINDS",
    "VERSION",
    "Body",
    "Custody",
    "Loss",
    "Message",
    "Node",
    "Pace",
    "Paced",
    "Pacing",
    "Paths",
    "Queue",
    "Session",
    "Telemetry",
    "Turns",
    "parse",
    "validate",
    "wall_ms",
]

VERSION: Final = 1
LINE_BYTES_MAX: Final = 64 * 1024
"""A longer line is not one of ours."""

COMMON: Final = ("v", "kind", "t", "node", "uptime_s")
"""Fields of every record, in the order in which they are written; no kind has fields of these names."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _declare(unit: str, *, optional: bool = False, choices: tuple[str, ...] = ()) -> Any:
    metadata = {"unit": unit, "choices": choices}
    return field(metadata=metadata, default=None) if optional else field(metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Kind `node`: the node's life. Written at start, once an interval, and at the orderly end."""

    event: str = _declare("started, running or stopped", choices=("started", "running", "stopped"))
    store: str = _declare("UUID")
    resident_bytes: int | None = _declare("bytes", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Kind `queue`: one queue, once an interval. Totals count since the node's start."""

    name: str = _declare("name")
    messages: int = _declare("messages")
    bytes: int = _declare("bytes")
    oldest_s: float | None = _declare("seconds", optional=True)
    in_total: int = _declare("messages")
    out_total: int = _declare("messages")
    in_per_s: float = _declare("messages per second")
    out_per_s: float = _declare("messages per second")
    next_sequence: int = _declare("sequence")
    vhost: str | None = _declare("name", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Kind `session`: a session with a neighbour changed its state."""

    neighbour: str = _declare("name")
    state: str = _declare("state")
    previous: str | None = _declare("state", optional=True)
    reason: str | None = _declare("text", optional=True)
    round_trip_s: float | None = _declare("seconds", optional=True)
    damped: bool | None = _declare("true or false", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Kind `message`: a step of one message. Only where the node is configured to write them."""

    event: str = _declare("sent, received, stored or settled", choices=("sent", "received", "stored", "settled"))
    queue: str = _declare("name")
    sequence: int | None = _declare("sequence", optional=True)
    origin: str | None = _declare("UUID", optional=True)
    destination: str | None = _declare("name", optional=True)
    identity: int | None = _declare("identity", optional=True)
    message_id: str | None = _declare("text", optional=True)
    created: str | None = _declare("time", optional=True)
    wall: str | None = _declare("time", optional=True)
    vhost: str | None = _declare("name", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Custody:
    """Kind `custody`: what is kept for one destination, and what arrived for it; once an interval."""

    destination: str = _declare("name")
    waiting: int = _declare("messages")
    in_doubt: int = _declare("messages")
    receipt: int = _declare("identity")
    duplicates_suppressed: int = _declare("messages")
    late: int = _declare("messages")
    gaps: int = _declare("gaps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Kind `loss`: numbers of one origin that nothing will bring any more. Each is reported once."""

    origin: str = _declare("UUID")
    first: int = _declare("identity")
    last: int = _declare("identity")
    reason: str = _declare("text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Kind `paths`: by which paths messages came to this node, once an interval. Written where it has a topology."""

    paths_shortest: int = _declare("messages")
    paths_other: int = _declare("messages")
    paths_unknown: int = _declare("messages")
    loops: int = _declare("messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Kind `pacing`: what a root gives to its clients, once an interval. Written where it has a rate."""

    rate: int = _declare("bytes per second")
    given: int = _declare("bytes per second")
    clients: int = _declare("clients")
    ignoring: int = _declare("clients")
    changes: int = _declare("rates")
    overflow_s: float = _declare("seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PacedQueue:
    """A client's queue to a root, as both tell of it."""

    weight: int = _declare("weight")
    used: int = _declare("bytes")
    capacity: int = _declare("bytes")
    arrivals: int | None = _declare("bytes per second", optional=True)
    overflow_s: float | None = _declare("seconds", optional=True)
    vhost: str | None = _declare("name", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(_PacedQueue):
    """Kind `pace`: what a root knows of a client and gives to it, once an interval."""

    client: str = _declare("name")
    rate: int = _declare("bytes per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced(_PacedQueue):
    """Kind `paced`: what a client knows of a root and of its own queue to it, once an interval."""

    root: str = _declare("name")
    rate: int | None = _declare("bytes per second", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Kind `turns`: the processor time of the node's turns, once an interval; how many took how long."""

    turns: int = _declare("turns")
    cpu_s: float = _declare("seconds")
    longest_s: float = _declare("seconds")
    longest_kinds: str = _declare("text")
    to_0_1_ms: int = _declare("turns")
    to_0_2_ms: int = _declare("turns")
    to_0_4_ms: int = _declare("turns")
    to_0_8_ms: int = _declare("turns")
    to_1_6_ms: int = _declare("turns")
    to_3_2_ms: int = _declare("turns")
    to_6_4_ms: int = _declare("turns")
    to_12_8_ms: int = _declare("turns")
    to_25_6_ms: int = _declare("turns")
    to_51_2_ms: int = _declare("turns")
    to_102_4_ms: int = _declare("turns")
    to_204_8_ms: int = _declare("turns")
    longer: int = _declare("turns")


Body = Node | Queue | Session | Message | Custody | Loss | Paths | Pacing | Pace | Paced | Turns

KINDS: Final[Mapping[str, type[Body]]] = {
    "node": Node,
    "queue": Queue,
    "session": Session,
    "message": Message,
    "custody": Custody,
    "loss": Loss,
    "paths": Paths,
    "pacing": Pacing,
    "pace": Pace,
    "paced": Paced,
    "turns": Turns,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """One record, checked. `body` by its kind; `extra` holds the fields that this version does not know."""

    v: int
    kind: str
    t: str
    node: str
    uptime_s: float
    body: Body
    extra: dict[str, Any]

    @property
    def wall_ms(self) -> int:
        """`t` as milliseconds since the Unix epoch."""
        return wall_ms(self.t)


def wall_ms(text: str) -> int:
    """The inverse of `units.iso8601`: milliseconds since the Unix epoch. Raises ValueError for another text.

    A time without a zone is none of ours: nothing says which one it means.
    """
    if text.lstrip("-").isdigit():
        return int(text)
    year, dash, rest = text.partition("-")  # of years below 1000 some C libraries write three digits
    moment = datetime.fromisoformat(f"{year:0>4}{dash}{rest}")
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _MILLISECOND


def parse(line: bytes | str) -> Telemetry:
    """One line of a telemetry file. Raises `RemoteProtocolError`, with one line that says what was found."""
    if len(line) > LINE_BYTES_MAX:
        raise _refused(f"invalid line of {len(line)} bytes; expected up to {LINE_BYTES_MAX}")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _refused(f"invalid line ({error}); expected a JSON object") from error
    return validate(record)


class _Column(NamedTuple):
    """What is checked of one field."""

    name: str
    optional: bool
    check: Callable[[Any], Any]
    choices: tuple[str, ...]


def validate(record: object) -> Telemetry:
    """`record`, as JSON gives it, in its own type. Raises `RemoteProtocolError` as `parse` does."""
    if not isinstance(record, dict):
        raise _refused(f"invalid {type(record).__name__}; expected a JSON object")
    version = record.get("v")
    if type(version) is not int or version < 1:
        raise _refused(f"invalid value {version!r} for v; expected 1 to {VERSION}")
    if version > VERSION:
        raise _refused(f"version {version} is newer than this reader; expected up to {VERSION}")
    kind = _required(record, "kind", "", _text)
    shape = KINDS.get(kind)
    if shape is None:
        raise _refused(f"invalid value {kind!r} for kind; expected one of {', '.join(KINDS)}")
    known = _COLUMNS[kind]
    body = shape(**{column.name: _value(record, kind, column) for column in known})
    names = {*COMMON, *[column.name for column in known]}
    return Telemetry(
        v=version,
        kind=kind,
        t=_required(record, "t", kind, _time),
        node=_required(record, "node", kind, _text),
        uptime_s=_required(record, "uptime_s", kind, _amount),
        body=body,
        extra={name: value for name, value in record.items() if name not in names},
    )


def _refused(what: str) -> RemoteProtocolError:
    return RemoteProtocolError("amqp:decode-error", f"telemetry record: {what}")


def _required(record: dict[str, Any], name: str, kind: str, check: Callable[[Any], Any]) -> Any:
    if name not in record:
        raise _refused(f"{name} is missing" if not kind else f"{kind} {name} is missing")
    try:
        return check(record[name])
    except (ValueError, OverflowError) as error:
        shown = repr(record[name])
        shown = shown if len(shown) <= 80 else shown[:77] + "…"
        raise _refused(f"invalid value {shown} for {f'{kind} {name}'.lstrip()}; expected {error}") from error


def _value(record: dict[str, Any], kind: str, column: _Column) -> Any:
    if column.optional and record.get(column.name) is None:
        return None
    value = _required(record, column.name, kind, column.check)
    if column.choices and value not in column.choices:
        expected = ", ".join(column.choices)
        raise _refused(f"invalid value {value!r} for {kind} {column.name}; expected one of {expected}")
    return value


def _check_of(place: "Field[Any]") -> str:
    """Which check a field asks for: by its unit where that says more than its type."""
    unit: str = place.metadata["unit"]
    if unit in ("UUID", "time"):
        return unit
    if place.type == bool | None:
        return "bool"
    return "str" if place.type in (str, str | None) else "int" if place.type in (int, int | None) else "float"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _uuid(value: Any) -> str:
    try:
        return str(UUID(_text(value)))
    except ValueError:
        raise ValueError("a UUID") from None


def _time(value: Any) -> str:
    try:
        wall_ms(_text(value))
    except (ValueError, OverflowError):
        raise ValueError("a time in ISO 8601, UTC") from None
    return str(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a whole number from 0")
    return value


def _amount(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError("a number from 0")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _flag,
    "str": _text,
    "UUID": _uuid,
    "time": _time,
    "int": _count,
    "float": _amount,
}

_COLUMNS: Final = {
    kind: tuple(
        _Column(place.name, place.default is not MISSING, _CHECKS[_check_of(place)], place.metadata["choices"])
        for place in fields(shape)
    )
    for kind, shape in KINDS.items()
}
"""What each kind declares, looked up once: a file has many records of few kinds."""
