"""What two unsettled maps say together: the specification's own example, maps that do not fit a frame, and what
two engines make of them.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import Pair, of, wire
from holdfast.amqp.connection import Delivery, LinkAttached, LinkDetached, Receiver, Sender
from holdfast.amqp.links.resuming import START, ResumeAction, Step, compare, content, fit
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import ResumeAborted
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.errors import LocalProtocolError, RemoteProtocolError


def tags(states: dict[int, Any]) -> dict[bytes, Any]:
    return {bytes((number,)): state for number, state in states.items()}


# AMQP 1.0 §2.6.13, the example of two attaches and what follows for each tag.
SENDERS = tags(
    {1: None, 2: None, 3: None, 4: None}
    | {number: Received(3, 0) for number in (5, 6, 7, 8, 9)}
    | {number: Accepted() for number in (10, 11, 12, 13, 14)}
)
RECEIVERS = tags(
    {
        2: Received(2, 0), 3: Accepted(), 4: None, 6: Received(3, 0), 7: Received(2, 0), 8: Accepted(), 9: None,
        11: Received(1, 0), 12: Accepted(), 13: Released(), 14: None,
    }
)  # fmt: skip
EXAMPLE: dict[int, tuple[ResumeAction, Any]] = {
    1: (ResumeAction.RESEND, None),
    2: (ResumeAction.RESUME, Received(2, 0)),
    3: (ResumeAction.SETTLE, Accepted()),
    4: (ResumeAction.RESUME, START),
    5: (ResumeAction.RESEND, None),
    6: (ResumeAction.RESUME, Received(3, 0)),
    7: (ResumeAction.ABORT, None),
    8: (ResumeAction.SETTLE, Accepted()),
    9: (ResumeAction.ABORT, None),
    10: (ResumeAction.FORGET, None),
    11: (ResumeAction.ABORT, None),
    12: (ResumeAction.SETTLE, Accepted()),
    13: (ResumeAction.RESTATE, Accepted()),
    14: (ResumeAction.ABORT, None),
}


def test_the_specifications_example() -> None:
    wanted = [Step(bytes((number,)), *what) for number, what in EXAMPLE.items()]
    assert compare(role=False, mine=SENDERS, theirs=RECEIVERS) == wanted


def test_the_receiver_of_the_example_waits_for_what_the_sender_has_too() -> None:
    mine = RECEIVERS | tags({15: None, 16: Accepted()})
    wanted = [Step(tag, ResumeAction.AWAIT if tag in SENDERS else ResumeAction.FORGET, None) for tag in mine]
    assert compare(role=True, mine=mine, theirs=SENDERS) == wanted


@pytest.mark.parametrize("role", [False, True])
def test_an_incomplete_map_says_nothing_of_what_it_does_not_have(role: bool) -> None:
    steps = compare(role=role, mine=SENDERS, theirs={}, incomplete=True)
    assert steps == [Step(tag, ResumeAction.AWAIT, None) for tag in SENDERS]


@pytest.mark.parametrize("outcome", [Rejected(), Released(), Modified(True)])
def test_any_outcome_of_the_receivers_is_taken_over(outcome: Any) -> None:
    assert compare(role=False, mine={b"a": None}, theirs={b"a": outcome}) == [Step(b"a", ResumeAction.SETTLE, outcome)]


def test_a_transactions_state_tells_nothing() -> None:
    open_ended = TransactionalState(b"t", Accepted())
    assert compare(role=False, mine={b"a": open_ended}, theirs={b"a": open_ended}) == [
        Step(b"a", ResumeAction.RESUME, START)
    ]


# ---------------------------------------------------------------------------------------------------- frames

STATES = st.sampled_from([None, Accepted(), Received(2, 9), Modified(True, False, {"x": 1}), Rejected()])
MAPS = st.dictionaries(st.binary(max_size=32), STATES, max_size=60)


def attach(unsettled: dict[bytes, Any] | None) -> Attach:
    return Attach("name", 0, False, source=Source("a"), target=Target("b"), unsettled=unsettled)


@given(MAPS)
def test_a_map_comes_back_as_it_went(unsettled: dict[bytes, Any]) -> None:
    assert decode_composite(encoding.encode(attach(unsettled)))[0].unsettled == unsettled


@given(MAPS, st.integers(100, 2_000))
def test_a_map_is_cut_to_the_frame_and_says_so(unsettled: dict[bytes, Any], limit: int) -> None:
    cut = attach(dict(unsettled))
    fit(cut, limit)
    assert len(encoding.encode(cut)) <= limit
    assert cut.unsettled is not None
    assert list(cut.unsettled.items()) == list(unsettled.items())[: len(cut.unsettled)]
    assert cut.incomplete_unsettled == (len(cut.unsettled) < len(unsettled))


def test_a_map_at_the_bound_is_whole_and_one_byte_less_cuts_it() -> None:
    whole = attach({bytes((number,)) * 4: None for number in range(40)})
    size = len(encoding.encode(whole))
    fit(whole, size)
    assert whole.unsettled is not None and len(whole.unsettled) == 40 and not whole.incomplete_unsettled
    fit(whole, size - 1)
    assert len(whole.unsettled) < 40 and whole.incomplete_unsettled


def test_no_map_stays_none() -> None:
    nothing = attach(None)
    fit(nothing, 10)
    assert nothing.unsettled is None and not nothing.incomplete_unsettled


@pytest.mark.parametrize("key", [None, "text", b"x" * 33])
def test_a_map_with_a_key_that_is_no_tag_is_refused(key: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="unsettled of attach"):
        decode_composite(encoding.encode(attach({key: None})))


# ---------------------------------------------------------------------------------------------------- content


def test_nothing_goes_again_to_who_has_every_section() -> None:
    payload = Message(message_annotations={"x": 1}, data=[b"one", b"two"]).encode()
    assert content(Received(3, 0), payload) == (b"", Received(3, 0))
    for less in (Received(2, 5), Received(0, 0), None):
        assert content(less, payload) == (payload, START)
    assert content(Received(1, 0), b"no message") == (b"no message", START)


# ---------------------------------------------------------------------------------------------------- engines


def attached(
    pair: Pair, mine: dict[bytes, Any] | None, theirs: dict[bytes, Any] | None, *, next_tag: int = 0
) -> tuple[Sender, Receiver]:
    """A link of the client's that resumes, and the server's end."""
    offset = pair.session.tag_offset(next_tag)
    sender = pair.session.attach_sender("to", Source("here"), Target("q"), unsettled=mine)
    sender.use_tags(offset)
    receiver = of(LinkAttached, pair.pump()[1])[0].link
    receiver.accept(unsettled=theirs)
    receiver.grant(20)
    pair.pump()
    return sender, receiver


def test_tags_go_on_over_sessions_and_resumed_deliveries_keep_theirs() -> None:
    pair = Pair()
    sender, receiver = attached(pair, None, None)
    assert not sender.resumes and not receiver.resumes
    for body in ("a", "b", "c"):
        sender.send(body.encode(), context=body)
    pair.pump()
    receiver.settle(1, 1, Accepted())
    pair.pump()
    sender.detach(closed=False)
    (gone,) = of(LinkDetached, pair.pump()[0])
    assert not gone.closed and gone.unsettled == ["a", "c"]
    assert sender.suspended == {bytes(4): "a", b"\0\0\0\2": "c"}
    again, theirs = attached(pair, dict.fromkeys(sender.suspended), {bytes(4): None}, next_tag=sender.next_tag)
    assert again.resumes and theirs.resumes and not again.resumes_only
    again.resume(bytes(4), b"a", context="a", state=START)
    again.send(b"d", context="d")
    deliveries = of(Delivery, pair.pump()[1])
    assert [(item.tag, item.resume, item.state, item.payload) for item in deliveries] == [
        (bytes(4), True, START, b"a"), (b"\0\0\0\4", False, None, b"d"),
    ]  # fmt: skip
    assert again.unsettled_tags() == {bytes(4): "a", b"\0\0\0\4": "d"}


def test_tags_do_not_come_twice_though_waiting_deliveries_move_up() -> None:
    pair = Pair(server_settings={"incoming_window": 2})
    first, its_end = pair.sender("first")
    its_end.grant(20)
    pair.pump()
    for number in range(9):
        first.send(b"x", context=number)
    assert pair.session.backlog
    sender = pair.session.attach_sender("to", Source("here"), Target("q"))
    sender.use_tags(pair.session.tag_offset(100))
    first.detach()
    receiver = of(LinkAttached, pair.pump()[1])[0].link
    receiver.accept()
    receiver.grant(20)
    pair.pump()
    sender.send(b"y", context="y")
    (tag,) = sender.unsettled_tags()
    assert int.from_bytes(tag) >= 100


def test_an_abort_of_a_resumed_delivery_is_told_and_a_settled_one_has_no_content() -> None:
    pair = Pair()
    sender, receiver = attached(pair, {b"x": None, b"y": None}, {b"x": None, b"y": Accepted()})
    sender.resume(b"x", context="x", state=None, aborted=True)
    sender.resume(b"y", context="y", state=Accepted(), settled=True)
    told = pair.pump()[1]
    assert of(ResumeAborted, told) == [ResumeAborted(receiver, b"x")]
    (delivery,) = of(Delivery, told)
    assert (delivery.tag, delivery.settled, delivery.state, delivery.payload) == (b"y", True, Accepted(), b"")
    assert not sender.unsettled


def test_a_resumed_delivery_in_many_frames_is_aborted_and_told() -> None:
    pair = Pair()
    _, receiver = attached(pair, {b"x": None}, {b"x": None})
    frames = wire(
        (Transfer(0, 0, b"x", 0, False, more=True, state=START, resume=True), b"part"),
        Transfer(0, aborted=True),
    )
    assert pair.server.receive(frames, 100.0) == [ResumeAborted(receiver, b"x")]


# ------------------------------------------------------------------------------------------- incomplete maps


def test_after_an_incomplete_map_only_resumed_deliveries_go() -> None:
    mine: dict[bytes, Any] = {bytes((number,)) * 32: None for number in range(60)}
    pair = Pair({"max_frame_size": 1024}, {"max_frame_size": 1024})
    sender, receiver = attached(pair, mine, {})
    assert sender.resumes_only and receiver.resumes_only
    assert (sender.credit, sender.resume_credit) == (0, 20)
    with pytest.raises(LocalProtocolError, match="no credit"):
        sender.send(b"new", context="new")
    sender.resume(bytes(32), b"again", context="again", state=START)
    (delivery,) = of(Delivery, pair.pump()[1])
    assert delivery.resume


def test_who_told_an_incomplete_map_takes_no_new_deliveries() -> None:
    """§2.7.3: it MUST detach with an error."""
    pair = Pair({"max_frame_size": 1024}, {"max_frame_size": 1024})
    asked: dict[bytes, Any] = {b"x": None}
    _, receiver = attached(pair, asked, {bytes((number,)) * 32: None for number in range(60)})
    assert receiver.local_attach is not None and receiver.local_attach.incomplete_unsettled
    resumed = wire((Transfer(0, 0, b"x", 0, False, state=START, resume=True), b"old"))
    assert len(of(Delivery, list(pair.server.receive(resumed, 100.0)))) == 1
    told = pair.server.receive(wire((Transfer(0, 1, b"z", 0, False), b"new")), 100.0)
    (gone,) = of(LinkDetached, list(told))
    assert gone.error is not None and gone.error.condition == "amqp:not-allowed"


def test_resumed_deliveries_use_credit_too() -> None:
    pair = Pair()
    sender, receiver = attached(pair, {b"x": None}, {b"x": None})
    for _ in range(20):
        sender.resume(b"x", context="x", state=None, aborted=True)
    with pytest.raises(LocalProtocolError, match="no credit"):
        sender.resume(b"x", context="x", state=None, aborted=True)
    pair.pump()
    told = pair.server.receive(wire(Transfer(0, 20, b"x", resume=True, aborted=True)), 100.0)
    (gone,) = of(LinkDetached, list(told))
    assert gone.error is not None and gone.error.condition == "amqp:link:transfer-limit-exceeded"
    assert receiver.detached
