"""What decoded values are reckoned to hold, beside what they do."""

import tracemalloc
from typing import Any

import pytest

from holdfast.amqp.weight import weight
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import Attach, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Uint


@pytest.mark.parametrize("value", [
    [[]] * 10_000,
    [Uint(5)] * 10_000,
    ["text"] * 10_000,
    [b"x" * 1_000] * 50,
    "x" * 50_000,
    {Symbol(f"key{number}"): number for number in range(3_000)},
    [{Symbol("a"): None}] * 3_000,
    [Described(Symbol("x"), [1, 2])] * 2_000,
])  # fmt: skip
def test_it_is_no_less_than_half_of_what_is_held(value: Any) -> None:
    raw = encoding.encode(Attach("l", 0, False, source=Source(), target=Target("q"), properties={Symbol("x"): value}))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        attach, _ = decode_composite(raw)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held / 2 < weight(attach) < 8 * held + 10_000


def test_an_ordinary_attach_weighs_little() -> None:
    assert weight(Attach("receiver-1", 0, True, source=Source("flights"), target=Target("here"))) < 4_096
