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
        elif is_dataclass(item):
            stack += [getattr(item, field.name) for field in fields(item)]
    return total
