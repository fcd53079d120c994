"""The raw load's encoders and scanner, against the product's codec and by hand."""

import struct

import _wire as wire
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire import decoding
from holdfast.amqp.wire.types import Described

SIZE = 64


def frames_of(data: bytes) -> list[bytes]:
    """The frames' bodies, cut by their size fields."""
    found = []
    while data:
        size = struct.unpack_from(">I", data)[0]
        found.append(data[8:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("first", [0, 255, 0xFFFF, 0xFFFFFFFE])
def test_patched_transfers_are_read_by_the_product(first: int) -> None:
    batch = wire.transfer_batch(SIZE, 4)
    bodies = frames_of(bytes(batch.patch(first, 1_000_000_000_000, 3)))
    assert len(bodies) == 3
    for index, body in enumerate(bodies):
        value, end = decoding.decode(body)
        identity = (first + index) & 0xFFFFFFFF
        assert isinstance(value, Described) and value.descriptor == wire.TRANSFER
        assert value.value == [0, identity, struct.pack(">I", identity), 0, False]
        header, end = decoding.decode(body, end)
        assert isinstance(header, Described) and header.descriptor == 0x70 and header.value == [True]
        data, end = decoding.decode(body, end)
        assert isinstance(data, Described) and data.descriptor == 0x75 and isinstance(data.value, bytes)
        assert len(data.value) == SIZE and int.from_bytes(data.value[:8], "big") == 1_000_000_000_000 + index
        assert end == len(body)


def test_a_shorter_batch_leaves_the_rest_unsent() -> None:
    batch = wire.transfer_batch(SIZE, 8)
    assert len(batch.patch(0, 0, 8)) == 8 * batch.step
    assert len(batch.patch(8, 8, 1)) == batch.step


@pytest.mark.parametrize("size", [8, wire.BODY_BYTES_MAX])
def test_sizes_at_the_bounds_are_accepted(size: int) -> None:
    assert len(wire.transfer_batch(size, 1).patch(0, 0, 1)) > size


@pytest.mark.parametrize("size", [7, wire.BODY_BYTES_MAX + 1])
def test_sizes_past_the_bounds_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="for --size; expected"):
        wire.transfer_batch(size, 1)


@pytest.mark.parametrize(
    "frame",
    [
        wire.open_frame("load", "127.0.0.1"),
        wire.begin_frame(0xFFFFFFFF, 2**31 - 1, 1),
        wire.attach_frame("n" * 300, wire.SENDER, "queue"),
        wire.attach_frame("n", wire.RECEIVER, "queue"),
        wire.disposition_frame(wire.RECEIVER, 0, 99),
        wire.sasl_init_frame("PLAIN", b"\0guest\0guest"),
        wire.flow_frame(
            next_incoming_id=1, incoming_window=2, next_outgoing_id=3, outgoing_window=4, delivery_count=5,
            link_credit=6,
        ),
    ],
)  # fmt: skip
def test_control_frames_mean_the_same_to_both_codecs(frame: bytes) -> None:
    assert struct.unpack_from(">I", frame)[0] == len(frame)
    value, end = decoding.decode(frame[8:])
    own = wire.performative(frame[8:])
    assert isinstance(value, Described) and isinstance(value.value, list) and end == len(frame) - 8
    assert own.code == value.descriptor
    plain = [each for each in own.fields if not isinstance(each, wire.Described)]
    assert plain == [each for each in value.value if not isinstance(each, Described)]


@given(count=st.integers(0, 20), cut=st.integers(0, 40), mixed=st.booleans())
def test_scan_counts_transfers_and_stops_at_an_incomplete_frame(count: int, cut: int, mixed: bool) -> None:
    batch = wire.transfer_batch(SIZE, 20)
    data = bytes(batch.patch(7, 0, count)) if count else b""
    control = wire.disposition_frame(wire.RECEIVER, 1, 2) if mixed else b""
    tail = bytes(batch.patch(7, 0, 1))[:cut]
    found = wire.scan(control + wire.EMPTY_FRAME + data + tail, len(control) + 8 + len(data) + len(tail))
    assert found.transfers == count
    assert found.end == len(control) + 8 + len(data)
    assert found.others == ([control[8:]] if mixed else [])
    if count:
        buffer = control + wire.EMPTY_FRAME + data
        assert wire.transfer_delivery_id(buffer, found.last_at) == 7 + count - 1
        assert wire.body_number(buffer, found.last_end, SIZE) == count - 1


@pytest.mark.parametrize(("identity", "encoded"), [(0, b"\x43"), (9, b"\x52\x09"), (2**31, b"\x70\x80\0\0\0")])
def test_delivery_id_is_found_in_each_of_its_forms(identity: int, encoded: bytes) -> None:
    frame = wire.frame(wire.described_list(wire.TRANSFER, (b"\x52\x00", encoded)) + b"payload")
    assert wire.transfer_delivery_id(frame, 0) == identity


def test_a_transfer_without_a_delivery_id_is_refused() -> None:
    with pytest.raises(wire.WireError, match="without a delivery-id"):
        wire.transfer_delivery_id(wire.frame(wire.described_list(wire.TRANSFER, (b"\x43", wire.NULL, b"\x43"))), 0)


@pytest.mark.parametrize("data", [b"\0\0\0\x07\x02\0\0\0", b"\0\0\0\0\x02\0\0\0"])
def test_a_frame_shorter_than_its_header_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError, match="a frame of"):
        wire.scan(data, len(data))


@pytest.mark.parametrize("data", [b"\x70\0", b"\xa1\x05ab", b"\x00\x53", b"\xd0\0\0\0\x09\0\0\0\x01", b"\x3f"])
def test_cut_values_are_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data)


@given(start=st.integers(0, 2**32 - 1), step=st.integers(-(2**31), 2**31 - 1))
def test_serial_distance_wraps(start: int, step: int) -> None:
    assert wire.serial_distance((start + step) & 0xFFFFFFFF, start) == step
