"""Two engines joined, their bytes cut anywhere; bytes of an enemy (h11's way of testing)."""

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import NOW, of, performatives, pump, wire
from holdfast.amqp.connection import (
    Connection,
    ConnEvent,
    Delivery,
    LinkAttached,
    LinkDetached,
    Outcomes,
    ProtocolFailed,
    Receiver,
    Sender,
    SessionEnded,
    Settings,
)
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_HEADER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Released,
    Source,
    Target,
    Transfer,
)
from support import today


def story(frame_size: int, cuts: Sequence[int] = ()) -> tuple[bytes, bytes, list[str]]:
    """A conversation that has a bit of everything: what client and server say, and the events of both.

    The bytes of each flight are handed over in pieces of the sizes in `cuts`, the last with all the rest.
    """
    here = Connection(
        Settings(container_id="c", mechanism="ANONYMOUS", max_frame_size=frame_size), server=False, now=NOW
    )
    there = Connection(Settings(container_id="s", incoming_window=8), server=True, now=NOW)
    spoken: tuple[list[bytes], list[bytes]] = ([], [])
    seen: list[str] = []

    def turn() -> list[ConnEvent]:
        theirs: list[ConnEvent] = []
        for _ in range(100):
            out, back = b"".join(here.take_output(NOW)), b"".join(there.take_output(NOW))
            if not out and not back:
                return theirs
            spoken[0].append(out)
            spoken[1].append(back)
            news = list(hand_over(there, out, cuts))
            theirs += news
            seen.extend(map(repr, news))
            seen.extend(map(repr, hand_over(here, back, cuts)))
        raise AssertionError("no rest")

    session = here.begin()
    sender = session.attach_sender("out", Source("x"), Target("q"))
    receiver = session.attach_receiver("in", Source("q"), Target("x"))
    receiver.grant(9)
    links: list[Any] = [event.link for event in of(LinkAttached, turn())]
    for link in links:
        link.accept()
    links[0].grant(20)
    turn()
    for size in (0, 10, 3000, 700, 1):
        sender.send(bytes(size), context=size)
        links[1].send(bytes(size), context=size)
    for delivery in of(Delivery, turn()):
        links[0].settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    receiver.settle(0, 3, Released())
    turn()
    links[1].detach(error=Error("amqp:link:detach-forced"))
    turn()
    here.close()
    turn()
    return b"".join(spoken[0]), b"".join(spoken[1]), seen


def hand_over(side: Connection, data: bytes, cuts: Sequence[int]) -> Iterator[ConnEvent]:
    at = 0
    for size in (*cuts, len(data)):
        if at < len(data):
            yield from side.receive(data[at : at + size], NOW)
        at += size


@given(st.sampled_from([512, 1000, 65536]), st.lists(st.integers(1, 400), max_size=40))
@today.examples(20)
def test_any_cut_of_the_stream_gives_the_same_events(frame_size: int, cuts: list[int]) -> None:
    whole = story(frame_size)
    for kind in ("Delivery", "Outcomes", "LinkDetached", "ConnectionClosed"):
        assert any(text.startswith(kind) for text in whole[2])
    assert story(frame_size, cuts) == whole


def test_every_single_cut_gives_the_same_events() -> None:
    whole = story(512)
    for at in range(1, 700):
        assert story(512, [at]) == whole
    assert story(512, [1] * 10_000) == whole


# ---------------------------------------------------------------------------------------- hostile bytes

SMALL = st.integers(0, 5)
ANY = st.one_of(SMALL, st.sampled_from([255, 256, 1023, 1024, 2**31 - 1, 2**31, 2**32 - 1]))
MAYBE = st.none() | ANY
ERROR = st.none() | st.builds(Error, st.just("a:b"), st.text(max_size=5))
STATE = st.sampled_from([None, Accepted(), Released()])
FRAMES = st.one_of(
    st.builds(Open, st.text(max_size=3), max_frame_size=ANY, idle_time_out=MAYBE),
    st.builds(Begin, st.none() | SMALL, ANY, ANY, ANY, ANY),
    st.builds(
        Attach, st.sampled_from("abc"), SMALL, st.booleans(), st.integers(0, 9), st.integers(0, 9),
        st.none() | st.just(Source("q")), st.none() | st.just(Target("q")), initial_delivery_count=MAYBE,
        max_message_size=MAYBE,
    ),
    st.builds(Flow, MAYBE, ANY, ANY, ANY, st.none() | SMALL, MAYBE, MAYBE, MAYBE, st.booleans(), st.booleans()),
    st.builds(
        Transfer, SMALL, MAYBE, st.none() | st.binary(max_size=40), MAYBE, st.booleans(), st.booleans(), MAYBE.map(
            lambda mode: None if mode is None else mode & 1), STATE, st.booleans(), st.booleans(), st.booleans(),
    ),
    st.builds(Disposition, st.booleans(), ANY, MAYBE, st.booleans(), STATE),
    st.builds(Detach, SMALL, st.booleans(), ERROR),
    st.builds(End, ERROR),
    st.builds(Close, ERROR),
)  # fmt: skip
CHANNEL = st.integers(0, 2)


def react(events: list[ConnEvent], choices: st.DataObject) -> None:
    """A user who does all that a user may, also late."""
    for event in events:
        if isinstance(event, LinkAttached) and event.remote_initiated:
            if choices.draw(st.booleans()):
                event.link.accept()
                if isinstance(event.link, Receiver):
                    event.link.grant(choices.draw(SMALL))
            else:
                event.link.refuse("a:b", "no")
        elif isinstance(event, Delivery):
            event.link.settle(event.delivery_id, event.delivery_id, Accepted())
        elif isinstance(event, Outcomes):
            event.link.settle(event.first, event.last, event.state)
    links = dict.fromkeys(getattr(event, "link", None) for event in events)
    for link in links:
        if not isinstance(link, Sender):
            continue
        for _ in range(min(link.credit, 2)):
            link.send(bytes(choices.draw(st.sampled_from([0, 5, 1000]))), context=object())
        link.drained()


@given(st.lists(st.tuples(FRAMES, CHANNEL, st.binary(max_size=5)), max_size=25), st.data())
@today.examples(100)
def test_legal_frames_in_any_order_never_raise(frames: list[tuple[Any, int, bytes]], choices: st.DataObject) -> None:
    side = Connection(
        Settings(container_id="s", incoming_window=4, links_max=3, sessions_max=2, unsettled_max=3),
        server=True, now=NOW,
    )  # fmt: skip
    events = side.receive(AMQP_HEADER + wire(Open("c", max_frame_size=512), Begin(None, 0, 3, 3)), NOW)
    for value, channel, payload in frames:
        events = side.receive(wire((value, payload), channel=channel), NOW)
        react(events, choices)
        well_formed(side)
        if side.closed:
            break
    side.tick(NOW + 1e6)
    side.transport_lost()
    assert side.closed and side.links == 0


def well_formed(side: Connection) -> None:
    """Every invariant that must hold between two calls."""
    performatives(b"".join(side.take_output(NOW)))
    live = 0
    for session in side.sessions:
        if session.over:
            continue
        live += len(session._live)
        assert session.window_out >= 0
        for link in session._live:
            assert isinstance(link, Sender | Receiver) and link.credit >= 0 and not link.over
            if isinstance(link, Sender):
                assert all(session.unsettled_out[number] is link for number in link.unsettled)
        assert sum(len(link.unsettled) for link in session._live if isinstance(link, Sender)) == len(
            session.unsettled_out
        )
        assert all(owner in session._live for owner in session.unsettled_in.values())
    assert side.links == live


@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from([b"", AMQP_HEADER, SASL_HEADER]), st.booleans())
def test_any_bytes_never_raise(pieces: list[bytes], before: bytes, server: bool) -> None:
    side = Connection(Settings(container_id="x", mechanism=None if server else "ANONYMOUS"), server=server, now=NOW)
    side.receive(before, NOW)
    for piece in pieces:
        side.receive(piece, NOW)
    performatives(b"".join(side.take_output(NOW)))


@given(st.data())
@today.examples(70)
def test_a_spoilt_conversation_never_raises(data: st.DataObject) -> None:
    there, _, _ = STORY
    spoilt = bytearray(there)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    side = Connection(Settings(container_id="s"), server=True, now=NOW)
    step = data.draw(st.sampled_from([50, 500, len(spoilt)]))
    for at in range(0, len(spoilt), step):
        react(side.receive(bytes(spoilt[at : at + step]), NOW), data)
        well_formed(side)


STORY = story(512)


def test_a_pair_comes_to_rest_with_every_echo_on() -> None:
    """CLIENTS 25: no loop of echoes."""
    here = Connection(Settings(container_id="c"), server=False, now=NOW)
    there = Connection(Settings(container_id="s"), server=True, now=NOW)
    here.begin()
    pump(here, there)
    here.write(0, Flow(0, 9, 0, 9, echo=True))
    there.write(0, Flow(0, 9, 0, 9, echo=True))
    mine, theirs = pump(here, there)
    assert not of(SessionEnded, mine + theirs) and not of(ProtocolFailed, mine + theirs)
    assert not of(LinkDetached, mine)
