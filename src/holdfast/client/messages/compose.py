"""A message from a body and what else a program says of it.

Rules of this file: bytes are a data section, and anything else is one AMQP value, so that a body comes back as it was
sent (`Delivery.body`).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import ConfigError

TTL_MS_MAX = 2**32 - 1


def compose(
    body: object,
    *,
    subject: str | None = None,
    properties: Mapping[str, Any] | None = None,
    message_id: str | int | UUID | bytes | None = None,
    correlation_id: str | int | UUID | bytes | None = None,
    reply_to: str | None = None,
    content_type: str | None = None,
    durable: bool = True,
    priority: int = 4,
    ttl_s: float | None = None,
) -> Message:
    """A Message with that body.

    - `body`: bytes, str, int, float, bool, None, UUID, or a list or dict of these.
    - `subject`: what it is about; a topic's subscribers choose by it.
    - `properties`: application properties, which selectors can ask for.
    - `priority`: 0 to 9, in a queue that sorts.
    - `ttl_s`: seconds after which it expires.

    Raises ConfigError for a value out of range.
    """
    if not 0 <= priority <= 9:
        raise ConfigError(f"invalid value {priority} for priority; expected 0 to 9")
    if ttl_s is not None and not 0 < ttl_s * 1000 <= TTL_MS_MAX:
        raise ConfigError(f"invalid value {ttl_s} for ttl_s; expected more than 0 and at most {TTL_MS_MAX / 1000:.0f}")
    given = Properties(
        message_id=message_id,
        subject=subject,
        reply_to=reply_to,
        correlation_id=correlation_id,
        content_type=None if content_type is None else Symbol(content_type),
    )
    message = of_body(body)
    message.header = Header(
        durable=durable, priority=priority, ttl=None if ttl_s is None else max(1, round(ttl_s * 1000))
    )
    message.properties = None if given == Properties() else given
    message.application_properties = None if properties is None else dict(properties)
    return message


def of_body(body: object) -> Message:
    """A durable message that has this body, and nothing else."""
    header = Header(durable=True)
    if isinstance(body, bytes | bytearray | memoryview):
        return Message(header=header, data=[bytes(body)])
    return Message(header=header, value=body)
