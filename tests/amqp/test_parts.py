"""Deliveries in parts: handed on as they come, sent as their bytes become known, aborted (§2.6.14, §2.7.5)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp.joined import Pair, of
from holdfast.amqp.connection import Connection, CreditChanged, Delivery, DeliveryAborted, DeliveryPart, Outcomes
from holdfast.amqp.effort import PART
from holdfast.amqp.session.events import DeliveryBegun
from holdfast.amqp.session.transfers import PART_BYTES
from holdfast.amqp.wire.performatives import Accepted, Released
from holdfast.errors import LocalProtocolError
from holdfast.units import KIB
from support import today


def linked(limit: int | None = 1000, **server: Any) -> tuple[Pair, Any, Any]:
    """A pair with a link from client to server, whose receiver hands on what grows past `limit`."""
    pair = Pair(server_settings=server)
    mine, theirs = pair.sender()
    theirs.stream_bytes = limit
    theirs.grant(100)
    pair.pump()
    return pair, mine, theirs


def flushed(pair: Pair, outgoing: Any, data: bytes) -> None:
    """Feeds all of `data` as the window lets it through."""
    at = 0
    while not outgoing.over:
        if outgoing.hungry:
            outgoing.feed(data[at : at + 10_000])
            at += 10_000
        outgoing.flush(10**6)
        pair.pump()


def joined(events: list[Any]) -> bytes:
    """What the parts hold, which must be one delivery's, with a beginning and an end."""
    parts = of(DeliveryPart, events)
    assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len({part.delivery_id for part in parts}) == 1
    return b"".join(part.payload for part in parts)


@settings(max_examples=today.drawn(20), deadline=None)
@given(
    size=st.integers(1, 40_000),
    head=st.integers(0, 3_000),
    frame=st.integers(512, 5_000),
    window=st.integers(2, 20),
    limit=st.one_of(st.none(), st.integers(0, 50_000)),
    cut=st.integers(0, 900),
)
def test_any_frame_window_and_cut_brings_the_same_bytes(
    size: int, head: int, frame: int, window: int, limit: int | None, cut: int
) -> None:
    pair, mine, _ = linked(limit, max_frame_size=frame, incoming_window=window)
    data = bytes(number * 7 % 251 for number in range(size))
    outgoing = mine.begin(data[:head], size, context="c", message_format=3)
    if not outgoing.over:
        flushed(pair, outgoing, data[head:])
    pair.pump(cut=cut)
    whole = of(Delivery, pair.server_events)
    if whole:
        assert [(item.payload, item.message_format) for item in whole] == [(data, 3)]
        assert not of(DeliveryPart, pair.server_events)
    else:
        assert limit is not None and size > limit
        assert joined(pair.server_events) == data
    assert mine.outgoing is None and mine.sendable


def test_frames_are_joined_to_parts_of_a_fair_size() -> None:
    pair, mine, theirs = linked(1000, max_frame_size=512)
    data = bytes(500_000)
    flushed(pair, mine.begin(b"", len(data), context=1), data)
    parts = of(DeliveryPart, pair.server_events)
    assert joined(pair.server_events) == data
    assert all(PART_BYTES <= len(part.payload) < PART_BYTES + 512 for part in parts[1:-1])
    theirs.settle(parts[0].delivery_id, parts[0].delivery_id, Accepted())
    pair.pump()
    assert [event.contexts for event in of(Outcomes, pair.client_events)] == [[1]]


@pytest.mark.parametrize(("size", "in_parts"), [(3 * 500, False), (3 * 500 + 1, True)])
def test_the_limit_and_one_past_it(size: int, in_parts: bool) -> None:
    """Counted with the frames that have more behind them; the last one makes no part of a delivery."""
    pair, mine, _ = linked(size - 1 if in_parts else size)
    outgoing = mine.begin(bytes(size), size + 1, context=1)
    outgoing.feed(b"x")
    outgoing.flush(10)
    pair.pump()
    assert bool(of(DeliveryPart, pair.server_events)) == in_parts
    assert bool(of(Delivery, pair.server_events)) != in_parts


def test_what_the_connections_share_is_counted_and_given_back() -> None:
    pair, mine, theirs = linked(100_000)
    partials = pair.server.partials
    partials.held_max = 1000
    outgoing = mine.begin(bytes(1000), 3000, context=1)
    pair.pump()
    assert partials.held == 1000 and not of(DeliveryPart, pair.server_events)
    outgoing.feed(bytes(1999))
    theirs.session.connection.partials.held += 1  # another's
    outgoing.feed(b"x")
    outgoing.flush(10_000)
    pair.pump()
    assert partials.held == 1
    assert len(of(Delivery, pair.server_events)) == 1  # its last frame came
    second = mine.begin(bytes(1000), 3000, context=2)
    pair.pump()
    assert len(of(DeliveryPart, pair.server_events)) == 1 and partials.held == 1
    second.feed(bytes(2000))
    second.flush(10_000)
    mine.begin(bytes(500), 3000, context=3)
    pair.pump()
    assert partials.held == 501
    pair.server.transport_lost()
    assert partials.held == 1


@pytest.mark.parametrize("sent", [0, 900, 5000])
def test_an_aborted_delivery_is_told_wherever_it_took_credit(sent: int) -> None:
    pair, mine, theirs = linked(1000)
    outgoing = mine.begin(bytes(sent), 10_000, context="gone")
    pair.pump()
    outgoing.abort()
    outgoing.abort()
    pair.pump()
    assert of(DeliveryAborted, pair.server_events) == [DeliveryAborted(theirs, 0)]
    assert bool(of(DeliveryPart, pair.server_events)) == (sent > 1000)
    assert not mine.unsettled and not mine.session.unsettled_out and theirs.partial is None
    mine.send(b"next", context="next")
    pair.pump()
    assert [item.payload for item in of(Delivery, pair.server_events)] == [b"next"]


def test_an_abort_waits_for_the_window_like_any_frame() -> None:
    pair, mine, theirs = linked(1000, incoming_window=2)
    outgoing = mine.begin(bytes(100), 10**6, context=1)
    outgoing.feed(bytes(900_000))
    outgoing.flush(10**6)
    assert outgoing.blocked
    outgoing.abort()
    assert not outgoing.over and not mine.sendable
    pair.pump()
    assert of(CreditChanged, pair.client_events)
    outgoing.flush(1)
    pair.pump()
    assert outgoing.over and mine.sendable and theirs.partial is None


def test_other_links_speak_between_its_frames_and_its_own_link_does_not() -> None:
    pair, mine, _ = linked(1000)
    other, receiver = pair.sender("other")
    receiver.grant(10)
    pair.pump()
    outgoing = mine.begin(bytes(5000), 20_000, context=1)
    assert not mine.sendable
    with pytest.raises(LocalProtocolError, match="middle of a delivery"):
        mine.send(b"no", context=2)
    with pytest.raises(LocalProtocolError, match="middle of a delivery"):
        mine.begin(b"", 10, context=2)
    assert mine.send_run([b""], [b"no"], [2], settled=False) == 0
    other.send(b"between", context=3)
    pair.pump()
    flushed(pair, outgoing, bytes(15_000))
    assert [item.payload for item in of(Delivery, pair.server_events)] == [b"between"]
    assert len(joined(pair.server_events)) == 20_000


def test_more_than_its_length_is_our_own_mistake() -> None:
    pair, mine, _ = linked()
    outgoing = mine.begin(b"", 10, context=1)
    with pytest.raises(LocalProtocolError, match="10 bytes left, not 11"):
        outgoing.feed(bytes(11))
    pair.client.transport_lost()
    assert outgoing.over and mine.outgoing is None


def test_the_peers_limit_holds_for_the_whole() -> None:
    _, mine, _ = linked(max_message_size=100 * KIB)
    with pytest.raises(LocalProtocolError, match="takes 102400 bytes, not 102401"):
        mine.begin(b"", 100 * KIB + 1, context=1)
    assert not mine.begin(b"", 100 * KIB, context=1).over


def test_a_limit_is_the_receivers_own_whatever_is_streamed() -> None:
    pair, mine, _ = linked(1000, max_message_size=3000)
    mine.remote_attach.max_message_size = None
    outgoing = mine.begin(bytes(2000), 3001, context=1)
    outgoing.feed(bytes(1001))
    outgoing.flush(5000)
    pair.pump()
    (gone,) = [event for event in pair.server_events if type(event).__name__ == "LinkDetached"]
    assert gone.error.condition == "amqp:link:message-size-exceeded"


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("gives_up", [False, True])
def test_what_is_settled_before_its_end_is_passed_over(settled: bool, gives_up: bool) -> None:
    """Its sender hears of it at once, and may give it up or go on: nothing more of it is told, kept or counted."""
    pair, mine, theirs = linked(None, max_frame_size=1_000)
    theirs.tells_begin = True
    outgoing = mine.begin(b"head", 10_000, context="unwanted", settled=settled)
    outgoing.feed(bytes(4_000))
    outgoing.flush(4_000)
    pair.pump()
    (begun,) = of(DeliveryBegun, pair.server_events)
    assert begun == (theirs, 0, b"head")
    assert theirs.session.connection.partial_bytes > 0
    theirs.settle_unfinished(begun.delivery_id + 1, Released())  # another's: nothing
    theirs.settle_unfinished(begun.delivery_id, Released())
    theirs.settle_unfinished(begun.delivery_id, Accepted())  # it is settled
    connection = theirs.session.connection
    assert connection.partial_bytes == 0 and connection.partials.held == 0
    pair.pump()
    told = [(event.contexts, event.state, event.settled) for event in of(Outcomes, pair.client_events)]
    assert told == ([] if settled else [(["unwanted"], Released(), True)])
    if gives_up:
        outgoing.abort()
        outgoing.flush(1)
        pair.pump()
    else:
        flushed(pair, outgoing, bytes(5_996))
    mine.send(b"next", context="next")
    pair.pump()
    assert [event.payload for event in of(Delivery, pair.server_events)] == [b"next"]
    assert not of(DeliveryPart, pair.server_events) and not of(DeliveryAborted, pair.server_events)
    assert connection.partial_bytes == 0 and connection.partials.held == 0 and theirs.partial is None


def test_the_bound_on_what_is_unfinished_spares_a_vital_link() -> None:
    pair, mine, theirs = linked(None, max_frame_size=1_000, partial_bytes_max=1_500)
    theirs.vital = True
    mine.send(bytes(5_000), context="vital")
    pair.pump()
    assert [len(event.payload) for event in of(Delivery, pair.server_events)] == [5_000]
    assert theirs.session.connection.partial_bytes == 0
    theirs.vital = False
    mine.send(bytes(5_000), context="other")
    pair.pump()
    assert theirs.detached or theirs.detach_sent


def test_what_is_passed_over_costs_as_much_as_other_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, mine, theirs = linked(None, max_frame_size=1_000)
    theirs.tells_begin = True
    outgoing = mine.begin(b"head", 100_000, context="unwanted")
    outgoing.feed(bytes(90_000))
    outgoing.flush(1_000)
    pair.pump()
    theirs.settle_unfinished(0, Released())
    spent: list[int] = []
    spend = Connection.spend

    def counted(self: Connection, units: int) -> None:
        spent.append(units)
        spend(self, units)

    monkeypatch.setattr(Connection, "spend", counted)
    outgoing.flush(50_000)
    pair.pump()
    assert spent.count(PART) > 30


def test_its_beginning_is_told_before_any_part_of_it() -> None:
    """Also where its first frame is more than may be held whole."""
    pair, mine, theirs = linked(100, max_frame_size=1_000)
    theirs.tells_begin = True
    outgoing = mine.begin(b"h" * 500, 5_000, context="c")
    outgoing.feed(bytes(900))
    outgoing.flush(1_400)
    pair.pump()
    told = [type(event) for event in pair.server_events if isinstance(event, (DeliveryBegun, DeliveryPart))]
    assert told[:2] == [DeliveryBegun, DeliveryPart]


def test_a_link_that_is_being_detached_settles_nothing_more() -> None:
    pair, mine, theirs = linked(None, max_frame_size=1_000)
    outgoing = mine.begin(b"head", 10_000, context="c")
    outgoing.feed(bytes(4_000))
    outgoing.flush(4_000)
    pair.pump()
    theirs.detach()
    theirs.settle_unfinished(0, Released())
    pair.pump()
    assert not of(Outcomes, pair.client_events)
