"""The inverse of `exact_json`: JSON that a program wrote, as the AMQP value that it represents.

Rules of this file: pure; whatever the JSON holds, it is a value or a ValueError of one line. Depth is the parser's.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import (
    MISSING,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Descriptors,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from holdfast.client.messages.typed_json import PREFIX

INFINITE: Final = ("NaN", "Infinity", "-Infinity")


def json_value(told: Any) -> Any:
    """The value for which `exact_json` gives `told`. ValueError if there is no such value."""
    if isinstance(told, list):
        return [json_value(item) for item in told]
    if not isinstance(told, dict):
        return told
    kinds = {key for key in told if key.startswith(PREFIX)}
    if not kinds:
        return {key: json_value(item) for key, item in told.items()}
    if len(kinds) == len(told):
        names = {key.removeprefix(PREFIX) for key in kinds}
        if len(names) == 1:
            (name,) = names
            if name in _READERS:
                return _READERS[name](told[f"{PREFIX}{name}"])
        elif names == {"descriptor", "value"}:
            return Described(json_value(told[f"{PREFIX}descriptor"]), json_value(told[f"{PREFIX}value"]))
        elif {"array", "code"} <= names <= {"array", "code", "descriptor", "descriptors"} and len(names) < 4:
            return _array(told)
    raise ValueError(f"invalid key {min(kinds)!r}; expected a type of AMQP after {PREFIX!r}, alone in its object")


def whole_number(told: Any) -> int:
    """An integer. ValueError for anything else, truth values included."""
    if type(told) is not int:
        raise ValueError(f"invalid value {told!r:.80}; expected a whole number")
    return told


def some_text(told: Any) -> str:
    if not isinstance(told, str):
        raise ValueError(f"invalid value {told!r:.80}; expected text")
    return told


def base64_bytes(told: Any) -> bytes:
    """The bytes of a text in base64."""
    try:
        return base64.b64decode(some_text(told), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"invalid value {told!r:.80}; expected base64") from None


def _number(kind: type[int]) -> Callable[[Any], int]:
    return lambda told: kind(whole_number(told))


def _float(kind: type[float]) -> Callable[[Any], float]:
    def read(told: Any) -> float:
        if type(told) in (int, float) or (isinstance(told, str) and told in INFINITE):
            try:
                return kind(told)
            except OverflowError:
                pass
        raise ValueError(f"invalid value {told!r:.80}; expected a number, or one of {', '.join(INFINITE)}")

    return read


def _raw(kind: type[bytes]) -> Callable[[Any], bytes]:
    return lambda told: kind(bytes.fromhex(some_text(told)))


def _map(told: Any) -> Pairs:
    """Whose keys may be what a dict cannot hold."""
    if not isinstance(told, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in told):
        raise ValueError(f"invalid value {told!r:.80}; expected a list of pairs")
    return Pairs((json_value(key), json_value(item)) for key, item in told)


def _list(told: Any) -> list[Any]:
    if not isinstance(told, list):
        raise ValueError(f"invalid value {told!r:.80}; expected a list")
    return told


def _array(told: dict[str, Any]) -> Array:
    descriptor: object = MISSING
    if f"{PREFIX}descriptors" in told:
        descriptor = Descriptors(json_value(item) for item in _list(told[f"{PREFIX}descriptors"]))
    elif f"{PREFIX}descriptor" in told:
        descriptor = json_value(told[f"{PREFIX}descriptor"])
    values = tuple(json_value(item) for item in _list(told[f"{PREFIX}array"]))
    return Array(whole_number(told[f"{PREFIX}code"]), values, descriptor)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{kind.__name__.lower(): _number(kind) for kind in (Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Timestamp)},
    **{kind.__name__.lower(): _raw(kind) for kind in (Decimal32, Decimal64, Decimal128)},
    "float": _float(Float),
    "double": _float(float),
    "symbol": lambda told: Symbol(some_text(told)),
    "char": lambda told: Char(some_text(told)),
    "binary": base64_bytes,
    "uuid": lambda told: UUID(some_text(told)),
    "map": _map,
}
