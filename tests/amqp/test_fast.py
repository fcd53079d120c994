"""The fast forms against the plain ones: where a fast parser gives a value, the codec gives the same."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import long_form
from holdfast.amqp.links.transfer_form import TransferForm
from holdfast.amqp.wire import encoding, fast
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import (
    Accepted,
    Disposition,
    Error,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Transfer,
)
from holdfast.amqp.wire.plain import plain_disposition, plain_flow, plain_transfer
from holdfast.errors import RemoteProtocolError

UINT = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))
MAYBE = st.none() | UINT
FLAG = st.none() | st.booleans()
STATE = st.sampled_from(
    [None, Accepted(), Released(), Rejected(), Rejected(Error("a:b", "c")), Modified(True), Received(1, 2)]
)
TRANSFERS = st.builds(
    Transfer, UINT, MAYBE, st.none() | st.binary(max_size=32), MAYBE, FLAG, st.booleans(),
    st.none() | st.integers(0, 1), STATE, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
DISPOSITIONS = st.builds(Disposition, st.booleans(), UINT, MAYBE, st.booleans(), STATE, st.booleans())
FLOWS = st.builds(Flow, MAYBE, UINT, UINT, UINT, MAYBE, MAYBE, MAYBE, MAYBE, st.booleans(), st.booleans())


def wide(value: object) -> bytes:
    """The same composite in its long form, where it has one."""
    raw = encoding.encode(value)
    return long_form(raw) if raw[3] == 0xC0 else raw


def outcome(parse: Any, *arguments: Any) -> Any:
    try:
        return parse(*arguments)
    except RemoteProtocolError as error:
        return error.condition


@given(TRANSFERS, st.binary(max_size=20), st.binary(max_size=5), st.booleans())
def test_transfers(transfer: Transfer, payload: bytes, before: bytes, long: bool) -> None:
    raw = before + (wide(transfer) if long else encoding.encode(transfer)) + payload
    at, end = len(before), len(raw)
    plain = plain_transfer(raw + b"next", at, end)
    quick = fast.parse_transfer(raw + b"next", at + 3, end)
    assert quick is None or quick == plain
    if transfer.state is None and (transfer.delivery_tag is None or len(transfer.delivery_tag) < 256):
        assert quick is not None
    assert raw[plain[-1] : end] == payload


@given(DISPOSITIONS, st.booleans())
def test_dispositions(disposition: Disposition, long: bool) -> None:
    raw = wide(disposition) if long else encoding.encode(disposition)
    quick = fast.parse_disposition(raw + b"next", 3, len(raw))
    assert quick is None or quick == plain_disposition(raw)
    if disposition.state in (None, Accepted(), Released()):
        assert quick is not None


@given(FLOWS, st.booleans())
def test_flows(flow: Flow, long: bool) -> None:
    raw = wide(flow) if long else encoding.encode(flow)
    assert fast.parse_flow(raw + b"next", 3, len(raw)) == plain_flow(raw)


@st.composite
def spoilt(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> bytes:
    """A performative with a few bytes changed, or cut, or with bytes behind it."""
    raw = bytearray(encoding.encode(draw(values)))
    for _ in range(draw(st.integers(1, 3))):
        raw[draw(st.integers(3, len(raw) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(4, len(raw)))
    return bytes(raw[:cut]) + draw(st.binary(max_size=4))


@given(spoilt(TRANSFERS))
def test_spoilt_transfers(raw: bytes) -> None:
    quick = fast.parse_transfer(raw, 3, len(raw))
    assert quick is None or quick == outcome(plain_transfer, raw, 0, len(raw))


@given(spoilt(DISPOSITIONS))
def test_spoilt_dispositions(raw: bytes) -> None:
    quick = fast.parse_disposition(raw, 3, len(raw))
    assert quick is None or quick == outcome(plain_disposition, raw)


@given(spoilt(FLOWS))
def test_spoilt_flows(raw: bytes) -> None:
    quick = fast.parse_flow(raw, 3, len(raw))
    assert quick is None or quick == outcome(plain_flow, raw)


@given(st.booleans(), UINT, UINT, st.booleans(), STATE)
def test_a_written_disposition_is_the_codecs(role: bool, first: int, last: int, settled: bool, state: Any) -> None:
    raw = fast.disposition_frame(7, role, first, last, settled, state)
    if raw is None:
        assert not isinstance(state, Accepted | Released | None)
        return
    assert raw[:8] == len(raw).to_bytes(4, "big") + b"\x02\x00\x00\x07"
    assert decode_composite(raw[8:]) == (Disposition(role, first, last, settled, state), len(raw) - 8)


@given(UINT, UINT, UINT, UINT, UINT, UINT, UINT, st.booleans())
def test_a_written_flow_is_the_codecs(a: int, b: int, c: int, d: int, e: int, f: int, g: int, drain: bool) -> None:
    raw = fast.flow_frame(7, a, b, c, d, e, f, g, drain)
    assert raw[:8] == len(raw).to_bytes(4, "big") + b"\x02\x00\x00\x07"
    assert decode_composite(raw[8:]) == (Flow(a, b, c, d, e, f, g, None, drain), len(raw) - 8)


@given(st.integers(0, 65535), UINT, st.integers(0, 5000), UINT, st.booleans(), st.sampled_from([0, 5]))
def test_the_frames_of_a_cut_delivery_are_the_codecs(
    channel: int, handle: int, size: int, delivery_id: int, settled: bool, offset: int
) -> None:
    form = TransferForm(channel, handle, 512, offset)
    tag = ((delivery_id + offset) & 0xFFFFFFFF).to_bytes(4, "big")
    for raw, said in (
        (form.first(size, delivery_id, settled), Transfer(handle, delivery_id, tag, 0, settled, True)),
        (form.following(size, True), Transfer(handle, more=True)),
        (form.following(size, False), Transfer(handle)),
    ):
        assert raw[:8] == (len(raw) + size).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big")
        assert decode_composite(raw[8:]) == (said, len(raw) - 8)
        assert len(raw) <= (form.first_bytes if said.delivery_tag else form.following_bytes)


@given(st.integers(0, 65535), UINT, st.integers(0, 5000), UINT, st.booleans())
def test_a_written_transfer_is_the_codecs(
    channel: int, handle: int, size: int, delivery_id: int, settled: bool
) -> None:
    form = TransferForm(channel, handle, 512)
    flags = b"\x43\x41" if settled else b"\x43\x42"
    raw = form.pack(form.head_bytes + size, form.prefix, delivery_id, b"\xa0\x04", delivery_id, flags)
    assert len(raw) == form.head_bytes
    assert raw[:8] == (len(raw) + size).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big")
    tag = delivery_id.to_bytes(4, "big")
    assert decode_composite(raw[8:]) == (Transfer(handle, delivery_id, tag, 0, settled), len(raw) - 8)
