"""The edges of what a peer may ask: the least and the most of frames, channels, handles, windows and sizes (§2.7)."""

from typing import Any

import pytest

from amqp.joined import NOW, Pair, hear, of, performatives, said, server, wire
from holdfast.amqp.connection import (
    Connection,
    CreditChanged,
    Delivery,
    DeliveryAborted,
    Drained,
    LinkAttached,
    LinkDetached,
    Outcomes,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
)
from holdfast.amqp.session.session_endpoint import TRANSACTION_ID
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from holdfast.errors import LocalProtocolError

MOST = 2**32 - 1


def begun(opened: Open, begin: Begin, **settings: Any) -> Connection:
    side = server(**settings)
    hear(side, AMQP_HEADER + wire(opened, begin))
    side.take_output(NOW)
    return side


def receiving(side: Connection, *, credit: int = 10, **terms: Any) -> Any:
    """Our receiver on the peer's handle 0, with credit."""
    attach = Attach("l", 0, False, source=Source(), target=Target("q"), **{"initial_delivery_count": 0} | terms)
    (event,) = hear(side, wire(attach))
    event.link.accept()
    event.link.grant(credit)
    side.take_output(NOW)
    return event.link


def sending(side: Connection, flow: Flow, **terms: Any) -> Any:
    """Our sender on the peer's handle 0."""
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"), target=Target(), **terms)))
    event.link.accept()
    side.take_output(NOW)
    hear(side, wire(flow))
    return event.link


# ------------------------------------------------------------------------------------------- channels, handles


def test_one_session_where_the_peer_has_one_channel() -> None:
    side = begun(Open("c", channel_max=0), Begin(None, 0, 9, 9))
    receiving(side)
    events = hear(side, wire(Begin(None, 0, 9, 9), channel=1))
    assert isinstance(events[-1], ProtocolFailed) and events[-1].error.condition == "amqp:not-allowed"


def test_the_one_channel_is_used_again() -> None:
    side = begun(Open("c", channel_max=0), Begin(None, 0, 9, 9))
    for _ in range(3):
        assert of(SessionEnded, hear(side, wire(End())))
        assert of(SessionBegun, hear(side, wire(Begin(None, 0, 9, 9))))
        assert [type(value) for value in said(side)] == [End, Begin]


def test_a_session_of_ours_where_the_peer_has_one_channel() -> None:
    pair = Pair(server_settings={"channel_max": 0, "sessions_max": 1})
    with pytest.raises(LocalProtocolError, match="channels"):
        pair.client.begin()


def test_the_highest_channel_and_handle_and_one_past_each() -> None:
    side = begun(Open("c"), Begin(None, 0, 9, 9), channel_max=7, handle_max=3)
    assert of(SessionBegun, hear(side, wire(Begin(None, 0, 9, 9), channel=7)))
    assert of(LinkAttached, hear(side, wire(Attach("l", 3, True, source=Source("q")), channel=7)))
    assert hear(side, wire(Attach("m", 4, True, source=Source("q")), channel=7))[-1].error.condition == (
        "amqp:connection:framing-error"
    )
    side = begun(Open("c"), Begin(None, 0, 9, 9), channel_max=7)
    assert hear(side, wire(Begin(None, 0, 9, 9), channel=8))[-1].error.condition == "amqp:connection:framing-error"


def test_one_link_where_the_peer_has_one_handle() -> None:
    pair = Pair(server_settings={"handle_max": 0})
    mine, _ = pair.sender("a")
    with pytest.raises(LocalProtocolError, match="links"):
        pair.session.attach_sender("b", Source(), Target("q"))
    mine.detach()
    pair.pump()
    pair.sender("b")


# ------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("least", ["client", "server", "both"])
@pytest.mark.parametrize("size", [0, 400, 504, 505, 511, 512, 513, 5_000])
def test_everything_goes_through_frames_of_512_bytes(least: str, size: int) -> None:
    settings = {"max_frame_size": 512}
    pair = Pair(settings if least != "server" else None, settings if least != "client" else None)
    mine, theirs = pair.sender()
    back, away = pair.receiver()
    theirs.grant(2)
    back.grant(2)
    pair.pump()
    for link in (mine, away):
        link.send(bytes(size), context="c")
    longest = []
    told: list[Any] = []
    for engine, other in ((pair.client, pair.server), (pair.server, pair.client)):
        data = b"".join(engine.take_output(NOW))
        at = 0
        while at < len(data):
            longest.append(int.from_bytes(data[at : at + 4], "big"))
            at += longest[-1]
        told += hear(other, data)
        (delivery,) = of(Delivery, told[-2:])
        assert delivery.payload == bytes(size)
        delivery.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    assert max(longest) <= 512
    assert len(of(Outcomes, told + [event for events in pair.pump() for event in events])) == 2


def test_a_peer_that_takes_any_frame_is_sent_none_larger_than_ours() -> None:
    """Its 2^32 - 1 says what it takes, ours what is usual (CLIENTS 6)."""
    side = begun(Open("c", max_frame_size=MOST), Begin(None, 0, 99, 99))
    link = sending(side, Flow(0, 99, 0, 99, 0, 0, 5))
    link.send(bytes(200_000), context=1)
    frames = b"".join(side.take_output(NOW))
    assert int.from_bytes(frames[:4], "big") == side.settings.max_frame_size == 65_536
    assert sum(len(payload) for _, _, payload in performatives(frames)) == 200_000


# ------------------------------------------------------------------------------------------------- windows


def test_no_window_at_all_then_one_frame_at_a_time() -> None:
    """The begin's window is 0: nothing goes out, whatever the credit; then each flow lets one frame through."""
    side = begun(Open("c"), Begin(None, 0, 0, 9))
    link = sending(side, Flow(0, 0, 0, 9, 0, 0, 5))
    assert link.credit == 5 and not link.sendable
    for number in range(3):
        link.send(b"%d" % number, context=number)
    assert said(side) == []
    for number in range(3):
        hear(side, wire(Flow(number, 1, 0, 9)))
        (transfer,) = said(side)
        assert transfer.delivery_id == number
        hear(side, wire(Flow(number, 1, 0, 9)))  # the same again: that one frame is on its way
        assert said(side) == []


def test_a_window_that_is_taken_back() -> None:
    side = begun(Open("c"), Begin(None, 0, 5, 9))
    link = sending(side, Flow(0, 5, 0, 9, 0, 0, 5))
    link.send(b"0", context=0)
    hear(side, wire(Flow(0, 1, 0, 9)))  # it had seen none of ours: the one that is out uses it up
    assert not link.sendable
    hear(side, wire(Flow(1, MOST, 0, 9)))
    assert link.sendable


def test_a_flow_that_ends_its_link_opens_the_window_for_the_others() -> None:
    """They waited for it with credit: nothing else tells them."""
    side = begun(Open("c"), Begin(None, 0, 0, 9))
    link = sending(side, Flow(0, 0, 0, 9, 0, 0, 5))
    (event,) = hear(side, wire(Attach("m", 1, True, source=Source("q"), target=Target())))
    event.link.accept()
    side.take_output(NOW)
    told = hear(side, wire(Flow(0, 1, 0, 9, 1, 0, 5, properties={TRANSACTION_ID: b"t"})))
    assert event.link.detached
    assert [each.link for each in of(CreditChanged, told)] == [link]


@pytest.mark.parametrize("start", [0, MOST - 2])
def test_one_transfer_past_our_window_ends_the_session(start: int) -> None:
    side = begun(Open("c"), Begin(None, start, 9, 9), incoming_window=4)
    receiving(side, credit=100, initial_delivery_count=start)
    # Topped up at half: a window's worth before the top-up is read would be legal, so it is taken away by hand.
    session = side.sessions[0]
    session.window_in, session._window_low = 2, -1
    events = hear(side, wire(*(Transfer(0, (start + number) & MOST, b"t") for number in range(3))))
    assert len(of(Delivery, events)) == 2
    assert events[-1].error.condition == "amqp:session:window-violation" and not side.closed


@pytest.mark.parametrize("start", [MOST - 3, MOST - 1, MOST])
def test_ids_counts_and_dispositions_over_the_wrap(start: int) -> None:
    """A range that begins before the wrap and ends behind it, in both directions; a drain whose count wraps."""
    side = begun(Open("c"), Begin(None, start, 2**31, 2**31), first_transfer_id=start)
    link = receiving(side, initial_delivery_count=start)
    events = hear(side, wire(*((Transfer(0, (start + number) & MOST, b"t"), b"x") for number in range(6))))
    ids = [delivery.delivery_id for delivery in of(Delivery, events)]
    assert ids == [(start + number) & MOST for number in range(6)]
    link.settle(ids[0], ids[-1], Accepted())
    assert said(side) == [Disposition(True, ids[0], ids[-1], True, Accepted())]
    link.grant(4)
    assert said(side)[0].delivery_count == (start + 6) & MOST
    link.grant(4, drain=True)
    side.take_output(NOW)
    back = Flow(start, 9, (start + 6) & MOST, 9, 0, (start + 10) & MOST, 0, drain=True)
    assert hear(side, wire(back)) == [Drained(link)] and link.credit == 0
    hear(side, wire(Detach(0, True)))
    out = sending(side, Flow(start, 2**31, 0, 9, 0, 0, 6))
    side.take_output(NOW)
    for number in range(6):
        out.send(b"x", context=number)
    sent = [value.delivery_id for value in said(side)]
    assert sent == ids
    (outcomes,) = hear(side, wire(Disposition(True, sent[0], sent[-1], False, Accepted())))
    assert outcomes.contexts == list(range(6)) and (outcomes.first, outcomes.last) == (sent[0], sent[-1])
    out.settle(outcomes.first, outcomes.last, Accepted())
    assert said(side) == [Disposition(False, sent[0], sent[-1], True, Accepted())]
    assert side.sessions[0].unsettled_out == {}


def test_credit_beyond_the_wrap_of_the_count() -> None:
    """The peer counts from just before the wrap; our limit lies behind it."""
    side = begun(Open("c"), Begin(None, 0, 2**31, 2**31))
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"), target=Target())))
    event.link.accept(initial_delivery_count=MOST)
    hear(side, wire(Flow(0, 99, 0, 99, 0, MOST, 3)))
    assert event.link.credit == 3
    for number in range(3):
        event.link.send(b"x", context=number)
    hear(side, wire(Flow(3, 99, 0, 99, 0, 1, 5)))  # it has seen two of them: 4294967295 and 0
    assert event.link.credit == 4
    side.take_output(NOW)
    hear(side, wire(Flow(3, 99, 0, 99, 0, 2, 5, drain=True)))
    event.link.drained()
    (flow,) = said(side)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (7, 0, True)


# ------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("named", [0, None])
def test_no_limit_on_messages_is_named_by_null_or_zero(named: int | None) -> None:
    side = begun(Open("c"), Begin(None, 0, 99, 99))
    link = sending(side, Flow(0, 99, 0, 99, 0, 0, 5), max_message_size=named)
    assert link.message_bytes_max is None
    link.send(bytes(1_000_000), context=1)


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
def test_the_peers_limit_on_messages(size: int, fits: bool) -> None:
    side = begun(Open("c", max_frame_size=512), Begin(None, 0, 99, 99))
    link = sending(side, Flow(0, 99, 0, 99, 0, 0, 5), max_message_size=1000)
    if fits:
        link.send(bytes(size), context=1)
        assert sum(len(payload) for _, _, payload in performatives(b"".join(side.take_output(NOW)))) == size
    else:
        with pytest.raises(LocalProtocolError, match="1000"):
            link.send(bytes(size), context=1)


# --------------------------------------------------------------------------------------------- frames of a delivery


@pytest.mark.parametrize("state", [None, Accepted()])
def test_batchable_changes_nothing(state: Any) -> None:
    """A hint (§2.7.5, §2.7.6), in short encodings and long."""
    side = begun(Open("c"), Begin(None, 0, 99, 99))
    link = receiving(side)
    (delivery,) = hear(side, wire((Transfer(0, 0, b"t", batchable=True), b"x")))
    assert (delivery.delivery_id, delivery.payload) == (0, b"x")
    link.settle(0, 0, Accepted())
    hear(side, wire(Detach(0, True)))
    out = sending(side, Flow(0, 99, 0, 99, 0, 0, 5))
    out.send(b"x", context="c")
    (outcome,) = hear(side, wire(Disposition(True, 0, 0, True, state, batchable=True)))
    assert outcome.contexts == ["c"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_aborted_delivery_uses_its_credit_and_its_id(at: int) -> None:
    """In its first frame, its second, or a last one without payload, tag or id (§2.6.14)."""
    side = begun(Open("c"), Begin(None, 0, 99, 99))
    link = receiving(side, credit=2)
    frames: list[Any] = [(Transfer(0, 0, b"t", more=True), b"part") for _ in range(at)]
    frames.append(Transfer(0, 0 if at == 0 else None, b"t" if at == 0 else None, aborted=True, more=at == 2))
    assert hear(side, wire(*frames)) == [DeliveryAborted(link, 0)]
    assert link.credit == 1 and side.sessions[0].unsettled_in == {}
    (delivery,) = hear(side, wire((Transfer(0, 1, b"t"), b"whole")))
    assert delivery.payload == b"whole" and link.credit == 0
    link.grant(1)
    assert said(side)[-1].delivery_count == 2


def test_frames_without_payload_between_and_at_the_end() -> None:
    side = begun(Open("c"), Begin(None, 0, 99, 99))
    receiving(side)
    frames: list[Any] = [
        Transfer(0, 0, b"t", more=True), (Transfer(0, more=True), b"a"), Transfer(0, more=True),
        (Transfer(0, more=True), b"b"), Transfer(0),
    ]  # fmt: skip
    (delivery,) = hear(side, wire(*frames))
    assert delivery.payload == b"ab"
    (empty,) = hear(side, wire(Transfer(0, 1, b"t")))
    assert empty.payload == b""


def test_deliveries_of_many_links_frame_by_frame() -> None:
    """§2.6.14: a link's own deliveries never mix, those of others do."""
    side = begun(Open("c"), Begin(None, 0, 999, 999))
    links = {}
    for handle in range(5):
        (event,) = hear(side, wire(Attach(f"l{handle}", handle, False, target=Target("q"), initial_delivery_count=0)))
        event.link.accept()
        event.link.grant(9)
        links[handle] = event.link
    frames: list[Any] = []
    for part in range(4):
        for handle in range(5):
            first = Transfer(handle, handle, b"t", more=True) if part == 0 else Transfer(handle, more=part < 3)
            frames.append((first, b"%d%d" % (handle, part)))
    found = of(Delivery, hear(side, wire(*frames)))
    assert [(item.link, item.delivery_id) for item in found] == [(links[handle], handle) for handle in range(5)]
    assert [item.payload for item in found] == [b"".join(b"%d%d" % (h, part) for part in range(4)) for h in range(5)]
    hear(side, wire(*((Transfer(handle, 5 + handle, b"t", more=True), b"x") for handle in range(2)), Detach(0, True)))
    (other,) = of(Delivery, hear(side, wire(Transfer(1))))
    assert other.delivery_id == 6 and not of(LinkDetached, [other])


@pytest.mark.parametrize("credit", [0, 1, 2**31, MOST])
@pytest.mark.parametrize("ahead", [1, 2**31 - 1, 2**31])
def test_a_delivery_count_ahead_of_ours_ends_the_link(ahead: int, credit: int) -> None:
    """Nobody has counted what was not sent (§2.6.7); of a next-incoming-id the same holds."""
    side = begun(Open("c"), Begin(None, 0, 5_000, 5_000))
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"), target=Target())))
    event.link.accept(initial_delivery_count=MOST)
    (detached,) = hear(side, wire(Flow(0, 5_000, 0, 5_000, 0, (MOST + ahead) & MOST, credit)))
    assert isinstance(detached, LinkDetached) and detached.error is not None
    assert detached.error.condition == "amqp:invalid-field" and event.link.credit == 0


def test_what_is_counted_before_our_answer_counts_for_nothing() -> None:
    """Whoever pipelines a flow cannot know what we count from."""
    side = begun(Open("c"), Begin(None, 0, 5_000, 5_000))
    attach = Attach("l", 0, True, source=Source("q"), target=Target())
    events = hear(side, wire(attach, Flow(0, 5_000, 0, 5_000, 0, 7, 5)))
    events[0].link.accept(initial_delivery_count=99)
    assert events[0].link.credit == 5
