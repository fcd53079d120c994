"""The meaning of names in selectors: an application property, or a field or annotation of the message. Rules of this
file: a name that depends on anything other than stored data is invalid. So each evaluation of a selector on one entry
gives the same result (docs/adr/0059-selectors.md). JMS names show what Qpid JMS shows, `AmqpMessageIdHelper` for the
two identifiers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.selectors.sections import UNDECODABLE, Sections

HEADER: Final = "header"
PROPERTIES: Final = "properties"
APPLICATION_PROPERTIES: Final = "application-properties"
MESSAGE_ANNOTATIONS: Final = "message-annotations"

ANNOTATION: Final = "amqp.annotation."

Reader = Callable[[Sections], Any]


@dataclass(frozen=True, slots=True)
class Property:
    """`section`: the section of the message that contains it; `read`: returns its value, None if it is missing or null,
    UNDECODABLE if it cannot be decoded."""

    section: str
    read: Reader


_FIELDS: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
"""The fields of the properties, in order (AMQP 1.0 §3.2.4)."""


def _field(index: int) -> Reader:
    return methodcaller("property_field", index)


def _priority(message: Sections) -> Any:
    return message.priority


def _durable(message: Sections) -> Any:
    return message.durable


def _delivery_mode(message: Sections) -> Any:
    durable = message.durable
    if durable is UNDECODABLE:
        return durable
    return "PERSISTENT" if durable else "NON_PERSISTENT"


_MESSAGE_ID: Final = _FIELDS.index("message_id")
_USER_ID: Final = _FIELDS.index("user_id")
_CORRELATION_ID: Final = _FIELDS.index("correlation_id")
_ESCAPED: Final = ("ID:AMQP_BINARY:", "ID:AMQP_UUID:", "ID:AMQP_ULONG:", "ID:AMQP_STRING:", "ID:AMQP_NO_PREFIX:")
"""Strings with these prefixes are shown with the prefix `ID:AMQP_STRING:`."""


def _shown(identifier: Any, no_prefix: str) -> Any:
    """A message-id or correlation-id as a JMS client shows it. A value of any other type is unchanged."""
    if isinstance(identifier, str):
        if not identifier.startswith("ID:"):
            return no_prefix + identifier
        return "ID:AMQP_STRING:" + identifier if identifier.startswith(_ESCAPED) else identifier
    if isinstance(identifier, UUID):
        return f"ID:AMQP_UUID:{identifier}"
    if isinstance(identifier, Ulong):
        return f"ID:AMQP_ULONG:{int(identifier)}"
    if type(identifier) is bytes:
        return f"ID:AMQP_BINARY:{identifier.hex().upper()}"
    return identifier


def _jms_message_id(message: Sections) -> Any:
    return _shown(message.property_field(_MESSAGE_ID), "ID:AMQP_NO_PREFIX:")


def _jms_correlation_id(message: Sections) -> Any:
    return _shown(message.property_field(_CORRELATION_ID), "")


def _jms_user_id(message: Sections) -> Any:
    """The bytes as UTF-8."""
    user = message.property_field(_USER_ID)
    if type(user) is not bytes:
        return user
    try:
        return user.decode()
    except UnicodeDecodeError:
        return UNDECODABLE


_KNOWN: Final = {
    "JMSMessageID": Property(PROPERTIES, _jms_message_id),
    "JMSCorrelationID": Property(PROPERTIES, _jms_correlation_id),
    "JMSTimestamp": Property(PROPERTIES, _field(_FIELDS.index("creation_time"))),
    "JMSType": Property(PROPERTIES, _field(_FIELDS.index("subject"))),
    "JMSXGroupID": Property(PROPERTIES, _field(_FIELDS.index("group_id"))),
    "JMSXGroupSeq": Property(PROPERTIES, _field(_FIELDS.index("group_sequence"))),
    "JMSXUserID": Property(PROPERTIES, _jms_user_id),
    "JMSPriority": Property(HEADER, _priority),
    "JMSDeliveryMode": Property(HEADER, _delivery_mode),
    "amqp.priority": Property(HEADER, _priority),
    "amqp.durable": Property(HEADER, _durable),
} | {f"amqp.{name}": Property(PROPERTIES, _field(index)) for index, name in enumerate(_FIELDS)}


def lookup(name: str) -> Property:
    """The property that `name` means; names are case-sensitive. Raises ValueError with the reason if it is invalid."""
    known = _KNOWN.get(name)
    if known is not None:
        return known
    if name.startswith(ANNOTATION) and name != ANNOTATION:
        key = name[len(ANNOTATION) :]
        return Property(MESSAGE_ANNOTATIONS, methodcaller("annotation", key))
    if name.startswith("JMS"):
        raise ValueError(f"{name:.80} cannot be selected by: it is none of {', '.join(_names('JMS'))}")
    if name.startswith("amqp."):
        raise ValueError(f"{name:.80} is no field of a message: known are {', '.join(_names('amqp.'))}")
    return Property(APPLICATION_PROPERTIES, methodcaller("application_property", name))


def _names(prefix: str) -> list[str]:
    return [name for name in _KNOWN if name.startswith(prefix)] + [f"{ANNOTATION}KEY"] * (prefix == "amqp.")
