"""Strategies: well-formed performatives with hostile values, and frames that were spoilt on their way.

Rules of this file: drawn from the shapes that performatives.py registers, so that no field is forgotten.
"""

from typing import Any

from hypothesis import strategies as st

from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import _BY_CLASS
from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.amqp.wire.types import Described, Symbol, Ulong

EDGES = [0, 1, 2, 3, 5, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1]
ADDRESSES = ["work", "other", "work@hub", "a@nowhere", "$management", "$holdfast/custody", "", "@hub", "q" * 201, "\n"]
KEYS = [
    "holdfast:producer", "holdfast:epoch", "holdfast:destination", "holdfast:continues", "x", "holdfast:start",
]  # fmt: skip

scalars = (
    st.none() | st.booleans() | st.sampled_from(EDGES) | st.text(max_size=8) | st.binary(max_size=8) | st.floats()
    | st.uuids() | st.sampled_from(EDGES).map(Ulong) | st.sampled_from(ADDRESSES)
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.builds(Described, st.sampled_from([Ulong(0x24), Symbol("x"), 7]), inner)
    ),
    max_leaves=8,
)
symbols = st.sampled_from(["queue", "copy", "never", "session-end", "holdfast:custody", "x" * 300]).map(Symbol)
states = st.sampled_from([
    None, Accepted(), Rejected(), Rejected(Error("a:b", "c")), Released(), Received(1, 2), Modified(True, True),
    Modified(None, None, {Symbol("x"): "y" * 50}), TransactionalState(b"t"), Declare(b"x"),
    Described(Symbol("unknown"), []),
])  # fmt: skip
filters = st.dictionaries(
    st.sampled_from(["a", "b"]).map(Symbol),
    st.builds(
        Described,
        st.sampled_from(
            ["holdfast:start-sequence:ulong", "holdfast:end-sequence:ulong", "holdfast:subscription:list", "x"]
        ).map(Symbol),
        anything,
    ),
    max_size=2,
)


def _field(kind: str, name: str) -> st.SearchStrategy[Any]:
    """Values that the field may have by its type, whatever their sense."""
    if kind == "boolean":
        return st.booleans()
    if kind in ("ubyte", "ushort", "uint", "ulong", "timestamp"):
        top = {"ubyte": 255, "ushort": 65_535}.get(kind, 2**32 - 1)
        low = st.integers(0, 3)
        return low | low | st.sampled_from([edge for edge in EDGES if edge <= top])
    if name == "address":
        return st.sampled_from(ADDRESSES) | st.text(max_size=6)
    if kind == "filter" or name == "filter":
        return filters
    return {
        "string": st.sampled_from(["a", "b", "n" * 1_025]) | st.text(max_size=5),
        "symbol": symbols,
        "symbols": st.lists(symbols, max_size=2).map(tuple),
        "binary": st.binary(max_size=40),
        "fields": st.dictionaries(st.sampled_from(KEYS).map(Symbol), anything, max_size=3),
        "map": st.dictionaries(symbols, anything, max_size=3),
        "unsettled": st.dictionaries(st.binary(max_size=4), states, max_size=3),
        "state": states,
        "terminus": st.deferred(lambda: termini),
        "error": st.builds(Error, symbols, st.none() | st.text(max_size=20)),
        "any": anything,
    }[kind]


def some(cls: type) -> st.SearchStrategy[Any]:
    """Instances of the composite, each field present or not."""
    shape = _BY_CLASS[cls]
    values = [
        _field(kind, name) if mandatory else st.one_of(st.just(default), _field(kind, name))
        for name, kind, mandatory, default in shape.fields
    ]
    return st.builds(cls, *values)


termini = st.one_of(
    some(Source), some(Target), st.builds(Coordinator), st.builds(Target, st.sampled_from(ADDRESSES)),
    st.builds(Source, st.sampled_from(ADDRESSES)),
)  # fmt: skip
PERFORMATIVES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
MESSAGES = [
    b"", b"\x00\x53\x75\xa0\x01x", b"\x00\x53\x70\x45\x00\x53\x75\xa0\x01x", b"\x00\x53\x77\x40", b"\xff",
    b"\x00\x53\x72\xc1\x01\x00\x00\x53\x75\xa0\x01x", b"\x00\x53\x75\xb0\x00\x00\x02\x00" + bytes(512),
    b"\x00\x53\x71\xd1\x7f\xff\xff\xff",
]  # fmt: skip
payloads = st.sampled_from(MESSAGES) | st.binary(max_size=30)
channels = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 255, 256, 65_535])


@st.composite
def frames(draw: st.DrawFn, kinds: tuple[type, ...] = PERFORMATIVES) -> bytes:
    """One well-formed frame."""
    value = draw(st.sampled_from(kinds).flatmap(some))
    raw = encoding.encode(value)
    if isinstance(value, Transfer):
        raw += draw(payloads)
    return frame(draw(channels), raw)


@st.composite
def spoilt(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with some changed, left out, put in, or cut; sizes lie as they may."""
    raw = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 4))):
        if not raw:
            break
        at = draw(st.integers(0, len(raw) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                raw[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                raw[at] = draw(st.sampled_from([0, 0x40, 0x41, 0x43, 0x45, 0x53, 0x80, 0xB0, 0xC0, 0xD0, 0xF0, 0xFF]))
            case 2:
                del raw[at : at + draw(st.integers(1, 8))]
            case 3:
                raw[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del raw[at:]
    return bytes(raw)
