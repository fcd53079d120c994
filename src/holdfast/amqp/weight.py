"""How much memory a decoded value uses, about, in bytes: a frame of 64 kB may decode into four megabytes.

Rules of this file: pure; used for what is kept of a peer's open and attaches, never for messages.
"""

from dataclasses import fields, is_dataclass
from typing import Any, Final

_OBJECT: Final = 56
"""An object's header and its slot in its container."""
_PAIR: Final = 100
"""A pair's share of a dict, kept half empty at worst."""
_SMALL: Final = frozenset((type(None), bool))
_FIELD_NAMES: Final[dict[type[Any], tuple[str, ...]]] = {}
"""Kinds are as many as AMQP has types."""


def weight(value: Any) -> int:
    """Bytes."""
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        total += _OBJECT
        if kind is list or kind is tuple:
            stack += item
        elif kind in _SMALL:
            continue
        elif isinstance(item, str):
            total += len(item) if item.isascii() else 4 * len(item)
        elif isinstance(item, bytes):
            total += len(item)
        elif isinstance(item, dict):
            total += _PAIR * len(item)
            stack += item.keys()
            stack += item.values()
        else:
            stack += [getattr(item, name) for name in _field_names(kind)]
    return total


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """Of a composite; none of any other kind."""
    names = _FIELD_NAMES.get(kind)
    if names is None:
        names = _FIELD_NAMES[kind] = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
    return names
