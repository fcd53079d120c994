"""Runs against single deliveries: an engine that takes runs tells, answers and counts what one without does."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp.joined import NOW, hear, long_form, of, server, wire
from holdfast.amqp.connection import (
    Connection,
    Deliveries,
    Delivery,
    DeliveryPart,
    LinkAttached,
    Receiver,
    SessionEnded,
)
from holdfast.amqp.session import runs
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.frames import AMQP_HEADER, frame, frame_with_payload
from holdfast.amqp.wire.performatives import Accepted, Attach, Begin, Detach, Open, Released, Source, Target, Transfer
from support import today

IDS = st.sampled_from([0, 250, 255, 256, 70_000, 2**32 - 3])
TAGS = st.sampled_from([b"", b"1", b"22", b"\0\0\0\7", b"x" * 32, b"y" * 33])
PAYLOADS = st.sampled_from([b"", b"p", b"\x00\x53\x75\xa0\x01a", b"z" * 600])


BOUNDS: list[dict[str, Any]] = [
    {}, {}, {"incoming_window": 6}, {"unsettled_max": 5}, {"stream_bytes": 700}, {"held_max": 700},
    {"held_max": 1_100, "stream_bytes": 10**6}, {"partial_bytes_max": 1_250}, {"max_message_size": 1_250},
]  # fmt: skip


def two_links(
    in_runs: bool, *, stream_bytes: int | None = None, held_max: int = 10**6, **changes: Any
) -> tuple[Connection, list[Receiver]]:
    side = server(runs=in_runs, **changes)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 1000, 1000)), NOW)
    links = []
    for handle in (0, 300):
        attach = Attach(f"l{handle}", handle, False, source=Source(), target=Target("q"), initial_delivery_count=0)
        (event,) = of(LinkAttached, hear(side, wire(attach), NOW))
        event.link.accept()
        event.link.grant(8)
        event.link.stream_bytes = stream_bytes
        links.append(event.link)
    side.partials.held_max = held_max
    side.take_output(NOW)
    return side, links


def one_by_one(events: list[Any]) -> list[Any]:
    """What was told, runs taken apart and links by name; a run tells no tags."""
    told: list[Any] = []
    for event in events:
        if isinstance(event, Deliveries):
            told += [
                (event.link.name, number, event.message_format, event.settled, payload)
                for number, payload in enumerate(event.payloads, event.first_id)
            ]
        elif isinstance(event, DeliveryPart):
            told.append((event.link.name, event.delivery_id, event.settled, event.payload, event.first, event.last))
        elif isinstance(event, Delivery):
            told.append(
                (event.link.name, event.delivery_id, event.message_format, event.settled, event.payload)
            )  # fmt: skip
        else:
            told.append(type(event))
    return told


def state_of(side: Connection, links: list[Receiver]) -> Any:
    return (
        [(link.credit, link.allowance, link.detached, link.delivery_count, bool(link.partial)) for link in links],
        [(one.window_in, one.next_incoming_id, list(one.unsettled_in)) for one in side.sessions],
        (side.partial_bytes, side.partials.held),
        side.closed,
    )


def following(draw: st.DrawFn, transfer: Transfer, frames: int) -> list[bytes]:
    """The frames behind a delivery's first; now and then one too few or too many, or that says what none should."""
    found = []
    for index in range(1, frames):
        odd = draw(st.integers(0, 16))
        more = index < frames - 1
        said = replace(transfer, more=more, settled=True if odd == 1 else None, aborted=odd == 2)
        if odd == 3:
            said.more = not more
        if odd == 4 and said.delivery_id is not None:
            said.delivery_id ^= 1
        if odd == 5:
            said.delivery_tag = b"other"
        if odd == 6:
            said.state = Accepted()
        found.append(frame_with_payload(0, encoding.encode(said), draw(PAYLOADS)))
        if odd == 7:
            found.append(frame(0, b""))
    return found


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Transfers as senders send them: many alike, now and then one that differs, or ends the likeness."""
    number = draw(IDS)
    found = []
    for _ in range(draw(st.integers(1, 4))):
        handle = draw(st.sampled_from([0, 300]))
        tag = draw(TAGS)
        settled = draw(st.sampled_from([None, False, True]))
        message_format = draw(st.sampled_from([None, 0, 5]))
        wide = draw(st.booleans())
        frames = draw(st.sampled_from([1, 1, 2, 3]))
        named = draw(st.booleans())
        for _ in range(draw(st.integers(1, 6))):
            odd = draw(st.integers(0, 12))
            transfer = Transfer(
                handle, number, tag, message_format, settled, more=(odd == 1) != (frames > 1),
                state=Accepted() if odd == 2 else None, aborted=odd == 3,
            )  # fmt: skip
            if odd == 4:
                transfer.rcv_settle_mode = 1
            if odd == 8:
                transfer.settled = not settled
            if odd == 9:  # a list of the same length, the tag a byte longer or shorter
                transfer.message_format = 0 if message_format else 5
                transfer.delivery_tag = tag + b"+" if message_format else tag[:-1]
            body = encoding.encode(transfer)
            found.append(frame_with_payload(0, long_form(body) if wide else body, draw(PAYLOADS)))
            found += following(draw, Transfer(handle, number, tag) if named else Transfer(handle), frames)
            if odd == 5:
                found.append(frame(0, b""))
            number = (number + (0 if odd == 6 else 2 if odd == 7 else 1)) & 0xFFFFFFFF
    if draw(st.booleans()):
        found.append(wire(Detach(0, True)))
    return b"".join(found)


@settings(max_examples=today.drawn(50))
@given(streams(), st.sampled_from([0, 1, 7, 100, 1_000]), st.sampled_from(BOUNDS))
def test_runs_change_nothing(stream: bytes, cut: int, changes: dict[str, Any]) -> None:
    told = []
    for in_runs in (False, True):
        side, links = two_links(in_runs, **changes)
        events = []
        step = cut or len(stream)
        for at in range(0, len(stream), step):
            events += hear(side, stream[at : at + step], NOW)
            for link in links:  # what is settled may come again
                if len(side.sessions) and not link.detached:
                    link.settle(0, 2, Released())
        told.append((one_by_one(events), b"".join(side.take_output(NOW)), state_of(side, links)))
    assert told[0] == told[1]


def transfers(first: int, count: int, handle: int = 0, tag: bytes = b"tag") -> bytes:
    frames = [
        frame_with_payload(0, encoding.encode(Transfer(handle, number, tag, 0, False)), b"body")
        for number in range(first, first + count)
    ]
    return b"".join(frames)


def test_likes_are_taken_together_and_what_differs_begins_anew() -> None:
    side, _ = two_links(True)
    events = hear(side, transfers(1_000, 4) + transfers(1_004, 3, tag=b"longer"), NOW)
    assert [len(event.payloads) if isinstance(event, Deliveries) else 1 for event in events] == [1, 3, 1, 2]


def test_a_handle_that_was_given_anew_is_another_link() -> None:
    side, (first, _) = two_links(True)
    hear(side, transfers(1_000, 3), NOW)
    attach = Attach("new", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0)
    (event,) = of(LinkAttached, hear(side, wire(Detach(0, True), attach), NOW))
    event.link.accept()
    event.link.grant(8)
    told = hear(side, transfers(1_003, 2), NOW)
    assert first.detached and {event.link.name for event in told} == {"new"}


def test_a_sender_that_never_repeats_itself_is_no_longer_learnt() -> None:
    side, (first, _) = two_links(True)
    for number in range(runs.MISSES_MAX + 5):
        first.grant(8)
        hear(side, transfers(1_000 + number, 1, tag=bytes(1 + number % 2)), NOW)
    assert first.template_misses == runs.MISSES_MAX and side.sessions[0].run_link is None
    assert len(hear(side, transfers(2_000, 3), NOW)) == 3


def test_a_tag_of_another_length_is_no_likeness_whatever_its_bytes() -> None:
    """A format of 0x43 behind an empty tag reads like format 0 behind a tag of one byte, but for the tag's length."""
    side, _ = two_links(True)
    odd = frame_with_payload(0, encoding.encode(Transfer(0, 1_002, b"", 0x43, False)), b"body")
    events = hear(side, transfers(1_000, 2, tag=b"t") + odd, NOW)
    assert one_by_one(events) == [("l0", number, 0, False, b"body") for number in (1_000, 1_001)] + [
        ("l0", 1_002, 0x43, False, b"body")
    ]


def cut(first: int, count: int, *, named: bool, parts: tuple[bytes, ...] = (b"a" * 9, b"b" * 99, b"c")) -> bytes:
    """`count` deliveries of as many frames as there are parts; `named`: each frame says whose it is."""
    found = []
    for number in range(first, first + count):
        for index, part in enumerate(parts):
            more = index < len(parts) - 1
            said = Transfer(0, number, b"tag", 0, False, more) if not index else Transfer(0, more=more)
            if named and index:
                said.delivery_id, said.delivery_tag = number, b"tag"
            found.append(frame_with_payload(0, encoding.encode(said), part))
    return b"".join(found)


@pytest.mark.parametrize("named", [False, True])
def test_deliveries_of_several_frames_are_taken_together(named: bool) -> None:
    side, _ = two_links(True)
    events = hear(side, cut(1_000, 4, named=named), NOW)
    assert [len(event.payloads) if isinstance(event, Deliveries) else 1 for event in events] == [1, 3]
    assert one_by_one(events) == [
        ("l0", number, 0, False, b"a" * 9 + b"b" * 99 + b"c") for number in range(1_000, 1_004)
    ]


def test_more_or_fewer_frames_of_the_same_kind_are_still_alike() -> None:
    side, _ = two_links(True)
    told = hear(side, cut(1_000, 2, named=False) + cut(1_002, 1, named=False, parts=(b"x",) * 7), NOW)
    assert [len(event.payloads) if isinstance(event, Deliveries) else 1 for event in told] == [1, 2]


def test_a_delivery_that_is_not_whole_yet_waits_as_any_other() -> None:
    side, (link, _) = two_links(True)
    data = cut(1_000, 3, named=False)
    events = hear(side, data[:-1], NOW)
    assert len(one_by_one(events)) == 2 and link.partial is not None
    events += hear(side, data[-1:], NOW)
    assert [number for _, number, *_ in one_by_one(events)] == [1_000, 1_001, 1_002]


@pytest.mark.parametrize(("bound", "taken"), [(109, True), (108, False)])
def test_a_delivery_that_would_come_in_parts_is_left_to_them(bound: int, taken: bool) -> None:
    side, _ = two_links(True, stream_bytes=bound)
    parts = (b"a" * 9, b"b" * 99, b"c")  # 108 with more behind them
    events = hear(side, cut(1_000, 3, named=False, parts=parts), NOW)
    assert bool(of(Deliveries, events)) == taken
    plain, _ = two_links(False, stream_bytes=bound)
    assert one_by_one(events) == one_by_one(hear(plain, cut(1_000, 3, named=False, parts=parts), NOW))


@pytest.mark.parametrize("window", [12, 11])
def test_a_window_that_is_held_takes_so_many_frames_and_no_more(window: int) -> None:
    """Four deliveries of three frames fill a window of twelve; whatever comes past a window ends the session."""
    found = []
    for in_runs in (False, True):
        side, links = two_links(in_runs, incoming_window=window)
        (session,) = side.sessions
        session.hold_window(True)
        events = hear(side, cut(1_000, 4, named=False), NOW)
        assert session.window_in == 0 and session.next_incoming_id == window
        assert bool(of(SessionEnded, events)) == (window < 12)
        found.append((one_by_one(events), b"".join(side.take_output(NOW)), state_of(side, links)))
    assert found[0] == found[1]


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("count", range(1, 9))
def test_the_window_is_opened_behind_the_same_frame_whether_or_not_it_came_in_a_run(count: int, frames: int) -> None:
    """Half of a window of six is used up in the middle of what lies there."""
    found = []
    stream = transfers(1_000, count) if frames == 1 else cut(1_000, count, named=False)
    for in_runs in (False, True):
        side, links = two_links(in_runs, incoming_window=6)
        events = hear(side, stream, NOW)
        found.append((one_by_one(events), b"".join(side.take_output(NOW)), state_of(side, links)))
    assert found[0] == found[1]
