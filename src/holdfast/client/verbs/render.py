"""Messages and AMQP values as the commands print them.

Rules of this file: pure. Other programs read the names of `receive --json`: fields may be added, none is changed.
"""

import base64
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import MISSING, Described, Timestamp
from holdfast.client.messages.message_json import exact_fields
from holdfast.client.receive.delivery import Delivery
from holdfast.lines import json_line
from holdfast.units import iso8601


def plain(value: Any) -> Any:
    """An AMQP value as JSON has it: bytes as text or base64, times in ISO 8601, UUIDs as text."""
    if isinstance(value, Timestamp):
        return iso8601(int(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value)) or base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Described):
        return plain(value.value)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def as_json(delivery: Delivery) -> str:
    """The whole message in one line, as `receive --json` prints it and `send --format json` sends it."""
    message = delivery.message
    content = {**fields(delivery, message), **body_fields(message), **exact_fields(message)}
    return json_line(content, separators=(",", ":"))


def fields(delivery: Delivery, message: Message) -> dict[str, Any]:
    """All fields of a message but its body."""
    properties = message.properties
    annotations = message.message_annotations or {}
    return {
        "sequence": delivery.sequence or None,
        "message_id": plain(properties.message_id) if properties else None,
        "to": plain(properties.to) if properties else None,
        "subject": properties.subject if properties else None,
        "content_type": plain(properties.content_type) if properties else None,
        "created": plain(_time(properties.creation_time)) if properties else None,
        "enqueued": iso8601(delivery.enqueued_ms) if delivery.enqueued_ms else None,
        "delivery_count": message.header.delivery_count if message.header else 0,
        "properties": plain(message.application_properties or {}),
        "annotations": {str(key): plain(value) for key, value in annotations.items()},
    }


def body_bytes(message: Message) -> bytes:
    """What `receive` prints of a message: its bytes or text; any other value as JSON."""
    if message.data is not None or isinstance(message.value, str | bytes):
        return message.body_bytes()
    if message.sequences is not None:
        return json.dumps(plain(message.sequences), ensure_ascii=False).encode()
    if message.value is MISSING or message.value is None:
        return b""
    return json.dumps(plain(message.value), ensure_ascii=False).encode()


def body_fields(message: Message) -> dict[str, Any]:
    """The body of a message, as `receive --json` prints it."""
    if message.data is not None or isinstance(message.value, bytes):
        content = message.body_bytes()
        text = _text(content)
        return {"body_base64": base64.b64encode(content).decode()} if text is None else {"body": text}
    if message.sequences is not None:
        return {"body": plain(message.sequences)}
    return {"body": None if message.value is MISSING else plain(message.value)}


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _time(value: int | None) -> Timestamp | None:
    return None if value is None else Timestamp(value)
