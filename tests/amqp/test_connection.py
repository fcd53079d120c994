"""Headers, opening, time-outs, closing, and how far a fault reaches (§2.2, §2.4)."""

from typing import Any

import pytest

from amqp.joined import NOW, Pair, client, hear, of, performatives, pump, said, server, tick, wire
from holdfast.amqp.connection import (
    TRANSITIONS,
    Connection,
    ConnectionClosed,
    LinkAttached,
    LinkDetached,
    Opened,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
    Settings,
    State,
    Step,
)
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Close, End, Error, Open, Source, Target
from holdfast.errors import ConfigError, LocalProtocolError

OPEN = Open("peer")
BEGIN = Begin(None, 0, 100, 100)


def opened(**changes: Any) -> Connection:
    """A server whose peer has opened and begun channel 0; its answers are taken."""
    side = server(**changes)
    hear(side, AMQP_HEADER + wire(OPEN, BEGIN), NOW)
    side.take_output(NOW)
    return side


def test_a_client_opens_in_one_flight() -> None:
    side = client(mechanism="ANONYMOUS")
    flight = b"".join(side.take_output(NOW))
    assert flight.startswith(SASL_HEADER) and AMQP_HEADER in flight
    assert isinstance(performatives(flight)[-1][1], Open)


@pytest.mark.parametrize("mechanism", [None, "ANONYMOUS"])
def test_both_sides_open(mechanism: str | None) -> None:
    here, there = client(mechanism=mechanism), server()
    session = here.begin()
    mine, theirs = pump(here, there)
    assert [type(event) for event in mine] == [Opened, SessionBegun]
    assert [type(event) for event in theirs] == [Opened, SessionBegun]
    assert here.remote_open is not None and here.remote_open.container_id == "s"
    assert there.remote_open is not None and there.remote_open.container_id == "c"
    assert session.remote_channel == 0 and here.state is there.state is State.OPENED


def test_bytes_behind_the_headers_count() -> None:
    """CLIENTS 2: header, open, begin and attach in one segment."""
    side = server()
    attach = Attach("l", 0, True, source=Source("q"), target=Target("x"))
    events = hear(side, AMQP_HEADER + wire(OPEN, BEGIN, attach), NOW)
    assert [type(event) for event in events] == [Opened, SessionBegun, LinkAttached]


def test_an_open_may_hold_one_field() -> None:
    side = server()
    events = hear(side, AMQP_HEADER + bytes.fromhex("0000001002000000005310c00401a10161".replace("10", "11", 1)), NOW)
    assert of(Opened, events)[0].open.container_id == "a"


@pytest.mark.parametrize("announced", [512, 32768, 65536, 1048576, 4294967295])
def test_frames_are_cut_by_the_smaller_side(announced: int) -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("peer", max_frame_size=announced)), NOW)
    assert side.frame_size_out == min(announced, 65536)


@pytest.mark.parametrize(("change", "condition"), [
    ({"max_frame_size": 511}, "amqp:invalid-field"),
    ({"idle_time_out": 9}, "amqp:invalid-field"),
])  # fmt: skip
def test_an_open_that_cannot_be_met(change: dict[str, Any], condition: str) -> None:
    side = server()
    events = hear(side, AMQP_HEADER + wire(Open("peer", **change)), NOW)
    assert of(ProtocolFailed, events)[0].error.condition == condition
    assert [type(value) for value in said(side)] == [Open, Close]


@pytest.mark.parametrize("announced_ms", [10, 500, 30000])
def test_an_empty_frame_goes_out_at_half_the_peers_time_out(announced_ms: int) -> None:
    """CLIENTS 7: below one second too."""
    side = server()
    hear(side, AMQP_HEADER + wire(Open("peer", idle_time_out=announced_ms)), NOW)
    side.take_output(NOW)
    due = side.next_deadline()
    assert due is not None and due == pytest.approx(NOW + announced_ms / 2000)
    tick(side, due - 0.001)
    assert side.take_output(due - 0.001) == []
    tick(side, due)
    assert side.take_output(due) == [EMPTY_FRAME]
    assert side.next_deadline() == pytest.approx(due + announced_ms / 2000)


def test_what_is_sent_counts_as_life() -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("peer", idle_time_out=1000)), NOW)
    side.take_output(NOW)
    hear(side, wire(BEGIN), NOW + 0.4)
    side.take_output(NOW + 0.4)
    assert side.next_deadline() == pytest.approx(NOW + 0.9)


def test_no_frames_are_demanded_without_a_time_out_of_ours() -> None:
    """CLIENTS 8."""
    assert opened().next_deadline() is None


def test_a_silent_peer_is_given_up_and_any_byte_is_life() -> None:
    side = opened(idle_time_out_s=2.0)
    hear(side, EMPTY_FRAME[:3], NOW + 1.5)
    assert tick(side, NOW + 3.4) == []
    events = tick(side, NOW + 3.5)
    assert [type(event) for event in events] == [SessionEnded, ProtocolFailed]
    assert events[-1].error.condition == "amqp:resource-limit-exceeded"
    assert said(side, Close)[0].error.condition == "amqp:resource-limit-exceeded" and side.closed


def test_half_of_our_time_out_is_announced() -> None:
    side = client(idle_time_out_s=3.0)
    assert said(side, Open)[0].idle_time_out == 1500


def test_an_empty_frame_on_any_channel_means_nothing() -> None:
    side = opened()
    assert hear(side, b"\0\0\0\x08\x02\0\x77\x77", NOW) == [] and not side.closed


def test_a_peer_that_never_opens_is_given_up() -> None:
    side = server(handshake_time_out_s=5.0)
    hear(side, AMQP_HEADER, NOW)
    side.take_output(NOW)
    assert side.next_deadline() == NOW + 5.0
    assert of(ProtocolFailed, tick(side, NOW + 5.0))
    assert [type(value) for value in said(side)] == [Open, Close] and side.closed


def test_a_peer_that_never_answers_a_close_is_given_up() -> None:
    pair = Pair()
    pair.client.close()
    pair.client.take_output(NOW)
    due = pair.client.next_deadline()
    assert due is not None
    assert [type(event) for event in tick(pair.client, due)] == [SessionEnded, ConnectionClosed]
    assert pair.client.closed


@pytest.mark.parametrize("header", [b"GET / HT", b"AMQP\0\0\x09\x01", b"AMQP\x02\x01\0\0", b"AMQP\0\x02\0\0"])
def test_another_protocol_is_told_ours(header: bytes) -> None:
    side = server()
    events = hear(side, header, NOW)
    assert of(ProtocolFailed, events) and side.closed
    assert b"".join(side.take_output(NOW)) in (AMQP_HEADER, SASL_HEADER)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"HTTP/1.1", "this is an HTTP server"),
        (b"SSH-2.0-", "this is an SSH server"),
        (b"AMQP\0\0\x09\x01", "this is a broker that speaks only AMQP 0-9-1; connect to one that speaks AMQP 1.0"),
        (b"whatever", r"invalid protocol header b'whatever'; expected b'AMQP\x00\x01\x00\x00'"),
    ],
)
def test_a_server_of_another_protocol(header: bytes, told: str) -> None:
    side = client()
    (failed,) = of(ProtocolFailed, hear(side, header, NOW))
    assert side.closed and failed.error.description == told


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x07\x02\0\0\0", b"\0\0\0\x08\x01\0\0\0", b"\0\0\0\x08\x03\0\0\0", b"\0\0\0\x08\x02\x01\0\0",
        b"\0\x01\0\x01\x02\0\0\0", b"\xff\xff\xff\xff\x02\0\0\0",
    ],
)  # fmt: skip
def test_a_broken_frame_closes_the_connection(frame: bytes) -> None:
    side = opened()
    events = hear(side, frame, NOW)
    assert events[-1].error.condition == "amqp:connection:framing-error"
    assert said(side, Close)[0].error.condition == "amqp:connection:framing-error" and side.closed


def test_the_bound_on_frames() -> None:
    side = opened(max_frame_size=600)
    fits = 600 - 8
    assert hear(side, b"\0\0\x02\x58\x02\0\0\0" + b"\x40" * (fits - 1), NOW) == []
    assert hear(side, b"\x40", NOW)[-1].error.condition == "amqp:decode-error"
    other = opened(max_frame_size=600)
    assert hear(other, b"\0\0\x02\x59\x02\0\0\0", NOW)[-1].error.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    ("value", "channel", "condition"),
    [
        (OPEN, 0, "amqp:illegal-state"),
        (BEGIN, 0, "amqp:not-allowed"),
        (Begin(7, 0, 1, 1), 1, "amqp:not-allowed"),
        (BEGIN, 256, "amqp:connection:framing-error"),
        (End(), 1, "amqp:not-allowed"),
        (Attach("l", 0, True), 1, "amqp:not-allowed"),
        (Attach("l", 1024, True), 0, "amqp:connection:framing-error"),
        (Error("amqp:internal-error"), 0, "amqp:decode-error"),
    ],
)
def test_what_closes_the_connection(value: Any, channel: int, condition: str) -> None:
    side = opened()
    events = hear(side, wire(value, channel=channel), NOW)
    assert [type(event) for event in events[-2:]] == [SessionEnded, ProtocolFailed]
    assert events[-1].error.condition == condition
    assert said(side, Close)[0].error.condition == condition


def test_a_frame_before_open_is_a_fault() -> None:
    side = server()
    assert hear(side, AMQP_HEADER + wire(BEGIN), NOW)[-1].error.condition == "amqp:illegal-state"


def test_the_bound_on_sessions() -> None:
    side = opened(sessions_max=2)
    assert of(SessionBegun, hear(side, wire(BEGIN, channel=1), NOW))
    assert hear(side, wire(BEGIN, channel=2), NOW)[-1].error.condition == "amqp:resource-limit-exceeded"


def test_channels_are_each_sides_own() -> None:
    """CLIENTS 9: answers go to our channel and name theirs."""
    side = opened()
    hear(side, wire(BEGIN, channel=200), NOW)
    (answer,) = performatives(b"".join(side.take_output(NOW)))
    assert answer[0] == 1 and answer[1].remote_channel == 200
    hear(side, wire(End(), channel=200), NOW)
    (answer,) = performatives(b"".join(side.take_output(NOW)))
    assert answer[0] == 1 and answer[1] == End()


def test_our_channels_end_where_the_peers_do() -> None:
    here = client()
    hear(here, AMQP_HEADER + wire(Open("s", channel_max=0)), NOW)
    here.begin()
    with pytest.raises(LocalProtocolError, match="channels"):
        here.begin()


def test_closing_with_everything_open() -> None:
    """CLIENTS 37."""
    pair = Pair()
    pair.sender()
    pair.receiver()
    pair.client.close()
    mine, theirs = pair.pump()
    assert [type(event) for event in theirs] == [LinkDetached, LinkDetached, SessionEnded, ConnectionClosed]
    assert [type(event) for event in mine] == [LinkDetached, LinkDetached, SessionEnded, ConnectionClosed]
    assert pair.client.closed and pair.server.closed
    assert pair.client.state is pair.server.state is State.END


def test_both_close_at_once() -> None:
    pair = Pair()
    pair.client.close()
    pair.server.close(Error("amqp:connection:forced", "going home"))
    mine, theirs = pair.pump()
    assert mine[-1].error.condition == "amqp:connection:forced" and theirs[-1].error is None
    assert pair.client.closed and pair.server.closed


def test_closing_before_the_peer_has_opened() -> None:
    here, there = client(), server()
    here.begin()
    here.close()
    mine, theirs = pump(here, there)
    assert [type(event) for event in theirs] == [Opened, SessionBegun, SessionEnded, ConnectionClosed]
    assert [type(event) for event in mine] == [Opened, SessionEnded, ConnectionClosed]


def test_the_transport_is_lost() -> None:
    pair = Pair()
    pair.sender()
    events = pair.client.transport_lost()
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, ConnectionClosed]
    assert pair.client.closed and pair.client.transport_lost() == [] and hear(pair.client, b"x", NOW) == []


def test_an_error_longer_than_the_peers_frames_loses_words() -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("peer", max_frame_size=512)), NOW)
    side.take_output(NOW)
    side.close(Error("amqp:internal-error", "x" * 5000, {"a": "b" * 5000}))
    data = b"".join(side.take_output(NOW))
    assert len(data) <= 512
    assert performatives(data)[0][1].error.description.startswith("xxx")


def test_the_bound_of_settings() -> None:
    Settings(container_id="x", max_frame_size=512).validate()
    for change in ({"max_frame_size": 511}, {"mechanism": "GSSAPI"}, {"mechanism": "PLAIN"}, {"idle_time_out_s": 0.0}):
        with pytest.raises(ConfigError):
            Settings(container_id="x", **change).validate()


def test_every_state_is_reached_and_left() -> None:
    assert {state for _, state in TRANSITIONS.items()} | {State.START} == set(State)
    left = {state for state, step in TRANSITIONS if step not in (Step.FAIL, Step.R_FRAME)}
    assert left == set(State) - {State.END}
