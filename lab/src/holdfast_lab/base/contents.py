"""The content of a message, drawn from its key, and the comparison of what a consumer received with what was sent.

Rules of this file: one key, one content, whoever sends it and how often; `History.sent` alone remembers. What is drawn
changes every few messages of a producer, so that both runs of like messages and single ones occur.
"""

from binascii import crc32
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.amqp.wire.types import Symbol
from holdfast.client import Header, Message, Properties

ALIKE: Final = 8
"""So many consecutive numbers of a producer are drawn alike but for their bodies."""
NOTE: Final = "x-opt-drawn"
PRIORITIES: Final = 10
PRIORITY_DEFAULT: Final = Header().priority


@dataclass(frozen=True, slots=True)
class Content:
    """What must arrive of one message. `bare`: its properties, application properties and body as they were encoded
    (AMQP 1.0 §3.2), which no node may change."""

    bare: bytes
    durable: bool
    priority: int
    annotations: Mapping[Any, Any]


def body_of(key: bytes, size: int) -> bytes:
    """At least `size` bytes that are unique to this key and end with it."""
    filling = b"%08x." % crc32(key)
    room = max(0, size - len(key))
    return (filling * (room // len(filling) + 1))[:room] + key


def message_of(key: bytes, size: int, header: Header | None) -> Message:
    """The message of that key. A `header` that is given keeps its time to live."""
    producer, number = key[:3], int(key[4:])
    message = Message(header=header, data=[body_of(key, size)])
    if crc32(producer) & 1:
        return message  # half of the producers send bodies alone, as most programs do: long runs
    drawn = crc32(b"%s/%d" % (producer, number // ALIKE))
    if drawn & 3 == 1:
        message.properties = Properties(message_id=key.decode(), subject=f"subject {drawn % 7}")
        message.application_properties = {"key": key, "number": number, "even": number % 2 == 0}
    if drawn >> 2 & 3 == 1:
        message.message_annotations = {Symbol(NOTE): f"{key.decode()} {drawn}"}
    if drawn >> 4 & 1:
        priority = drawn >> 8 & 15
        message.header = replace(
            header or Header(),
            durable=bool(drawn >> 5 & 1),
            priority=priority if priority < PRIORITIES else PRIORITY_DEFAULT,
        )
    return message


def _is_even(key: bytes) -> bool:
    return bool((message_of(key, 0, None).application_properties or {}).get("even"))


def _is_urgent(key: bytes) -> bool:
    header = message_of(key, 0, None).header
    return header is not None and header.priority > PRIORITY_DEFAULT


SELECTORS: Final[dict[str, Callable[[bytes], bool]]] = {
    "even = TRUE": _is_even,
    "JMSPriority > 4 OR even": lambda key: _is_urgent(key) or _is_even(key),
    "JMSType LIKE 'no such%'": lambda key: False,
}
"""Selectors that readers use, and whether the message of a key is selected, if its producer gave no header."""

EVERYTHING: Final = "TRUE"
"""A selector that selects all messages."""


def _subject(key: bytes) -> str:
    properties = message_of(key, 0, None).properties
    return (properties.subject if properties is not None else None) or ""


PATTERNS: Final[dict[str, Callable[[bytes], bool]]] = {
    "": lambda key: True,
    "#": lambda key: True,
    "*": lambda key: bool(_subject(key)),
    "subject 3.#": lambda key: _subject(key) == "subject 3",
    "no.such": lambda key: False,
}
"""Patterns of topics' subscriptions, and whether they match the message of a key."""


def content_of(message: Message) -> Content:
    """What of that message must arrive."""
    bare = Message(
        properties=message.properties,
        application_properties=message.application_properties,
        data=message.data,
    ).encode()
    header = message.header or Header()
    return Content(bare, header.durable, header.priority, message.message_annotations or {})


def difference(content: Content, payload: bytes, message: Message) -> str | None:
    """How that message, which came as `payload`, differs from what was sent; None where it does not.

    The time to live, who had it before and how often may change on the way, and annotations may be added.
    """
    if not payload.endswith(content.bare):
        return "has other properties or another body"
    header = message.header or Header()
    if header.durable != content.durable:
        return f"is durable={header.durable}, and was sent as durable={content.durable}"
    if header.priority != content.priority:
        return f"has priority {header.priority}, and was sent with {content.priority}"
    notes = message.message_annotations or {}
    for name, value in content.annotations.items():
        if notes.get(name) != value:
            return f"has {notes.get(name)!r} as annotation {name}, and was sent with {value!r}"
    return None
