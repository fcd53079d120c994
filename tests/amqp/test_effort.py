"""What a peer may ask for beyond its messages: counted, waited for, never lost."""

from typing import Any

import pytest

from amqp.joined import NOW, hear, of, said, server, tick, wire
from holdfast.amqp.connection import (
    Connection,
    LinkAttached,
    LinkDetached,
    Outcomes,
    ReceiverSettled,
    Sender,
    SessionBegun,
)
from holdfast.amqp.effort import ATTACH, EMPTY, EMPTY_BYTES, FLOW, MISS, PART, STEPS_FOR_ONE, TURN, Effort
from holdfast.amqp.session.wide import OPEN_MAX
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Source,
    Target,
    Transfer,
)

ECHO = Flow(0, 100, 0, 100, echo=True)


def test_the_bucket() -> None:
    effort = Effort(100.0, 1_000.0, NOW)
    effort.charge(999)
    assert not effort.exhausted and effort.used == 999
    effort.charge(1)
    assert effort.exhausted and effort.resumes_at(NOW) == pytest.approx(NOW + 0.01)
    effort.charge(100)
    assert effort.resumes_at(NOW) == pytest.approx(NOW + 1.01)
    effort.renew(NOW + 1.02)
    assert not effort.exhausted
    effort.renew(NOW + 1_000)
    effort.charge(999)
    assert not effort.exhausted, "no more than the burst is ever there"
    effort.charge(1)
    assert effort.exhausted


def test_a_turn_has_its_share() -> None:
    effort = Effort(1.0, 1_000_000.0, NOW)
    effort.charge(TURN - 1)
    assert not effort.exhausted
    effort.charge(1)
    assert effort.exhausted and effort.resumes_at(NOW) == NOW
    effort.renew(NOW)
    assert not effort.exhausted


def limited(burst: int = 20_000) -> Connection:
    side = server(effort_per_s=1_000, effort_burst=burst)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 100, 100)))
    side.take_output(NOW)
    return side


def count(side: Connection) -> int:
    assert side._effort is not None
    return side._effort.used


@pytest.mark.parametrize(("frame", "cost"), [
    (wire(Attach("l", 5, False, source=Source(), target=Target("q"))), ATTACH),
    (wire(ECHO), 2 * FLOW),
    (wire(Flow(0, 100, 0, 100)), FLOW),
    (wire(Disposition(True, 0)), MISS),
    (wire(Disposition(True, 0, 5, True, Accepted())), MISS),
    (wire(Begin(None, 0, 1, 1), channel=7), ATTACH // 2),
    (wire(End()), ATTACH // 2),
])  # fmt: skip
def test_costs(frame: bytes, cost: int) -> None:
    side = limited()
    before = count(side)
    hear(side, frame)
    assert count(side) - before == cost


def sending(side: Connection, links: int, each: int) -> None:
    """The peer attaches so many senders, and sends that many messages on each, which stay open."""
    for handle in range(links):
        events = hear(side, wire(Attach(f"l{handle}", handle, False, source=Source(), target=Target("q"))))
        link = of(LinkAttached, events)[0].link
        link.accept()
        link.grant(each)
    numbers = range(links * each)
    hear(side, b"".join(wire((Transfer(number // each, number, b"%d" % number), b"x")) for number in numbers))
    assert len(side.sessions[0].unsettled_in) == links * each


def test_the_end_of_a_link_costs_a_look_at_all_that_its_session_has_open() -> None:
    side = limited()
    sending(side, 2, 80)
    before = count(side)
    hear(side, wire(Detach(0, True)))
    assert count(side) - before == ATTACH + 160 // STEPS_FOR_ONE
    assert set(side.sessions[0].unsettled_in) == set(range(80, 160))
    before = count(side)
    hear(side, wire(Detach(1, True)))
    assert count(side) - before == ATTACH + 80 // STEPS_FOR_ONE
    assert not side.sessions[0].unsettled_in


class Unwalked(dict[int, Any]):
    """Whose items nobody may walk through."""

    def items(self) -> Any:
        raise AssertionError("all that the session has open was looked through for one of its links")


@pytest.mark.parametrize("end", ["lost", "session"])
def test_the_end_of_a_session_looks_through_nothing_for_each_of_its_links(end: str) -> None:
    side = limited()
    sending(side, 3, 5)
    session = side.sessions[0]
    session.unsettled_in = Unwalked(session.unsettled_in)
    events = side.transport_lost() if end == "lost" else hear(side, wire(End()))
    assert len(of(LinkDetached, events)) == 3 and not session.unsettled_in


def test_empty_frames_cost_little_in_a_row_and_one_each_apart() -> None:
    side = limited()
    hear(side, EMPTY_FRAME)
    assert count(side) == EMPTY
    hear(side, b"".join(frame(channel, b"") for channel in range(1_000)))
    assert count(side) == 2 * EMPTY + 999 * 8 // EMPTY_BYTES
    before = count(side)
    hear(side, b"\x00\x00\x00\x0c\x03\x00\x00\x00\xff\xff\xff\xff" * 100)
    assert count(side) - before == 100 * EMPTY, "a longer header makes no run"


@pytest.mark.parametrize("size", [8, 12])
def test_who_sends_empty_frames_alone_has_a_turns_share_of_them(size: int) -> None:
    """What lies behind them is heard when they are through, turn by turn, and lies counted meanwhile."""
    side = limited()
    each = EMPTY_FRAME if size == 8 else b"\x00\x00\x00\x0c\x03\x00\x00\x00\x00\x00\x00\x00"
    one_turn = TURN * EMPTY_BYTES // 8 if size == 8 else TURN
    before = side.held_bytes
    assert hear(side, each * 2 * one_turn + wire(Begin(None, 0, 1, 1), channel=7)) == []
    turns = 0
    events: list[Any] = []
    while side.resumes_at is not None:
        assert side.held_bytes > before
        turns += 1
        events += side.resume(max(NOW, side.resumes_at))
    assert turns == (1 if size == 8 else 2), "a run is one step, and counts as long as it is"
    assert [type(event) for event in events] == [SessionBegun] and side.held_bytes - before < 4_096


def test_messages_are_free_and_parts_are_not() -> None:
    side = limited()
    (event,) = of(LinkAttached, hear(side, wire(Attach("l", 0, False, source=Source(), target=Target("q")))))
    event.link.accept()
    event.link.grant(100)
    side.take_output(NOW)
    hear(side, wire((Transfer(0, 0, b"t"), b"x"), (Transfer(0, 1, b"t"), b"x")))
    assert count(side) == 0
    hear(side, wire((Transfer(0, 2, b"t", more=True), b"x"), (Transfer(0), b"x")))
    assert count(side) == PART


def test_ids_that_are_not_open_cost_a_look_each() -> None:
    side = limited()
    (event,) = of(LinkAttached, hear(side, wire(Attach("l", 0, True, source=Source("q"), target=Target("x")))))
    link: Sender = event.link
    link.accept()
    hear(side, wire(Flow(0, 5_000, 0, 100, 0, 0, 5_000)))
    for number in range(2_000):
        link.send(b"x", context=number)
    side.take_output(NOW)
    far = wire(Disposition(True, 10_000, 2**31, True, Accepted()))
    hear(side, far)
    assert count(side) == MISS + (2 * 2_000 + 1) // 8
    side.take_output(NOW)
    hear(side, wire(Disposition(True, 0, 1_999, True, Accepted())))
    assert count(side) <= MISS, "what is open is free"


def test_a_client_waits_for_nobody() -> None:
    assert Connection(server().settings, server=False, now=NOW)._effort is None


def test_what_waits_goes_on_by_itself_and_silence_meanwhile_is_ours() -> None:
    side = server(effort_per_s=1_000, effort_burst=TURN, idle_time_out_s=0.5)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 100, 100)))
    said(side)
    hear(side, wire(*[ECHO] * 200))
    first = len(said(side, Flow))
    assert 0 < first < 200 and side.resumes_at is not None
    now, answered = NOW, first
    for _ in range(200):
        if side.resumes_at is None:
            break
        now = max(now, side.resumes_at)
        assert tick(side, now) == [] and not side.closed
        side.resume(now)
        answered += len([one for one in side.take_output(now) if one])
    assert answered == 200 and side.resumes_at is None and not side.closed and now > NOW + 1.0


def test_a_burden_from_outside_makes_it_wait() -> None:
    side = limited()
    side.charge_late(50_000, NOW)
    assert side.resumes_at is not None
    assert hear(side, wire(Begin(None, 0, 1, 1), channel=3)) == []
    assert side.resume(side.resumes_at)
    assert side.resumes_at is None or side.resumes_at > NOW


def test_one_answer_to_all_drains_that_wait() -> None:
    """While frames wait for the window a drain's answer waits behind them, once however often it is asked for."""
    side = limited()
    (event,) = of(LinkAttached, hear(side, wire(Attach("l", 0, True, source=Source("q"), target=Target("x")))))
    link: Sender = event.link
    link.accept()
    hear(side, wire(Flow(0, 0, 0, 100, 0, 0, 10)))
    link.send(b"waits", context=1)
    for _ in range(50):
        hear(side, wire(Flow(0, 0, 0, 100, 0, 0, 10, drain=True)))
        link.drained()
    assert len(link.session.backlog) == 2
    side.take_output(NOW)
    hear(side, wire(Flow(0, 100, 0, 100)))
    assert [type(item) for item in said(side)] == [Transfer, Flow] and not link.session.backlog


def test_what_an_ended_session_held_is_counted_no_more() -> None:
    side = limited()
    before = side.terms_bytes
    hear(side, wire(*[Attach(f"l{n}", n, False, source=Source(), target=Target("q")) for n in range(5)]))
    assert side.terms_bytes > before
    hear(side, wire(Detach(0, True)))
    hear(side, wire(End()))
    assert side.terms_bytes == before


def test_settled_events_come_still() -> None:
    side = limited()
    (event,) = of(LinkAttached, hear(side, wire(Attach("l", 0, False, source=Source(), target=Target("q")))))
    event.link.accept()
    event.link.grant(10)
    hear(side, wire((Transfer(0, 0, b"t"), b"x")))
    events: list[Any] = hear(side, wire(Disposition(False, 0, 0, True)))
    assert [type(item) for item in events] == [ReceiverSettled]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("far", [True, False])
def test_one_disposition_of_all_that_a_session_has_open_is_taken_in_steps(far: bool, settled: bool) -> None:
    """Of whatever links: so many in each turn, all of them in order, each once; what comes behind it is heard after."""
    side = limited()
    links: list[Sender] = []
    for handle in range(3):
        attach = Attach(f"l{handle}", handle, True, source=Source("q"), target=Target("x"))
        (event,) = of(LinkAttached, hear(side, wire(attach, Flow(0, 9_000, 0, 100, handle, 0, 5_000))))
        event.link.accept()
        links.append(event.link)
    side.take_output(NOW)
    numbers = range(7_000)
    for number in numbers:
        links[number % 3 if number > 3_000 else 0].send(b"x", context=number)
    side.take_output(NOW)
    first, last = (0, 2**31 - 2) if far else (0, 6_999)
    frame = wire(Disposition(True, first, last, settled, Modified(True)), Begin(None, 0, 1, 1))
    frame = frame[: -len(wire(Begin(None, 0, 1, 1)))] + wire(Begin(None, 0, 1, 1), channel=7)
    events = hear(side, frame)
    steps = [sum(len(event.contexts) for event in of(Outcomes, events))]
    while side.resumes_at is not None:
        assert not of(SessionBegun, events)
        side.take_output(NOW)
        more = side.resume(max(NOW, side.resumes_at))
        steps.append(sum(len(event.contexts) for event in of(Outcomes, more)))
        events += more
    assert max(steps) <= OPEN_MAX and len(steps) >= 3
    heard = of(Outcomes, events)
    assert [number for event in heard for number in event.contexts] == list(numbers)
    assert {(type(event.state), event.settled) for event in heard} == {(Modified, settled)}
    assert type(events[-1]) is SessionBegun and not any(link.unsettled for link in links)
