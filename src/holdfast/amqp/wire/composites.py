"""How composite types are described, encoded and decoded: one entry for each composite, one rule for each kind of
field. AMQP 1.0 §1.4.

Rules of this file: plain values of a caller (str for a symbol, int for a uint) are coerced when encoded; values of a
peer are checked when decoded. performatives.py defines the composites.
"""

from collections.abc import Callable
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.amqp.wire import conditions, decoding, encoding
from holdfast.amqp.wire.forms import DEPTH_MAX
from holdfast.amqp.wire.types import Array, Described, Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort, symbols
from holdfast.errors import LocalProtocolError, RemoteProtocolError

T = TypeVar("T")

UINT_MAX: Final = 0xFFFFFFFF
TAG_BYTES_MAX: Final = 32  # §2.8.7


class Shape(NamedTuple):
    """The wire form of a composite: descriptors, then (name, kind, mandatory, default) of each field."""

    cls: type[Any]
    code: Ulong
    prefix: bytes
    fields: tuple[tuple[str, str, bool, Any], ...]


_BY_CLASS: Final[dict[type[Any], Shape]] = {}
_BY_DESCRIPTOR: Final[dict[object, Shape]] = {}


def composite(code: int, symbol: str, *kinds: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as the composite `code`, whose fields have these AMQP types."""

    def add(cls: type[T]) -> type[T]:
        rows = []
        for field, kind in zip(fields(cls), kinds, strict=True):  # type: ignore[arg-type]  # a dataclass by rule
            default = None if field.default is NO_DEFAULT else field.default
            rows.append((field.name, kind.rstrip("!"), kind.endswith("!"), default))
        shape = Shape(cls, Ulong(code), b"\x00" + encoding.encode(Ulong(code)), tuple(rows))
        _BY_CLASS[cls] = _BY_DESCRIPTOR[shape.code] = _BY_DESCRIPTOR[Symbol(symbol)] = shape
        encoding.register(cls, _write_composite)
        return cls

    return add


def _write_composite(value: Any, out: bytearray, depth: int) -> None:
    shape = _BY_CLASS[type(value)]
    row = []
    last = 0
    for index, (name, kind, mandatory, default) in enumerate(shape.fields, 1):
        item = getattr(value, name)
        if item is not None:
            to_wire = _TO_WIRE.get(kind)
            row.append(item if to_wire is None else to_wire(item))
            if mandatory or item != default:
                last = index
        elif mandatory:
            raise LocalProtocolError(f"{type(value).__name__}.{name} is mandatory")
        else:
            row.append(None)
    out += shape.prefix
    encoding.write_list(row[:last], out, depth + 1)


def decode_composite(data: bytes, offset: int = 0, nesting_max: int = DEPTH_MAX) -> tuple[Any, int]:
    """The composite at `offset` and the offset after it; RemoteProtocolError (decode-error) for anything else."""
    value, end = decoding.decode(data, offset, nesting_max)
    return from_described(value), end


def from_described(value: object) -> Any:
    """The composite of a described list; RemoteProtocolError if there is none."""
    if not isinstance(value, Described):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "expected a described list")
    shape = _find(value.descriptor)
    if shape is None:
        text = f"invalid descriptor {value.descriptor!r:.80}; expected that of a composite"
        raise RemoteProtocolError(conditions.DECODE_ERROR, text)
    row = value.value
    name = shape.cls.__name__.lower()
    if not isinstance(row, list):
        raise RemoteProtocolError(conditions.DECODE_ERROR, f"invalid {name}; expected a list")
    if len(row) > len(shape.fields):
        text = f"invalid {name} of {len(row)} fields; expected at most {len(shape.fields)}"
        raise RemoteProtocolError(conditions.DECODE_ERROR, text)
    values = []
    count = len(row)
    for index, (field, kind, mandatory, default) in enumerate(shape.fields):
        item = row[index] if index < count else None
        if item is None:
            if mandatory:
                raise RemoteProtocolError(conditions.DECODE_ERROR, f"{name} has no {field}, which is mandatory")
            values.append(default)
            continue
        try:
            values.append(_FROM_WIRE[kind](item))
        except (ValueError, TypeError):
            text = f"invalid value {item!r:.80} for {field} of {name}; expected a {kind}"
            raise RemoteProtocolError(conditions.DECODE_ERROR, text) from None
    return shape.cls(*values)


def _find(descriptor: object) -> Shape | None:
    if isinstance(descriptor, Ulong | Symbol):
        return _BY_DESCRIPTOR.get(descriptor)
    return None


# --------------------------------------------------------------------------------------------- field kinds


def _integer_in(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return check


def _instance(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise ValueError
        return value

    return check


def _several_symbols(value: Any) -> tuple[Symbol, ...]:
    if isinstance(value, str):
        return (Symbol(value),)
    values = value.values if isinstance(value, Array) else value
    if not isinstance(values, tuple | list) or not all(isinstance(item, str) for item in values):
        raise ValueError
    return tuple(Symbol(item) for item in values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _symbol(value: Any) -> Symbol:
    if not isinstance(value, str):
        raise ValueError
    return Symbol(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError
    return value


def _anything(value: Any) -> Any:
    return value


def _composite_of(*names: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        made = from_described(value)
        if type(made).__name__ not in names:
            raise ValueError
        return made

    return check


def _delivery_state(value: Any) -> Any:
    """A known state as its class; an unknown one stays Described (extensions are legal, §3.4)."""
    if not isinstance(value, Described):
        raise ValueError
    return value if _find(value.descriptor) is None else from_described(value)


def _terminus(value: Any) -> Any:
    """As `_delivery_state`, for a source or target."""
    return _delivery_state(value)


def _unsettled(value: Any) -> Any:
    """§2.7.3: delivery-tags, and known states as classes; without null keys and tags that are too long."""
    if not all(type(tag) is bytes and len(tag) <= TAG_BYTES_MAX for tag in _instance(dict)(value)):
        raise ValueError
    return {tag: None if state is None else _delivery_state(state) for tag, state in value.items()}


def _message_id(value: Any) -> Any:
    if type(value) not in (Ulong, UUID, bytes, str):
        raise ValueError
    return value


_FROM_WIRE: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": _instance(bool), "ubyte": _integer_in(0, 255), "ushort": _integer_in(0, 65535),
    "uint": _integer_in(0, UINT_MAX), "ulong": _integer_in(0, 2**64 - 1), "unsettled": _unsettled,
    "timestamp": _integer_in(-(2**63), 2**63 - 1), "string": _text, "symbol": _symbol, "binary": _binary,
    "symbols": _several_symbols, "fields": _instance(dict), "map": _instance(dict), "any": _anything,
    "state": _delivery_state, "terminus": _terminus, "error": _composite_of("Error"), "id": _message_id,
}  # fmt: skip


def _to_fields(value: dict[Any, Any]) -> dict[Any, Any]:
    return {Symbol(key) if type(key) is str else key: item for key, item in value.items()}


def _to_symbols(value: Any) -> Any:
    return Symbol(value) if isinstance(value, str) else symbols(value)


def _to_id(value: Any) -> Any:
    return Ulong(value) if isinstance(value, int) else value


_TO_WIRE: Final[dict[str, Callable[[Any], Any]]] = {
    "ubyte": Ubyte, "ushort": Ushort, "uint": Uint, "ulong": Ulong, "timestamp": Timestamp,
    "symbol": Symbol, "symbols": _to_symbols, "fields": _to_fields, "id": _to_id,
}  # fmt: skip
