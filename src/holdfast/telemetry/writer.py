"""A record as one line of NDJSON.

Rules of this file: pure formatting. The caller has the clock and the file. A line is ASCII and ends in a
newline; nothing that a message carries can begin a second one.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.errors import LocalProtocolError
from holdfast.telemetry.records import COMMON, KINDS, VERSION
from holdfast.units import iso8601

__all__ = ["line"]

TEXT_MAX: Final = 1_024
"""Characters of any one text. A reason or a message-id comes from a peer, who may send megabytes."""

_REQUIRED: Final = {
    kind: frozenset(place.name for place in dataclasses.fields(shape) if place.default is dataclasses.MISSING)
    for kind, shape in KINDS.items()
}
_TIMES: Final = {
    kind: frozenset(place.name for place in dataclasses.fields(shape) if place.metadata["unit"] == "time")
    for kind, shape in KINDS.items()
}


def line(kind: str, fields: Mapping[str, Any], *, node: str, wall_ms: int, uptime_s: float) -> bytes:
    """The record of `kind` with its own `fields`, newline included.

    `wall_ms`: milliseconds since the Unix epoch, UTC. Times among `fields` may be such numbers too; a UUID
    becomes its text, bytes become hexadecimal digits, a `message_id` of any AMQP type becomes text; texts are
    cut at 1,024 characters. Raises `LocalProtocolError` for an unknown kind, a missing field, one that hides
    a common one, or a value that JSON does not have.
    """
    required = _REQUIRED.get(kind)
    if required is None:
        raise LocalProtocolError(f"invalid telemetry kind {kind!r}; expected one of {', '.join(KINDS)}")
    if not required <= fields.keys():
        missing = ", ".join(sorted(required - fields.keys()))
        raise LocalProtocolError(f"telemetry {kind}: {missing} missing")
    times = _TIMES[kind]
    record: dict[str, Any] = {
        "v": VERSION,
        "kind": kind,
        "t": iso8601(wall_ms),
        "node": node,
        "uptime_s": round(uptime_s, 3),
    }
    for name, value in fields.items():
        if name in COMMON:
            raise LocalProtocolError(f"telemetry {kind}: field {name!r} is common to all kinds")
        if name in times and isinstance(value, int):
            value = iso8601(value)
        elif isinstance(value, UUID):
            value = str(value)
        elif isinstance(value, bytes):
            value = value.hex()
        elif name == "message_id" and value is not None:
            value = str(value)
        elif isinstance(value, float):
            value = round(value, 3)
        record[name] = value[:TEXT_MAX] if isinstance(value, str) else value
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"telemetry {kind}: {error}") from error
