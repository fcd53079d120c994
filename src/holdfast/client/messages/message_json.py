"""A message as one object of JSON, and back: `holdfast receive --json` prints it, `send --format json` sends it.

Rules of this file: pure. The plain fields are for all readers; `amqp` holds what they do not say exactly, and nothing
else, so that an ordinary message has none. Names are added, never changed (docs/client.md, "Messages as JSON").
What belongs to a delivery is not the message's: sequence, times of the queue, counts, delivery annotations.
"""

from datetime import datetime
from math import isfinite
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import OWN_PREFIX
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import MISSING, Long, Symbol, Ulong
from holdfast.client.messages.json_value import base64_bytes, json_value, some_text, whole_number
from holdfast.client.messages.payload import ENQUEUED, SEQUENCE
from holdfast.client.messages.typed_json import exact_json
from holdfast.errors import LocalProtocolError, RemoteProtocolError
from holdfast.units import iso8601

FORMAT: Final = "holdfast-message-1"
"""The value of the field `format`, which distinguishes such a line from other JSON."""
PLAIN: Final = {
    "message_id": "message_id", "to": "to", "subject": "subject", "content_type": "content_type",
    "creation_time": "created",
}  # fmt: skip
"""Fields of the properties section that have a plain field, and its name."""
FIELDS: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
TEXTS: Final = frozenset(("subject", "content_type", "content_encoding", "group_id", "reply_to_group_id"))
NUMBERS: Final = frozenset(("absolute_expiry_time", "creation_time", "group_sequence"))
IDS: Final = frozenset(("message_id", "correlation_id"))
KEYS: Final = frozenset(
    (
        "properties", "application_properties", "application_properties_map", "annotations", "annotations_map",
        "footer", "body_kind", "body_value",
    )
)  # fmt: skip
LINE_KEYS: Final = (
    "format", "message_id", "to", "subject", "content_type", "created", "properties", "annotations", "body",
    "body_base64", "durable", "priority", "ttl_ms", "amqp", "sequence", "enqueued", "delivery_count",
)  # fmt: skip
"""The last three describe an entry of a queue, and are not sent."""
BODY_KINDS: Final = ("data", "string", "binary", "value", "sequence", "none")
PLAIN_TYPES: Final = frozenset((str, bool, int, Long, type(None)))
"""Types of values that JSON says exactly; and float, where it is finite."""
YEAR_1000_MS: Final = -30_610_224_000_000
YEAR_10000_MS: Final = 253_402_300_800_000
"""The times between which ISO 8601 is exact."""


def exact_fields(message: Message) -> dict[str, Any]:
    """What is printed beside the plain fields, in which the body stands."""
    header = message.header or Header()
    told: dict[str, Any] = {
        "format": FORMAT, "durable": header.durable, "priority": header.priority, "ttl_ms": header.ttl,
    }  # fmt: skip
    rest = exact_rest(message)
    if rest:
        told["amqp"] = rest
    return told


def exact_rest(message: Message) -> dict[str, Any]:
    """What stands under `amqp`: what the plain fields do not say exactly."""
    amqp: dict[str, Any] = {}
    if message.properties is not None:
        fields = _exact_properties(message.properties)
        if fields or message.properties == Properties():
            amqp["properties"] = fields
    _put_map(amqp, "application_properties", message.application_properties, str)
    if message.message_annotations is not None:
        kept = {key: value for key, value in message.message_annotations.items() if not is_the_nodes(key)}
        _put_map(amqp, "annotations", kept or None, Symbol)
    if message.footer is not None:
        amqp["footer"] = [[exact_json(key), exact_json(value)] for key, value in message.footer.items()]
    amqp.update(_exact_body(message))
    return amqp


def is_the_nodes(key: object) -> bool:
    """Whether a node says this annotation of a delivery, and takes it from no client."""
    return key in (SEQUENCE, ENQUEUED) or str(key).startswith(OWN_PREFIX)


def _exact_properties(properties: Properties) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "creation_time":
            if not YEAR_1000_MS <= value < YEAR_10000_MS:
                told[name] = int(value)
        elif name in PLAIN and (name in TEXTS or type(value) is str):
            continue
        elif name in TEXTS:
            told[name] = str(value)
        elif name in NUMBERS:
            told[name] = int(value)
        else:
            told[name] = exact_json(value)
    return told


def _is_plain(value: Any) -> bool:
    """Whether JSON says it exactly."""
    kind = type(value)
    return kind in PLAIN_TYPES or (kind is float and isfinite(value))


def _put_map(amqp: dict[str, Any], name: str, values: dict[Any, Any] | None, key_type: type[str]) -> None:
    if values is None:
        return
    if not all(type(key) is key_type for key in values):
        amqp[f"{name}_map"] = [[exact_json(key), exact_json(value)] for key, value in values.items()]
        return
    told = {str(key): exact_json(value) for key, value in values.items() if not _is_plain(value)}
    if told or not values:
        amqp[name] = told


def _exact_body(message: Message) -> dict[str, Any]:
    if message.data is not None:
        if len(message.data) == 1:
            return {}
        return {"body_kind": "data", "body_value": [len(part) for part in message.data]}
    if message.sequences is not None:
        return {"body_kind": "sequence", "body_value": exact_json(message.sequences)}
    if message.value is MISSING:
        return {"body_kind": "none"}
    if type(message.value) is str:
        return {"body_kind": "string"}
    if type(message.value) is bytes:
        return {"body_kind": "binary"}
    return {"body_kind": "value", "body_value": exact_json(message.value)}


# ------------------------------------------------------------------------------------------------- back


def message_of(line: dict[str, Any]) -> Message:
    """The message of such a line. ValueError, in one line, if it is invalid."""
    unknown = sorted(set(line).difference(LINE_KEYS))
    if unknown:
        raise ValueError(f"invalid key {unknown[0]!r:.80}; expected one of {', '.join(LINE_KEYS)}")
    if "body" in line and "body_base64" in line:
        raise ValueError("both body and body_base64 are given; expected one of them")
    amqp = _object(line, "amqp")
    unknown = sorted(set(amqp) - KEYS)
    if unknown:
        raise ValueError(f"invalid key {unknown[0]!r} in amqp; expected one of {', '.join(sorted(KEYS))}")
    durable = line.get("durable", True)
    if not isinstance(durable, bool):
        raise ValueError(f"invalid value {durable!r:.80} for durable; expected true or false")
    ttl_ms, priority = line.get("ttl_ms"), line.get("priority", 4)
    message = Message(
        header=Header(
            durable=durable,
            priority=_within(priority, "priority", 255),
            ttl=None if ttl_ms is None else _within(ttl_ms, "ttl_ms", 2**32 - 1),
        ),
        properties=_properties(line, amqp),
        application_properties=_map(line, amqp, "properties", "application_properties", str),
        message_annotations=_annotations(line, amqp),
        footer=dict(_pairs(amqp["footer"], "amqp.footer")) if "footer" in amqp else None,
    )
    _give_body(message, line, amqp)
    try:
        Message.decode(message.encode())
    except LocalProtocolError as error:
        raise ValueError(f"invalid value in the message ({error}); expected what AMQP can encode") from None
    except RemoteProtocolError as error:  # a node would end the connection for it
        raise ValueError(f"invalid message ({error.description}); expected one that AMQP allows") from None
    return message


def _within(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"invalid value {value!r:.80} for {name}; expected a whole number, 0 to {most}")
    return value


def _object(line: dict[str, Any], name: str) -> dict[str, Any]:
    value = line.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"invalid value {value!r:.80} for {name}; expected an object")
    return value


def _properties(line: dict[str, Any], amqp: dict[str, Any]) -> Properties | None:
    told = _object(amqp, "properties")
    unknown = sorted(set(told) - set(FIELDS))
    if unknown:
        raise ValueError(f"invalid key {unknown[0]!r} in amqp.properties; expected one of {', '.join(FIELDS)}")
    values: dict[str, Any] = {}
    for name, plain in PLAIN.items():
        value = line.get(plain)
        if value is not None and name not in told:
            values[name] = _named(plain, _milliseconds if name == "creation_time" else some_text, value)
    for name, value in told.items():
        if value is not None:
            read = some_text if name in TEXTS else whole_number if name in NUMBERS else json_value
            values[name] = _named(f"amqp.properties.{name}", read, value)
    for name in IDS & values.keys():
        value = values[name]
        if type(value) not in (str, bytes, UUID, Ulong):
            raise ValueError(f"invalid value {value!r:.80} for {name}; expected text, a ulong, a UUID or a binary")
    if not isinstance(values.get("user_id", b""), bytes):
        raise ValueError(f"invalid value {values['user_id']!r:.80} for amqp.properties.user_id; expected a binary")
    return Properties(**values) if values or "properties" in amqp else None


def _named(name: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _milliseconds(told: Any) -> int:
    """The milliseconds of `iso8601`."""
    try:
        moment = datetime.fromisoformat(some_text(told))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"invalid value {told!r:.80}; expected a time as {iso8601(0)}")
    return (moment - datetime.fromisoformat(iso8601(0))) // _MILLISECOND


_MILLISECOND: Final = datetime.fromisoformat(iso8601(1)) - datetime.fromisoformat(iso8601(0))


def _pairs(told: Any, name: str) -> list[tuple[Any, Any]]:
    pairs = list(_named(name, json_value, {"amqp:map": told}))
    for key, _ in pairs:
        try:
            hash(key)
        except TypeError:
            raise ValueError(f"invalid key {key!r:.80} in {name}; expected a symbol, text or a number") from None
    return pairs


def _map(
    line: dict[str, Any], amqp: dict[str, Any], plain: str, exact: str, key_type: type[str]
) -> dict[Any, Any] | None:
    if f"{exact}_map" in amqp:
        return dict(_pairs(amqp[f"{exact}_map"], f"amqp.{exact}_map"))
    told = _object(amqp, exact)
    values: dict[Any, Any] = {}
    for key, value in _object(line, plain).items():
        if key in told:
            values[key_type(key)] = _named(f"amqp.{exact}.{key}", json_value, told[key])
        elif isinstance(value, dict | list):
            text = "text, a number, true, false or null; what has another type stands in"
            raise ValueError(f"invalid value {value!r:.80} for {plain}.{key}; expected {text} amqp.{exact}")
        else:
            values[key_type(key)] = value
    for key, value in told.items():
        if key not in values:
            values[key_type(key)] = _named(f"amqp.{exact}.{key}", json_value, value)
    return values if values or exact in amqp else None


def _annotations(line: dict[str, Any], amqp: dict[str, Any]) -> dict[Any, Any] | None:
    own = {key: value for key, value in _object(line, "annotations").items() if not is_the_nodes(key)}
    values = _map({"annotations": own}, amqp, "annotations", "annotations", Symbol)
    return {key: value for key, value in (values or {}).items() if not is_the_nodes(key)} or None


def _give_body(message: Message, line: dict[str, Any], amqp: dict[str, Any]) -> None:
    kind, value = amqp.get("body_kind", "data"), amqp.get("body_value")
    if kind not in BODY_KINDS:
        raise ValueError(f"invalid value {kind!r:.80} for amqp.body_kind; expected one of {', '.join(BODY_KINDS)}")
    if kind == "none":
        return
    if kind == "value":
        message.value = _named("amqp.body_value", json_value, value)
        return
    if kind == "sequence":
        sequences = _named("amqp.body_value", json_value, value)
        if not isinstance(sequences, list) or not sequences or not all(isinstance(part, list) for part in sequences):
            raise ValueError("invalid value for amqp.body_value; expected a list of lists")
        message.sequences = sequences
        return
    if kind == "string":
        message.value = _named("body", some_text, line.get("body"))
        return
    if "body_base64" in line:
        content = _named("body_base64", base64_bytes, line["body_base64"])
    elif isinstance(line.get("body"), str):
        try:
            content = line["body"].encode()
        except UnicodeEncodeError:
            raise ValueError("invalid value for body; expected text that UTF-8 can encode") from None
    else:
        raise ValueError("invalid value for body; expected text, or base64 as body_base64")
    if kind == "binary":
        message.value = content
    elif value is None:
        message.data = [content]
    else:
        message.data = _cut(content, value)


def _cut(content: bytes, sizes: Any) -> list[bytes]:
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("invalid value for amqp.body_value; expected the sizes of the data sections")
    if not sizes or sum(sizes) != len(content):
        raise ValueError(f"invalid sizes in amqp.body_value; expected {len(content)} bytes together")
    parts, at = [], 0
    for size in sizes:
        parts.append(content[at : at + size])
        at += size
    return parts
