"""Runs against single deliveries: an engine that takes runs tells, answers and counts what one without does."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp.joined import NOW, hear, of, server, wire
from holdfast.amqp import codec, runs
from holdfast.amqp.connection import Connection, Deliveries, Delivery, LinkAttached, Receiver
from holdfast.amqp.frames import AMQP_HEADER, frame, frame_with_payload
from holdfast.amqp.performatives import Accepted, Attach, Begin, Detach, Open, Released, Source, Target, Transfer

IDS = st.sampled_from([0, 250, 255, 256, 70_000, 2**32 - 3])
TAGS = st.sampled_from([b"", b"1", b"22", b"\0\0\0\7", b"x" * 32, b"y" * 33])
PAYLOADS = st.sampled_from([b"", b"p", b"\x00\x53\x75\xa0\x01a", b"z" * 600])


def two_links(in_runs: bool, **changes: Any) -> tuple[Connection, list[Receiver]]:
    side = server(runs=in_runs, **changes)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 1000, 1000)), NOW)
    links = []
    for handle in (0, 300):
        attach = Attach(f"l{handle}", handle, False, source=Source(), target=Target("q"), initial_delivery_count=0)
        (event,) = of(LinkAttached, hear(side, wire(attach), NOW))
        event.link.accept()
        event.link.grant(8)
        links.append(event.link)
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
        elif isinstance(event, Delivery):
            told.append(
                (event.link.name, event.delivery_id, event.message_format, event.settled, event.payload)
            )  # fmt: skip
        else:
            told.append(type(event))
    return told


def state_of(side: Connection, links: list[Receiver]) -> Any:
    return (
        [(link.credit, link.allowance, link.detached, link._delivery_count, bool(link.partial)) for link in links],
        [(one.window_in, one.next_incoming_id, list(one.unsettled_in)) for one in side.sessions],
        side.closed,
    )


def long_form(body: bytes) -> bytes:
    return body[:3] + b"\xd0" + (body[4] + 3).to_bytes(4, "big") + body[5].to_bytes(4, "big") + body[6:]


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
        for _ in range(draw(st.integers(1, 6))):
            odd = draw(st.integers(0, 12))
            transfer = Transfer(
                handle, number, tag, message_format, settled, more=odd == 1, state=Accepted() if odd == 2 else None,
                aborted=odd == 3,
            )  # fmt: skip
            if odd == 4:
                transfer.rcv_settle_mode = 1
            if odd == 8:
                transfer.settled = not settled
            if odd == 9:  # a list of the same length, the tag a byte longer or shorter
                transfer.message_format = 0 if message_format else 5
                transfer.delivery_tag = tag + b"+" if message_format else tag[:-1]
            body = codec.encode(transfer)
            found.append(frame_with_payload(0, long_form(body) if wide else body, draw(PAYLOADS)))
            if odd == 5:
                found.append(frame(0, b""))
            number = (number + (0 if odd == 6 else 2 if odd == 7 else 1)) & 0xFFFFFFFF
    if draw(st.booleans()):
        found.append(wire(Detach(0, True)))
    return b"".join(found)


@settings(max_examples=300)
@given(streams(), st.sampled_from([0, 1, 7, 100]), st.sampled_from([{}, {"incoming_window": 6}, {"unsettled_max": 5}]))
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
        frame_with_payload(0, codec.encode(Transfer(handle, number, tag, 0, False)), b"body")
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
    assert first.shape_misses == runs.MISSES_MAX and side.sessions[0].run_link is None
    assert len(hear(side, transfers(2_000, 3), NOW)) == 3


def test_a_tag_of_another_length_is_no_likeness_whatever_its_bytes() -> None:
    """A format of 0x43 behind an empty tag reads like format 0 behind a tag of one byte, but for the tag's length."""
    side, _ = two_links(True)
    odd = frame_with_payload(0, codec.encode(Transfer(0, 1_002, b"", 0x43, False)), b"body")
    events = hear(side, transfers(1_000, 2, tag=b"t") + odd, NOW)
    assert one_by_one(events) == [("l0", number, 0, False, b"body") for number in (1_000, 1_001)] + [
        ("l0", 1_002, 0x43, False, b"body")
    ]
