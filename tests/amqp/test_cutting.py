"""Deliveries of several frames written by the sender itself, against those that go through the session's backlog."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amqp.joined import Pair, of
from holdfast.amqp.connection import Delivery
from holdfast.amqp.links.pending import Pending
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.wire.performatives import Flow
from support import today


def linked(frame: int, window: int, **changes: Any) -> tuple[Pair, Sender]:
    pair = Pair({"max_frame_size": frame}, {"max_frame_size": frame, "incoming_window": window, **changes})
    mine, theirs = pair.sender()
    theirs.grant(100)
    pair.pump()
    return pair, mine


def send_plainly(sender: Sender, pieces: Sequence[bytes], settled: bool) -> None:
    """As Sender.send where the window is shut: all of it by way of the backlog."""
    sender.credit -= 1
    number = sender._number("c", settled)
    sender.session.send_later(Pending(sender, number, b"".join(pieces), settled, 0, None))


def state_of(pair: Pair, sender: Sender) -> Any:
    session, theirs = sender.session, pair.server.sessions[0]
    return (
        sender.credit, sender._delivery_count, dict(sender.unsettled), list(session.unsettled_out),
        session.outgoing.next_delivery_id, len(session.backlog), theirs.window_in - session.window_out,
        [(event.delivery_id, event.settled, event.payload) for event in of(Delivery, pair.server_events)],
    )  # fmt: skip


PIECES = st.lists(st.integers(0, 1_500), min_size=1, max_size=4)


@settings(max_examples=today.drawn(50), deadline=None)
@given(
    sizes=st.lists(PIECES, min_size=1, max_size=4),
    frame=st.sampled_from([512, 513, 600, 1_000]),
    window=st.sampled_from([2, 6, 40, 2_048]),
    settled=st.booleans(),
)
def test_what_is_cut_at_once_is_what_the_backlog_sends(
    sizes: list[list[int]], frame: int, window: int, settled: bool
) -> None:
    told = []
    for plainly in (False, True):
        pair, mine = linked(frame, window)
        for number, lengths in enumerate(sizes):
            pieces = [bytes([65 + number]) * length for length in lengths]
            if plainly:
                send_plainly(mine, pieces, settled)
            else:
                mine.send(pieces, context="c", settled=settled)
        for chunk in b"".join(pair.client.output).split(b"\x00\x53\x14")[1:]:
            assert len(chunk) < frame
        pair.pump()
        told.append(state_of(pair, mine))
    assert told[0] == told[1]


@settings(max_examples=today.drawn(34), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=8),
    window=st.sampled_from([2, 6, 40, 2_048]),
    settled=st.booleans(),
)
@example([0, 2_450], 6, False)
def test_a_run_goes_as_far_as_single_deliveries_do_at_once(sizes: list[int], window: int, settled: bool) -> None:
    heads = [b"h" * (number + 1) for number in range(len(sizes))]
    bodies = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    pair, mine = linked(512, window)
    taken = mine.send_run(heads, bodies, ["c"] * len(sizes), settled=settled)
    assert not mine.session.backlog and mine.session.window_out >= 0
    other, single = linked(512, window)
    for head, body in list(zip(heads, bodies, strict=True))[:taken]:
        single.send((head, body), context="c", settled=settled)
    assert not single.session.backlog
    assert mine.session.window_out == single.session.window_out
    if taken < len(sizes):  # the next one uses the window up; the backlog's frames may have a byte more room each
        single.send((heads[taken], bodies[taken]), context="c")
        assert single.session.window_out == 0
        other.session.backlog.clear()
    pair.pump()
    got = [event.payload for event in of(Delivery, pair.server_events)]
    assert got == [head + body for head, body in zip(heads, bodies, strict=True)][:taken]


@pytest.mark.parametrize(("size", "frames"), [(484, 1), (485, 2), (483 + 492, 2), (483 + 493, 3)])
def test_a_frame_and_one_byte_past_it(size: int, frames: int) -> None:
    pair, mine = linked(512, 100)
    before = mine.session.window_out
    mine.send(bytes(size), context="c")
    assert before - mine.session.window_out == frames
    pair.pump()
    assert [len(event.payload) for event in of(Delivery, pair.server_events)] == [size]


def test_a_run_leaves_what_the_peer_does_not_take() -> None:
    pair, mine = linked(512, 100)
    assert mine.remote_attach is not None
    mine.remote_attach.max_message_size = 1_000
    assert mine.send_run([b"", b""], [bytes(400), bytes(1_001)], ["a", "b"], settled=False) == 1
    assert pair.client.output and not mine.session.backlog
    assert not of(Flow, pair.server_events)


def test_the_bytes_that_wait_for_the_window_are_counted_until_they_went_or_their_link_has() -> None:
    """What memory is accounted with (peers/limits/memory.py)."""
    pair, mine = linked(512, 4)
    for _ in range(10):
        mine.send(bytes(100), context=None)
    session = mine.session
    assert session.backlog and session.backlog_bytes == 100 * len(session.backlog)
    pair.pump()
    assert not session.backlog and session.backlog_bytes == 0
    for _ in range(10):
        mine.send(bytes(100), context=None)
    assert session.backlog_bytes
    mine.detach(closed=True)
    assert session.backlog_bytes == sum(len(item.payload) for item in session.backlog)  # type: ignore[union-attr]
