"""Attaching, refusing, detaching; credit, drain, echo (§2.6)."""

from typing import Any

import pytest

from amqp.joined import NOW, Pair, hear, of, performatives, said, server, wire
from holdfast.amqp.connection import (
    Connection,
    CreditChanged,
    Delivery,
    Drained,
    LinkAttached,
    LinkDetached,
    Receiver,
    Sender,
    SessionEnded,
)
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import (
    Attach,
    Begin,
    Detach,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Source,
    Target,
    Transfer,
)
from holdfast.errors import LocalProtocolError


def begun(**changes: Any) -> Connection:
    side = server(**changes)
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 100, 100)), NOW)
    side.take_output(NOW)
    return side


def attached(side: Connection, *, handle: int = 0, name: str = "l", **changes: Any) -> Receiver:
    """The peer attaches a sender and is accepted."""
    attach = Attach(name, handle, False, source=Source("here"), target=Target("q"), initial_delivery_count=5)
    for field, value in changes.items():
        setattr(attach, field, value)
    (event,) = hear(side, wire(attach), NOW)
    assert isinstance(event, LinkAttached)
    event.link.accept()
    assert isinstance(event.link, Receiver)
    return event.link


@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
def test_an_attach_is_echoed(snd: int, rcv: int) -> None:
    """CLIENTS 13, 14, 17."""
    side = begun()
    source = Source("q", filter={"f": "x"}, default_outcome=Modified(True), outcomes=("amqp:accepted:list",))
    attach = Attach("l", 7, True, snd, rcv, source, Target("me"))
    (event,) = hear(side, wire(attach), NOW)
    event.link.accept()
    (answer,) = said(side)
    assert (answer.name, answer.handle, answer.role) == ("l", 0, False)
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (snd, rcv)
    assert answer.source == source and answer.target == Target("me") and answer.initial_delivery_count == 0
    assert event.link.remote_attach == attach and event.link.attached


def test_a_receivers_answer_names_the_largest_message() -> None:
    side = begun(max_message_size=1000)
    attached(side)
    assert said(side, Attach)[0].max_message_size == 1000


@pytest.mark.parametrize("role", [True, False])
def test_a_refusal_has_a_null_terminus_and_then_a_detach(role: bool) -> None:
    """CLIENTS 15."""
    side = begun()
    (event,) = hear(side, wire(Attach("l", 0, role, source=Source("q"), target=Target("q"))), NOW)
    event.link.refuse("amqp:not-found", "no q here")
    answer, detach = said(side)
    assert (answer.target if not role else answer.source) is None
    assert (answer.source if not role else answer.target) is not None
    assert detach == Detach(0, True, Error("amqp:not-found", "no q here"))
    assert [type(event) for event in hear(side, wire(Detach(0, True)), NOW)] == [LinkDetached]


@pytest.mark.parametrize("kind", ["attach_sender", "attach_receiver"])
def test_our_refused_link(kind: str) -> None:
    pair = Pair()
    link = getattr(pair.session, kind)("l", Source("q"), Target("q"))
    (event,) = of(LinkAttached, pair.pump()[1])
    event.link.refuse("amqp:unauthorized-access", "not you")
    mine, _ = pair.pump()
    assert [type(event) for event in mine] == [LinkAttached, LinkDetached] and link.refused and link.detached
    assert mine[1].error.condition == "amqp:unauthorized-access"
    assert getattr(pair.session, kind)("l", Source("q"), Target("q")).handle == 0


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind(closed: bool) -> None:
    side = begun()
    link = attached(side)
    side.take_output(NOW)
    (event,) = hear(side, wire(Detach(0, closed, Error("a:b"))), NOW)
    assert event == LinkDetached(link, closed, Error("a:b"), [])
    assert said(side) == [Detach(0, closed)]


def test_a_detach_that_crosses_ours() -> None:
    pair = Pair()
    mine, theirs = pair.sender()
    mine.detach()
    theirs.detach(error=Error("amqp:link:detach-forced"))
    client_events, server_events = pair.pump()
    assert [event.error for event in of(LinkDetached, client_events)] == [Error("amqp:link:detach-forced")]
    assert len(of(LinkDetached, server_events)) == 1
    assert pair.session.links == {} and pair.server.sessions[0].links == {}


def test_attach_and_detach_in_one_flight_are_answered_in_order() -> None:
    side = begun()
    events = hear(side, wire(Attach("l", 0, True, source=Source("q")), Detach(0, True)), NOW)
    assert [type(event) for event in events] == [LinkAttached, LinkDetached]
    events[0].link.accept()
    assert [type(value) for value in said(side)] == [Attach, Detach]
    events[0].link.accept()
    events[0].link.detach()
    assert said(side) == []


def test_name_and_handle_are_free_again_at_once() -> None:
    """CLIENTS 37."""
    side = begun()
    for _ in range(3):
        link = attached(side)
        assert link.handle == 0
        hear(side, wire(Detach(0, True)), NOW)


def test_one_name_in_both_directions() -> None:
    side = begun()
    attached(side)
    (event,) = hear(side, wire(Attach("l", 1, True, source=Source("q"))), NOW)
    assert isinstance(event, LinkAttached) and isinstance(event.link, Sender)


def test_a_second_link_of_that_name_takes_the_firsts_place() -> None:
    side = begun()
    first = attached(side)
    side.take_output(NOW)
    events = hear(side, wire(Attach("l", 1, False, target=Target("q"), initial_delivery_count=0)), NOW)
    assert [type(event) for event in events] == [LinkDetached, LinkAttached]
    assert events[0].link is first and events[0].error.condition == "amqp:link:stolen"


def test_our_second_link_of_a_name_is_a_mistake() -> None:
    pair = Pair()
    pair.sender("l")
    with pytest.raises(LocalProtocolError):
        pair.session.attach_sender("l", Source(), Target())


def test_the_bound_on_links() -> None:
    side = begun(links_max=1)
    attached(side)
    side.take_output(NOW)
    assert hear(side, wire(Attach("m", 1, True, source=Source("q"))), NOW) == []
    answer, detach = said(side)
    assert answer.source is None and detach.error.condition == "amqp:resource-limit-exceeded"
    assert hear(side, wire(Detach(1, True), Detach(0, True)), NOW)
    attached(side, name="n")


def test_a_peer_without_handles_for_our_answers() -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 9, 9, handle_max=0)), NOW)
    attached(side)
    events = hear(side, wire(Attach("m", 1, True, source=Source("q"))), NOW)
    assert events[-1].error.condition == "amqp:resource-limit-exceeded" and isinstance(events[-1], SessionEnded)


@pytest.mark.parametrize(("name_bytes", "kinds"), [(300, [Attach, Detach]), (500, [End])])
def test_an_answer_larger_than_the_peers_frames(name_bytes: int, kinds: list[type]) -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("c", max_frame_size=512), Begin(None, 0, 9, 9)), NOW)
    side.take_output(NOW)
    attach = Attach("n" * name_bytes, 0, True, source=Source("q" * 1000))
    (event,) = hear(side, wire(attach), NOW)
    event.link.accept()
    values = said(side)
    assert [type(value) for value in values] == kinds
    assert values[-1].error.condition == "amqp:frame-size-too-small"


def test_an_answer_that_is_as_large_as_the_peers_frames() -> None:
    """Whatever we add to the peer's terms counts: an answer is whole, or says that it is too large."""
    whole_bytes, kinds = [], set()
    for name_bytes in range(300, 420):
        side = server(max_message_size=2**40)
        hear(side, AMQP_HEADER + wire(Open("c", max_frame_size=512), Begin(None, 0, 9, 9)), NOW)
        side.take_output(NOW)
        (event,) = hear(side, wire(Attach("n" * name_bytes, 0, False, initial_delivery_count=0)), NOW)
        event.link.accept(target=Target("q" * 100))
        sent = b"".join(side.take_output(NOW))
        kinds.add(tuple(type(value) for _, value, _ in performatives(sent)))
        if len(kinds) == 1:
            whole_bytes.append(len(sent))
    assert kinds == {(Attach,), (Attach, Detach)} and max(whole_bytes) == 512


def test_an_answer_that_is_too_large_ends_its_own_link_and_no_other() -> None:
    side = server()
    hear(side, AMQP_HEADER + wire(Open("c", max_frame_size=512), Begin(None, 0, 9, 9)), NOW)
    for handle, name_bytes in enumerate((10, 400)):
        attach = Attach("n" * name_bytes, handle, False, initial_delivery_count=0)
        (event,) = hear(side, wire(attach), NOW)
        side.take_output(NOW)
        event.link.accept(target=Target("q" * 100))
    attached, detached = said(side)
    assert (attached.handle, detached.handle) == (1, 1) and detached.error.condition == "amqp:frame-size-too-small"


def test_a_refusal_that_is_as_large_as_the_peers_frames_says_why() -> None:
    for name_bytes in range(250, 420):
        side = server(max_message_size=2**40)
        hear(side, AMQP_HEADER + wire(Open("c", max_frame_size=512), Begin(None, 0, 9, 9)), NOW)
        side.take_output(NOW)
        attach = Attach("n" * name_bytes, 0, False, source=Source("q" * 100), initial_delivery_count=0)
        (event,) = hear(side, wire(attach), NOW)
        event.link.refuse("amqp:not-found", "no such queue")
        attached, detached = said(side)
        assert attached.target is None and detached.error.condition == "amqp:not-found"


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (Attach("m", 0, True), "amqp:session:handle-in-use"),
        (Detach(9, True), "amqp:session:unattached-handle"),
        (Flow(0, 9, 0, 9, 9, 0, 1), "amqp:session:unattached-handle"),
        (Transfer(9, 0, b"0"), "amqp:session:unattached-handle"),
        (Flow(77, 9, 0, 9), "amqp:invalid-field"),
    ],
)
def test_what_ends_the_session_alone(value: Any, condition: str) -> None:
    side = begun()
    attached(side)
    side.take_output(NOW)
    events = hear(side, wire(value), NOW)
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]
    assert events[-1].error.condition == condition and not side.closed
    assert said(side)[0].error.condition == condition
    assert hear(side, wire(Flow(0, 9, 0, 9, 9, 0, 1), End()), NOW) == []
    assert of(SessionEnded, events) and hear(side, wire(Begin(None, 0, 9, 9)), NOW)


# ------------------------------------------------------------------------------------------------- credit


def test_a_flow_sets_credit_absolutely() -> None:
    """CLIENTS 12."""
    side = begun()
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"))), NOW)
    link = event.link
    link.accept()
    for flow_count, flow_credit, sent, expected in [
        (None, 10, 0, 10), (0, 10, 0, 10), (0, 10, 3, 7), (0, 10, 0, 7), (3, 10, 0, 10), (3, 4, 0, 4), (3, 0, 0, 0),
        (3, 50, 0, 50), (0, 2, 0, 0), (2, 2**32 - 1, 0, 2**32 - 2),
    ]:  # fmt: skip
        for _ in range(sent):
            link.send(b"", context=None)
        (event,) = hear(side, wire(Flow(None, 100, 0, 100, 0, flow_count, flow_credit)), NOW)
        assert event == CreditChanged(link) and link.credit == expected


@pytest.mark.parametrize("initial", [0, 4294967290])
def test_counts_wrap(initial: int) -> None:
    pair = Pair()
    mine, theirs = pair.sender(initial_delivery_count=initial)
    for number in range(12):
        theirs.grant(1)
        pair.pump()
        assert mine.credit == 1
        mine.send(b"%d" % number, context=number)
        assert mine.credit == 0
        assert len(of(Delivery, pair.pump()[1])) == 1 and theirs.credit == 0


def test_credit_granted_before_the_answer() -> None:
    pair = Pair()
    mine = pair.session.attach_receiver("l", Source("q"), Target())
    mine.grant(7)
    attach, changed = pair.pump()[1][-2:]
    assert isinstance(attach, LinkAttached) and isinstance(changed, CreditChanged)
    sender = changed.link
    assert (sender.credit, sender.sendable) == (0, False)
    sender.accept(initial_delivery_count=99)
    assert (sender.credit, sender.sendable) == (7, True)
    for _ in range(7):
        sender.send(b"x", context=None)
    assert len(of(Delivery, pair.pump()[0])) == 7 and mine.credit == 0


def test_sending_without_credit_is_a_mistake() -> None:
    pair = Pair()
    mine, theirs = pair.sender()
    with pytest.raises(LocalProtocolError, match="credit"):
        mine.send(b"", context=None)
    fresh = Pair()
    fresh.session.attach_sender("l", Source(), Target("q"))
    (event,) = of(LinkAttached, fresh.pump()[1])
    with pytest.raises(LocalProtocolError, match="accepted"):
        event.link.grant(1)
    assert theirs.credit == 0


def test_a_transfer_without_credit_detaches_the_link() -> None:
    side = begun()
    link = attached(side)
    link.grant(1)
    side.take_output(NOW)
    events = hear(side, wire(Transfer(0, 0, b"0"), Transfer(0, 1, b"1"), Transfer(0, 2, b"2")), NOW)
    assert [type(event) for event in events] == [Delivery, LinkDetached]
    assert said(side)[-1].error.condition == "amqp:link:transfer-limit-exceeded"
    link.settle(0, 2, None)
    link.grant(5)
    assert said(side) == []


def test_credit_taken_back_may_have_been_used() -> None:
    side = begun()
    link = attached(side)
    link.grant(2)
    link.grant(0)
    events = hear(side, wire(Transfer(0, 0, b"0"), Transfer(0, 1, b"1")), NOW)
    assert len(of(Delivery, events)) == 2
    assert of(LinkDetached, hear(side, wire(Transfer(0, 2, b"2")), NOW))


def test_a_transfer_before_our_answer_is_refused_in_order() -> None:
    side = begun()
    attach = Attach("l", 0, False, target=Target("q"), initial_delivery_count=0)
    events = hear(side, wire(attach, Transfer(0, 0, b"0")), NOW)
    assert [type(event) for event in events] == [LinkAttached, LinkDetached]
    events[0].link.accept()
    assert [type(value) for value in said(side)] == [Attach, Detach]


def test_drain_is_answered_with_the_count_moved_on() -> None:
    """CLIENTS 23."""
    pair = Pair()
    mine, theirs = pair.receiver()
    mine.grant(10, drain=True)
    assert pair.pump()[1] == [CreditChanged(theirs)] and theirs.drain and theirs.credit == 10
    theirs.send(b"only", context=None)
    theirs.drained()
    theirs.drained()
    data = b"".join(pair.server.take_output(NOW))
    _, flow = [value for _, value, _ in performatives(data)]
    assert (flow.delivery_count, flow.link_credit, flow.drain, flow.echo) == (10, 0, True, False)
    events = hear(pair.client, data, NOW)
    assert [type(event) for event in events] == [Delivery, Drained] and mine.credit == 0
    mine.grant(3)
    pair.pump()
    assert theirs.credit == 3 and mine.credit == 3 and not theirs.drain


def test_a_drain_without_credit_is_answered_by_itself() -> None:
    """CLIENTS 24."""
    side = begun()
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"))), NOW)
    event.link.accept()
    side.take_output(NOW)
    assert hear(side, wire(Flow(0, 9, 0, 9, 0, 0, 0, drain=True)), NOW) == [CreditChanged(event.link)]
    (flow,) = said(side)
    assert flow.drain and flow.link_credit == 0 and flow.delivery_count == 0


@pytest.mark.parametrize("handle", [None, 0])
def test_an_echo_is_answered_once_without_echo(handle: int | None) -> None:
    """CLIENTS 25."""
    side = begun()
    (event,) = hear(side, wire(Attach("l", 0, True, source=Source("q"))), NOW)
    event.link.accept()
    side.take_output(NOW)
    credit = None if handle is None else 5
    hear(side, wire(Flow(0, 9, 0, 9, handle, None if handle is None else 0, credit, echo=True)), NOW)
    (flow,) = said(side)
    assert not flow.echo and flow.handle == handle and flow.link_credit == credit
    assert flow.next_incoming_id == 0


def test_a_receiver_echoes_too() -> None:
    side = begun()
    attached(side).grant(4)
    side.take_output(NOW)
    hear(side, wire(Flow(0, 9, 0, 9, 0, 5, 4, echo=True)), NOW)
    (flow,) = said(side)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.echo) == (0, 5, 4, False)


def test_ending_a_session_with_links() -> None:
    pair = Pair()
    mine, theirs = pair.sender()
    theirs.grant(3)
    pair.pump()
    mine.send(b"1", context="one")
    mine.send(b"2", context="two", settled=True)
    mine.send(b"3", context="three")
    pair.session.end(Error("a:b", "c"))
    assert mine.credit == 0
    client_events, server_events = pair.pump()
    assert [type(event) for event in client_events] == [LinkDetached, SessionEnded]
    assert client_events[0].unsettled == ["one", "three"]
    assert server_events[-1].error == Error("a:b", "c") and of(LinkDetached, server_events)
    assert pair.client.begin().channel == 0
