"""Values of any depth as what can be compared whole, with the types in them (test_direct.py).

Rules of this file: two values that differ in a type anywhere are spelt differently.
"""

from dataclasses import fields, is_dataclass
from typing import Any

from holdfast.amqp.link import Link
from holdfast.amqp.session import Session


def spelt(value: Any) -> Any:
    """The value with the types of all that is in it; links and sessions by name."""
    if isinstance(value, Link | Session):
        return repr(value)
    kind = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return kind, [spelt(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, list | tuple):
        return kind, [spelt(item) for item in value]
    if isinstance(value, dict):
        return kind, [(spelt(key), spelt(item)) for key, item in value.items()]
    return kind, value
