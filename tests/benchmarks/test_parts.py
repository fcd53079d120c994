"""Deliveries of several frames, read by the load; and what its receivers refuse."""

from typing import Any

import _wire as wire
import pytest
from _amqp import AmqpSender
from _connection import SENDER_SPAN, ReceivingWire, Side
from _paced import quantiles
from _parts import Parts
from hypothesis import given
from hypothesis import strategies as st

SIZE = 2 * wire.FRAME_BODY_BYTES_MAX + 500


class Receiver(ReceivingWire):
    """Without a socket."""

    def __init__(self, **fields: Any) -> None:
        self.side = Side(host="", port=0, address="", size=8, credit=1, **fields)
        self.last_of = {}

    def take(self) -> int:
        return 0

    def close(self) -> None:
        pass


def sender() -> AmqpSender:
    made = object.__new__(AmqpSender)
    made.below, made.apart = 0, set()
    return made


def disposition(first: int, last: int) -> wire.Performative:
    return wire.performative(wire.disposition_frame(wire.RECEIVER, first, last)[8:])


@pytest.mark.parametrize("cut", [0, 9, 300, wire.FRAME_BODY_BYTES_MAX + 700, 2 * wire.FRAME_BODY_BYTES_MAX + 400])
def test_deliveries_of_three_frames_are_counted_whole(cut: int) -> None:
    assert wire.frames_for(SIZE) == 3
    data = bytes(wire.transfer_batch(SIZE, 2).patch(0xFFFFFFFF, 41, 2))
    end = data.index(b"\x00\x53\x14", wire.FRAME_BODY_BYTES_MAX)
    assert end > 0
    parts = Parts()
    first = parts.scan(data, len(data) // 2 + cut)
    rest = data[first.end :]
    second = parts.scan(rest, len(rest))
    assert first.frames + second.frames == 6
    assert first.numbers + second.numbers == [41, 42]
    assert second.last_id == 0 and second.end == len(rest)


@pytest.mark.parametrize(
    ("size", "frames"), [(8, 1), (wire.FRAME_BODY_BYTES_MAX, 1), (wire.FRAME_BODY_BYTES_MAX + 1, 2)]
)
def test_a_body_is_cut_past_one_frame(size: int, frames: int) -> None:
    data = bytes(wire.transfer_batch(size, 1).patch(0, 7, 1))
    assert wire.scan(data, len(data)).transfers == wire.frames_for(size) == frames
    assert Parts().scan(data, len(data)).numbers == [7]


def test_every_transfer_end_is_found() -> None:
    batch = wire.transfer_batch(64, 3)
    data = wire.EMPTY_FRAME + bytes(batch.patch(0, 0, 3))
    assert wire.transfer_ends(data + b"\0\0", len(data) + 2) == [8 + batch.step * index for index in (1, 2, 3)]


@given(st.permutations([(0, 0), (1, 3), (2, 2), (2, 5), (6, 9), (4, 9)]))
def test_overlapping_dispositions_count_once(ranges: list[tuple[int, int]]) -> None:
    own = sender()
    for first, last in ranges:
        assert own.on_disposition(disposition(first, last))
    assert own.settled == 10 and not own.apart


def test_dispositions_wrap() -> None:
    own = sender()
    own.below = 0xFFFFFFFE
    own.on_disposition(disposition(0xFFFFFFFE, 1))
    assert own.settled == 0x100000002


def test_what_is_not_accepted_ends_the_run() -> None:
    released = wire.described_list(
        wire.DISPOSITION, (wire.TRUE, wire.uint(0), wire.uint(0), wire.TRUE, b"\x00\x53\x26\x45")
    )
    with pytest.raises(wire.WireError, match="not accepted"):
        sender().on_disposition(wire.performative(released))


def test_order_on_a_queue_of_its_own() -> None:
    own = Receiver(first_number=100)
    own.received = 5
    own.check(104)
    with pytest.raises(wire.WireError, match="lost, doubled or reordered"):
        own.check(105)


def test_a_stride_says_which_numbers_are_due() -> None:
    own = Receiver(first_number=2, stride=3)
    own.received = 4
    own.check(11)
    with pytest.raises(wire.WireError, match="lost, doubled or reordered"):
        own.check(12)


def test_order_on_a_shared_queue() -> None:
    own = Receiver(shared=True)
    for number in (3, SENDER_SPAN + 1, 9, SENDER_SPAN + 2):
        own.check(number)
    with pytest.raises(wire.WireError, match="message 2 of sender 1 came after 2"):
        own.check(SENDER_SPAN + 2)


def test_quantiles_are_times_that_were_measured() -> None:
    found = quantiles([number / 1000 for number in range(1, 1001)])
    assert found == pytest.approx({"p50_ms": 500, "p99_ms": 990, "p999_ms": 999, "max_ms": 1000})
    assert quantiles([0.002]) == pytest.approx(dict.fromkeys(found, 2.0))
