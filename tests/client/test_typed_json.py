"""Values as typed JSON: no two values become the same, whatever the types, but for the width of numbers."""

import json
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.wire.types import Array, Char, Decimal32, Described, Float, Pairs, Symbol, Timestamp, Ubyte, Ulong
from holdfast.client.messages.typed_json import json_text, typed_json
from support import today

U = UUID("5d2b9c5e-6a40-4b5c-8c9e-0123456789ab")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None), (True, True), (Ubyte(5), 5), (Ulong(2**64 - 1), 2**64 - 1),
        (-1.5, -1.5), (Float(0.5), 0.5), ("é", "é"),
        (Symbol("s"), {"amqp:symbol": "s"}), (Char("c"), {"amqp:char": "c"}), (Timestamp(9), {"amqp:timestamp": 9}),
        (b"\x00\xff", {"amqp:binary": "AP8="}), (U, {"amqp:uuid": str(U)}),
        (Decimal32(b"\x00\x00\x00\x01"), {"amqp:decimal32": "00000001"}),
        (math.inf, {"amqp:double": "Infinity"}), (-math.inf, {"amqp:double": "-Infinity"}),
        (math.nan, {"amqp:double": "NaN"}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ({}, {}), ({1: "x", "1": "y"}, {"amqp:map": [[1, "x"], ["1", "y"]]}),
        ({"amqp:map": 1}, {"amqp:map": [["amqp:map", 1]]}),
        ({Symbol("a"): 1}, {"amqp:map": [[{"amqp:symbol": "a"}, 1]]}),
        (Pairs(((1, 2), (1.0, 3))), {"amqp:map": [[1, 2], [1.0, 3]]}),
        (Described(Symbol("d"), [1]), {"amqp:descriptor": {"amqp:symbol": "d"}, "amqp:value": [1]}),
        (Array(0x71, (1, 2)), {"amqp:array": [1, 2]}),
        (Array(0x71, (1,), Ulong(7)), {"amqp:array": [1], "amqp:descriptor": 7}),
    ],
)  # fmt: skip
def test_the_mapping(value: object, told: object) -> None:
    assert typed_json(value) == told
    assert json.loads(json_text(value)) == told


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="no AMQP value: object"):
        typed_json([object()])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from([Symbol("x"), Char("x"), "x", b"x", "amqp:map", "amqp:symbol", U, str(U)])
    | st.integers(0, 9).map(Timestamp)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["amqp:map", "amqp:value"]), inner, max_size=3)
        | st.lists(st.tuples(inner, inner), max_size=3).map(lambda pairs: Pairs(tuple(pairs)))
        | st.tuples(inner, inner).map(lambda pair: Described(*pair))
    ),
    max_leaves=8,
)


def back(told: Any) -> Any:
    """What `told` was, with its types, as a form that can be compared."""
    if isinstance(told, list):
        return ["list", *map(back, told)]
    if not isinstance(told, dict):
        return [type(told).__name__, told]
    if keys := [key for key in told if key.startswith("amqp:")]:
        if keys == ["amqp:map"]:
            return ["map", *([back(key), back(item)] for key, item in told["amqp:map"])]
        return [keys[0], *(back(told[key]) for key in keys)]
    return ["map", *([["str", key], back(item)] for key, item in told.items())]


def shape(value: Any) -> Any:
    """The same of the value itself."""
    match value:
        case Described(descriptor, inner):
            return ["amqp:descriptor", shape(descriptor), shape(inner)]
        case Pairs():
            return ["map", *([shape(key), shape(item)] for key, item in value)]
        case dict():
            return ["map", *([shape(key), shape(item)] for key, item in value.items())]
        case list():
            return ["list", *map(shape, value)]
        case float() if math.isinf(value):
            return ["amqp:double", ["str", "Infinity" if value > 0 else "-Infinity"]]
        case Symbol() | Char():
            return [f"amqp:{type(value).__name__.lower()}", ["str", str(value)]]
        case Timestamp():
            return ["amqp:timestamp", ["int", int(value)]]
        case UUID():
            return ["amqp:uuid", ["str", str(value)]]
        case bytes():
            return ["amqp:binary", back(typed_json(value)["amqp:binary"])]
        case _:
            return [type(value).__name__, value]


@given(value=VALUES)
@settings(max_examples=today.drawn(100), deadline=None)
def test_every_value_can_be_told_back(value: object) -> None:
    assert back(json.loads(json_text(value))) == shape(value)
