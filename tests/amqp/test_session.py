"""Deliveries in frames, windows, outcomes (§2.5.6, §2.6.12 to §2.6.14)."""

from typing import Any

import pytest

from amqp.joined import NOW, Pair, hear, of, performatives, said, server, wire
from holdfast.amqp.connection import (
    Connection,
    CreditChanged,
    Delivery,
    DeliveryAborted,
    LinkAttached,
    LinkDetached,
    Outcomes,
    Receiver,
    ReceiverSettled,
    Sender,
    SessionEnded,
)
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
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
from holdfast.errors import LocalProtocolError

LAST = 2**32 - 1


def receiving(credit: int = 100, **changes: Any) -> tuple[Connection, Receiver]:
    """A server with one accepted link of the peer's, credit granted, output taken."""
    side = server(**changes)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 1000, 1000)), NOW)
    attach = Attach("l", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0)
    (event,) = of(LinkAttached, hear(side, wire(attach), NOW))
    event.link.accept()
    event.link.grant(credit)
    side.take_output(NOW)
    return side, event.link


def sending(
    *, window: int = 1000, credit: int = 100, frame_size: int = 65536, source: Source | None = None, **changes: Any
) -> tuple[Connection, Sender]:
    """A server with one accepted link to the peer, with the peer's credit, output taken."""
    side = server(**changes)
    hear(side, AMQP_HEADER + wire(Open("c", max_frame_size=frame_size), Begin(None, 0, window, 1000)), NOW)
    (event,) = hear(side, wire(Attach("l", 0, True, source=source or Source("q"), target=Target())), NOW)
    event.link.accept()
    hear(side, wire(flow(side, window, credit)), NOW)
    side.take_output(NOW)
    return side, event.link


def flow(side: Connection, window: int, credit: int | None = None, *, count: int = 0) -> Flow:
    """The peer has taken all that was sent, and opens its window (and credit)."""
    handle = None if credit is None else 0
    return Flow(
        side.sessions[0].outgoing.next_outgoing_id, window, 0, 1000, handle, None if credit is None else count, credit
    )


def sent(side: Connection) -> list[tuple[Any, bytes]]:
    return [(value, payload) for _, value, payload in performatives(b"".join(side.take_output(NOW)))]


# ------------------------------------------------------------------------------------------------ receiving


def test_a_delivery_in_one_frame() -> None:
    side, link = receiving()
    (event,) = hear(side, wire((Transfer(0, 7, b"tag", 5, True), b"payload")), NOW)
    assert event == Delivery(link, 7, b"tag", 5, True, b"payload", None, None)
    assert type(event) is Delivery


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_delivery_in_many_frames(step: int) -> None:
    """CLIENTS 27: later frames may hold handle and more alone; the last may have no payload."""
    side, link = receiving()
    payload = bytes(range(200))
    frames: list[Any] = [(Transfer(0, 7, b"tag", 0, more=True), b"")]
    frames += [(Transfer(0, more=True), payload[at : at + step]) for at in range(0, 200, step)]
    frames += [Transfer(0)]
    assert hear(side, wire(*frames), NOW) == [Delivery(link, 7, b"tag", 0, False, payload, None, None)]
    assert link.credit == 99


def test_deliveries_of_two_links_interleave() -> None:
    side, _ = receiving()
    attach = Attach("m", 1, False, target=Target("q"), initial_delivery_count=0)
    (event,) = hear(side, wire(attach), NOW)
    event.link.accept()
    event.link.grant(5)
    events = hear(side,
        wire(
            (Transfer(0, 0, b"0", more=True), b"a"), (Transfer(1, 1, b"0", more=True), b"x"), (Transfer(0), b"b"),
            (Transfer(1, 1, settled=True), b"y"),
        ),
        NOW,
    )  # fmt: skip
    assert [(event.delivery_id, event.payload, event.settled) for event in events] == [
        (0, b"ab", False),
        (1, b"xy", True),
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [(Transfer(0, 0, b"0", more=True), b"a"), Transfer(0, aborted=True)],
        [(Transfer(0, 0, b"0", more=True), b"a"), (Transfer(0, 0, b"0", more=True, aborted=True), b"b")],
        [Transfer(0, 0, b"0", aborted=True)],
    ],
)
def test_an_aborted_delivery_never_happened(frames: list[Any]) -> None:
    """CLIENTS 28."""
    side, link = receiving(credit=2)
    assert hear(side, wire(*frames), NOW) == [DeliveryAborted(link, 0)] and said(side) == []
    (event,) = hear(side, wire((Transfer(0, 1, b"0"), b"c")), NOW)
    assert (event.delivery_id, event.payload) == (1, b"c") and link.attached


@pytest.mark.parametrize(
    "frames",
    [
        [Transfer(0)],
        [Transfer(0, 1)],
        [Transfer(0, None, b"1")],
        [Transfer(0, 1, b"x" * 33)],
        [Transfer(0, 1, b"1", more=True), Transfer(0, 2, b"2")],
    ],
)
def test_a_delivery_that_is_not_well_formed_detaches_its_link(frames: list[Any]) -> None:
    side, _ = receiving()
    (event,) = hear(side, wire(*frames), NOW)
    assert isinstance(event, LinkDetached) and said(side) == [Detach(0, True, event.error)]
    assert hear(side, wire((Transfer(0, 9, b"9"), b"late"), Detach(0, True)), NOW) == []


def test_a_delivery_id_in_use_ends_the_session() -> None:
    side, _ = receiving()
    events = hear(side, wire(Transfer(0, 1, b"1"), Transfer(0, 1, b"2")), NOW)
    assert [type(event) for event in events] == [Delivery, LinkDetached, SessionEnded]


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
@pytest.mark.parametrize("step", [1001, 10])
def test_the_bound_on_messages(size: int, fits: bool, step: int) -> None:
    side, _ = receiving(max_message_size=1000)
    payload = bytes(size)
    parts = [payload[at : at + step] for at in range(0, size, step)]
    frames: list[Any] = [(Transfer(0, 0, b"0", more=len(parts) > 1), parts[0])]
    frames += [(Transfer(0, more=True), part) for part in parts[1:]]
    if len(parts) > 1:
        frames.append(Transfer(0))
    events = hear(side, wire(*frames), NOW)
    if fits:
        assert [event.payload for event in events] == [payload]
    else:
        assert events[0].error.condition == "amqp:link:message-size-exceeded" and not side.closed


def test_the_bound_on_unsettled_deliveries() -> None:
    side, link = receiving(unsettled_max=2)
    events = hear(side, wire(Transfer(0, 0, b"0"), Transfer(0, 1, b"1")), NOW)
    link.settle(0, 0, Accepted())
    events += hear(side, wire(Transfer(0, 2, b"2"), Transfer(0, 3, b"3", settled=True)), NOW)
    assert len(of(Delivery, events)) == 4
    events = hear(side, wire(Transfer(0, 4, b"4")), NOW)
    assert events[-1].error.condition == "amqp:resource-limit-exceeded"


def test_our_window_is_topped_up_at_half_and_holds() -> None:
    side, _ = receiving(incoming_window=10)
    events = hear(side, wire(*[Transfer(0, n, b"%d" % n) for n in range(5)]), NOW)
    (topped,) = said(side)
    assert (topped.incoming_window, topped.next_incoming_id, topped.handle) == (10, 5, None)
    assert len(events) == 5


def test_settling_in_ranges_leaves_other_links_alone() -> None:
    side, first = receiving()
    (event,) = hear(side, wire(Attach("m", 1, False, target=Target("q"), initial_delivery_count=0)), NOW)
    second = event.link
    second.accept()
    second.grant(10)
    side.take_output(NOW)
    hear(side, wire(*[Transfer(n in (3, 4), n, b"%d" % n) for n in range(8)]), NOW)
    first.settle(1, 1, Released())
    first.settle(0, 7, Accepted())
    first.settle(0, 7, Accepted())
    second.settle(0, 7, Rejected(Error("a:b")))
    assert said(side) == [
        Disposition(True, 1, 1, True, Released()),
        Disposition(True, 0, 2, True, Accepted()),
        Disposition(True, 5, 7, True, Accepted()),
        Disposition(True, 3, 4, True, Rejected(Error("a:b"))),
    ]


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified(True, False, {"a": 1}), None])
def test_every_outcome_arrives(outcome: Any) -> None:
    pair = Pair()
    mine, theirs = pair.sender()
    theirs.grant(10)
    pair.pump()
    mine.send([b"a", b"b"], context="one")
    mine.send([], context="two")
    first, second = of(Delivery, pair.pump()[1])
    assert (first.payload, second.payload) == (b"ab", b"")
    theirs.settle(first.delivery_id, second.delivery_id, outcome)
    (event,) = pair.pump()[0]
    expected = Released() if outcome is None else outcome
    assert event == Outcomes(mine, ["one", "two"], expected, True, 0, 1) and mine.unsettled == {}


def test_the_peer_settles_its_own() -> None:
    side, link = receiving()
    hear(side, wire(*[Transfer(0, n, b"%d" % n) for n in range(4)]), NOW)
    assert hear(side, wire(Disposition(False, 1, 2, True)), NOW) == [ReceiverSettled(link, 1, 2)]
    link.settle(0, 3, Accepted())
    assert said(side) == [Disposition(True, 0, 3, True, Accepted())]
    assert hear(side, wire(Disposition(False, 0, 3, True), Disposition(False, 0, 3, False)), NOW) == []


# -------------------------------------------------------------------------------------------------- sending


@pytest.mark.parametrize("frame_size", [512, 513, 4096, 65536])
@pytest.mark.parametrize("size", [0, 1, 470, 480, 490, 5000, 70000])
def test_deliveries_are_cut_by_the_peers_frame_size(frame_size: int, size: int) -> None:
    side, link = sending(frame_size=frame_size)
    payload = bytes(n & 0xFF for n in range(size))
    link.send(payload, context=None, message_format=3 if size == 470 else 0)
    data = b"".join(side.take_output(NOW))
    at = 0
    while at < len(data):
        assert int.from_bytes(data[at : at + 4], "big") <= frame_size
        at += int.from_bytes(data[at : at + 4], "big")
    frames = performatives(data)
    assert b"".join(part for _, _, part in frames) == payload
    assert [transfer.more for _, transfer, _ in frames] == [True] * (len(frames) - 1) + [False]
    assert frames[0][1].delivery_id == 0 and frames[0][1].delivery_tag == bytes(4)


def test_the_peers_window_stops_frames_and_a_flow_lets_them_go() -> None:
    """CLIENTS 11: frames, not messages; a flow with null handle moves it."""
    side, link = sending(window=3, frame_size=512)
    link.send(b"x" * 1200, context=1)
    assert len(sent(side)) == 3 and not link.sendable and link.credit == 99
    link.send(b"later", context=2)
    assert sent(side) == []
    assert hear(side, wire(flow(side, 0)), NOW) == [] and sent(side) == []
    events = hear(side, wire(flow(side, 2)), NOW)
    assert [(value.more, part) for value, part in sent(side)] == [(False, b"later")]
    assert events == [CreditChanged(link)] and link.sendable


def test_a_window_that_shuts_within_a_delivery() -> None:
    side, link = sending(window=2, frame_size=512)
    link.send(b"x" * 1300, context=1)
    assert [value.more for value, _ in sent(side)] == [True, True]
    assert hear(side, wire(flow(side, 5)), NOW) == [CreditChanged(link)]
    ((value, _),) = sent(side)
    assert value == Transfer(0)


def test_a_flow_without_next_incoming_id_counts_from_the_start() -> None:
    """CLIENTS 10."""
    side, link = sending(window=10)
    link.send(b"", context=1)
    hear(side, wire(Flow(None, 10, 0, 10)), NOW)
    assert side.sessions[0].window_out == 9


def test_a_drain_is_answered_after_what_waits() -> None:
    side, link = sending(window=1, credit=5)
    link.send(b"1", context=1)
    link.send(b"2", context=2)
    hear(side, wire(Flow(0, 1, 0, 9, 0, 0, 5, drain=True)), NOW)
    link.drained()
    assert [type(value) for value, _ in sent(side)] == [Transfer]
    hear(side, wire(flow(side, 9)), NOW)
    transfer, answer = [value for value, _ in sent(side)]
    assert isinstance(transfer, Transfer) and (answer.delivery_count, answer.link_credit, answer.drain) == (5, 0, True)


def test_what_waits_of_a_lost_link_leaves_no_hole_in_the_ids() -> None:
    side, first = sending(window=1)
    (event,) = hear(side, wire(Attach("m", 1, True, source=Source("q"), target=Target())), NOW)
    second = event.link
    second.accept()
    hear(side, wire(Flow(0, 1, 0, 9, 1, 0, 9)), NOW)
    side.take_output(NOW)
    for number, link in enumerate((first, first, second, first, second)):
        link.send(b"%d" % number, context=number)
    (gone,) = hear(side, wire(Detach(0, True)), NOW)
    assert gone.unsettled == [0, 1, 3]
    side.take_output(NOW)
    hear(side, wire(flow(side, 9)), NOW)
    assert [(value.delivery_id, part) for value, part in sent(side)] == [(1, b"2"), (2, b"4")]
    (event,) = hear(side, wire(Disposition(True, 0, 9, True, Accepted())), NOW)
    assert event == Outcomes(second, [2, 4], Accepted(), True, 1, 2)
    assert second.send(b"5", context=5) == 3


def test_a_message_larger_than_the_peer_takes() -> None:
    pair = Pair(server_settings={"max_message_size": 10})
    mine, theirs = pair.sender()
    theirs.grant(2)
    pair.pump()
    assert mine.message_bytes_max == 10
    mine.send(b"x" * 10, context=None)
    with pytest.raises(LocalProtocolError, match="10 bytes"):
        mine.send(b"x" * 11, context=None)
    assert mine.credit == 1


# -------------------------------------------------------------------------------------------------- outcomes


def three(side: Connection, link: Sender) -> None:
    for number in range(3):
        link.send(b"", context=number)
    side.take_output(NOW)


@pytest.mark.parametrize(
    ("disposition", "expected"),
    [
        (Disposition(True, 1, None, True, Accepted()), ([1], Accepted(), True, 1, 1)),
        (Disposition(True, 1, 1, True, Released()), ([1], Released(), True, 1, 1)),
        (Disposition(True, 0, 99, True, Accepted()), ([0, 1, 2], Accepted(), True, 0, 2)),
        (Disposition(True, 4294967290, 1, True, Accepted()), ([0, 1], Accepted(), True, 0, 1)),
        (Disposition(True, 0, 2, False, Accepted()), ([0, 1, 2], Accepted(), False, 0, 2)),
        (Disposition(True, 0, 2, True), ([0, 1, 2], Released(), True, 0, 2)),
        (Disposition(True, 0, 2, True, Received(0, 0)), ([0, 1, 2], Released(), True, 0, 2)),
    ],
)
def test_dispositions(disposition: Disposition, expected: tuple[Any, ...]) -> None:
    """CLIENTS 19, 20."""
    side, link = sending()
    three(side, link)
    assert hear(side, wire(disposition), NOW) == [Outcomes(link, *expected)]
    assert of(Outcomes, hear(side, wire(disposition), NOW)) == []


@pytest.mark.parametrize(
    "disposition",
    [Disposition(True, 0, 2), Disposition(True, 0, 2, False, Received(0, 0)), Disposition(True, 5, 9, True)],
)
def test_dispositions_that_change_nothing(disposition: Disposition) -> None:
    side, link = sending()
    three(side, link)
    assert hear(side, wire(disposition), NOW) == [] and len(link.unsettled) == 3


def test_a_backward_range_ends_the_session() -> None:
    side, link = sending()
    three(side, link)
    events = hear(side, wire(Disposition(True, 2, 0, True, Accepted())), NOW)
    assert events[0].unsettled == [0, 1, 2] and isinstance(events[-1], SessionEnded)


def test_settled_without_a_state_means_the_sources_default() -> None:
    """CLIENTS 20."""
    side, link = sending(source=Source("q", default_outcome=Modified(delivery_failed=True)))
    three(side, link)
    (event,) = hear(side, wire(Disposition(True, 0, 2, True)), NOW)
    assert event.state == Modified(delivery_failed=True)


def test_mode_second_waits_for_our_settlement() -> None:
    """CLIENTS 18."""
    side, link = sending()
    three(side, link)
    (event,) = hear(side, wire(Disposition(True, 0, 2, False, Accepted())), NOW)
    link.settle(event.first, event.last, event.state)
    assert said(side) == [Disposition(False, 0, 2, True, Accepted())]
    (gone,) = hear(side, wire(Detach(0, True)), NOW)
    assert gone.unsettled == []


def test_a_transactions_state_is_not_the_end() -> None:
    side, link = sending()
    three(side, link)
    state = TransactionalState(b"t", Accepted())
    assert hear(side, wire(Disposition(True, 0, 1, False, state)), NOW) == [Outcomes(link, [0, 1], state, False, 0, 1)]
    link.settle(0, 1, Accepted())
    assert list(link.unsettled.values()) == [2]


def test_outcomes_are_grouped_by_link_in_runs() -> None:
    side, first = sending()
    (event,) = hear(side, wire(Attach("m", 1, True, source=Source("q"), target=Target())), NOW)
    second = event.link
    second.accept()
    hear(side, wire(Flow(0, 1000, 0, 9, 1, 0, 9)), NOW)
    for number, link in enumerate((first, first, second, first)):
        link.send(b"", context=number)
    assert hear(side, wire(Disposition(True, 0, 3, True, Accepted())), NOW) == [
        Outcomes(first, [0, 1], Accepted(), True, 0, 1),
        Outcomes(second, [2], Accepted(), True, 2, 2),
        Outcomes(first, [3], Accepted(), True, 3, 3),
    ]


def test_a_huge_range_costs_no_more_than_what_is_unsettled() -> None:
    side, link = sending()
    three(side, link)
    (event,) = hear(side, wire(Disposition(True, 0, 2**31 - 1, True, Accepted())), NOW)
    assert event.contexts == [0, 1, 2]


@pytest.mark.parametrize("start", [0, 1, LAST, LAST - 3])
def test_all_ids_wrap(start: int) -> None:
    """CLIENTS 10: any number to begin with."""
    changes = {"first_transfer_id": start}
    pair = Pair(changes, {**changes, "incoming_window": 4})
    mine, theirs = pair.sender()
    back, forth = pair.receiver()
    for number in range(12):
        theirs.grant(2)
        back.grant(2)
        pair.pump()
        mine.send(b"%d" % number, context=number)
        mine.send(b"%d" % number, context=-number)
        forth.send(b"%d" % number, context=number)
        events, deliveries = pair.pump()
        assert len(of(Delivery, deliveries)) == 2 and len(of(Delivery, events)) == 1
        ids = [event.delivery_id for event in of(Delivery, deliveries)]
        assert ids[0] == (start + 2 * number) & LAST
        theirs.settle(ids[0], ids[1], Accepted())
        (event,) = of(Outcomes, pair.pump()[0])
        assert event.contexts == [number, -number]
    assert pair.session.over is False and pair.client.closed is False


def test_a_session_ended_by_the_peer_hands_contexts_back() -> None:
    side, link = sending()
    three(side, link)
    events = hear(side, wire(End(Error("a:b"))), NOW)
    assert events == [LinkDetached(link, False, Error("a:b"), [0, 1, 2]), SessionEnded(events[1].session, Error("a:b"))]
    assert said(side) == [End()] and link.credit == 0 and not link.sendable
