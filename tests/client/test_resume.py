"""The client's links resumed from both unsettled maps: at a broker that keeps maps, and at one that does not."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amqp.joined import Pair, of
from client import fake_broker
from client.fake_broker import FakeBroker
from holdfast.amqp.connection import LinkAttached, Receiver
from holdfast.amqp.wire.performatives import Accepted, Received, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.client import Connection, connect
from holdfast.client import Rejected as RejectedOutcome
from holdfast.client.resume import ReceivingState, SendingState, timeout_s
from support.process import NodeProcess


def bodies(*numbers: int) -> list[bytes]:
    return [f"message {number}".encode() for number in numbers]


async def in_doubt(broker: FakeBroker, connection: Connection, count: int, **options: Any) -> Any:
    """A sender of which the broker has `count` messages without having said so."""
    sender = await connection.sender("q", **options)
    broker.hold_outcomes = True
    for body in bodies(*range(count)):
        await sender.post(body)
    await broker.until(lambda: len(broker.bodies("q")) == count)
    return sender


async def test_what_the_broker_has_is_not_sent_again(broker: FakeBroker, connection: Connection) -> None:
    broker.keeps_maps = True
    sender = await in_doubt(broker, connection, 3)
    broker.cut()
    broker.hold_outcomes = False
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(0, 1, 2)
    assert sender.accepted == 3
    await broker.until(lambda: len(broker.resumed) == 3)  # it is told that we know
    assert all(item.settled and item.state == Accepted() and not item.payload for item in broker.resumed)


async def test_what_the_broker_has_not_is_sent_again(broker: FakeBroker, connection: Connection) -> None:
    broker.keeps_maps = True
    sender = await in_doubt(broker, connection, 4)
    for name, tag in list(broker.tags)[2:]:
        del broker.tags[name, tag]  # as if they had never come
    broker.cut()
    broker.hold_outcomes = False
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(0, 1, 2, 3, 2, 3)
    assert sender.accepted == 4


@pytest.mark.parametrize("credit", [2, 500])
async def test_bodies_in_parts_go_again_in_their_order(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch, credit: int
) -> None:
    monkeypatch.setattr(fake_broker, "CREDIT", credit)  # with less than there are it takes several turns
    broker.keeps_maps = True
    sender = await connection.sender("q")
    broker.hold_outcomes = True
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for body in bodies(*range(4)):
            tasks.create_task(sender.send_parts(partial(list, [body])))
        await broker.until(lambda: len(broker.bodies("q")) == 4)
        broker.tags = dict.fromkeys(broker.tags, Received(0, 0))  # as if they had begun to come
        broker.cut()
        broker.hold_outcomes = False
    assert broker.bodies("q") == bodies(0, 1, 2, 3) * 2


async def test_a_rejection_that_was_not_heard_is_heard_at_the_attach(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.keeps_maps = True
    broker.decide = lambda payload: Rejected()
    sender = await connection.sender("q")
    broker.hold_outcomes = True
    future = await sender.submit(b"x")
    await broker.until(lambda: len(broker.tags) == 1)
    broker.cut()
    assert isinstance(await asyncio.wait_for(future, 5), RejectedOutcome)


async def test_tags_are_not_used_twice_over_breaks(broker: FakeBroker, connection: Connection) -> None:
    broker.keeps_maps = True
    sender = await connection.sender("q")
    for number in range(4):
        broker.hold_outcomes = number % 2 == 0
        await sender.post(b"x")
        await broker.until(lambda: len(broker.bodies("q")) == number + 1)  # noqa: B023  # awaited in this round
        broker.cut()
        broker.hold_outcomes = False
        await asyncio.wait_for(sender.drain(), 5)
    assert len(broker.tags) == 4 and len(broker.bodies("q")) == 4


async def test_a_refused_attach_forgets_nothing(broker: FakeBroker, connection: Connection) -> None:
    """The node has no room for the link just now: what is in doubt stays so until it has, and is not sent as new."""
    broker.keeps_maps = True
    sender = await in_doubt(broker, connection, 2)
    broker.refuse = ("amqp:resource-limit-exceeded", "memory is used up")
    attaches = broker.attaches
    broker.cut()
    await broker.until(lambda: broker.attaches > attaches)
    broker.refuse = None
    broker.release_outcomes()
    await asyncio.wait_for(sender.drain(), 10)
    assert broker.bodies("q") == bodies(0, 1) and sender.accepted == 2


@pytest.mark.parametrize("frame_size", [512, 65536])
async def test_a_link_that_the_broker_closed_is_resumed(broker: FakeBroker, frame_size: int) -> None:
    """As an operator closes one: the broker may still know what it has not said. It may be in several rounds."""
    broker.keeps_maps, broker.frame_size = True, frame_size
    async with await connect(broker.url) as connection:
        sender = await in_doubt(broker, connection, 60)
        broker.hold_outcomes = False
        broker.detach_all("amqp:link:detach-forced", "closed by an operator")
        await asyncio.wait_for(sender.drain(), 10)
        assert broker.bodies("q") == bodies(*range(60)) and sender.accepted == 60


async def test_what_a_broker_without_maps_had_as_it_closed_the_link_goes_again(
    broker: FakeBroker, connection: Connection
) -> None:
    sender = await in_doubt(broker, connection, 3)
    broker.hold_outcomes = False
    broker.detach_all("amqp:link:detach-forced", "closed by an operator")
    await asyncio.wait_for(sender.drain(), 10)
    assert broker.bodies("q") == bodies(0, 1, 2) * 2 and sender.accepted == 3


@pytest.mark.parametrize("frame_size", [512, 1024])
async def test_a_map_that_fits_no_frame_goes_in_rounds(frame_size: int, broker: FakeBroker) -> None:
    broker.keeps_maps, broker.frame_size = True, frame_size
    async with await connect(broker.url) as connection:
        sender = await in_doubt(broker, connection, 400)
        attaches = broker.attaches
        broker.cut()
        broker.hold_outcomes = False
        await asyncio.wait_for(sender.drain(), 20)
        assert broker.bodies("q") == bodies(*range(400))
        assert broker.attaches - attaches > 2


async def test_a_second_break_that_leaves_as_many_doubles_nothing(broker: FakeBroker) -> None:
    """Its rounds are not those of the first, after which as many were left: they settle something."""
    broker.keeps_maps, broker.frame_size = True, 512
    async with await connect(broker.url) as connection:
        sender = await in_doubt(broker, connection, 60)
        for sent in (60, 120, 180):
            broker.hold_outcomes = False
            broker.cut()
            await asyncio.wait_for(sender.drain(), 20)
            assert broker.bodies("q") == bodies(*range(sent))
            broker.hold_outcomes = True
            for body in bodies(*range(sent, sent + 60)):
                await sender.post(body)
            await broker.until(lambda: len(broker.bodies("q")) >= sent + 60)  # noqa: B023
        broker.release_outcomes()
        await asyncio.wait_for(sender.drain(), 20)


async def test_a_break_while_a_round_ends_begins_another(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker goes as it hears the detach that ends a round: it never answers that."""
    cut: list[bool] = []
    next_round = SendingState.next_round

    def cut_off(state: SendingState[Any]) -> None:
        next_round(state)
        if not cut:
            cut.append(True)
            broker.cut()

    monkeypatch.setattr(SendingState, "next_round", cut_off)
    broker.keeps_maps, broker.frame_size = True, 512
    async with await connect(broker.url) as connection:
        sender = await in_doubt(broker, connection, 400)
        broker.cut()
        broker.hold_outcomes = False
        await asyncio.wait_for(sender.drain(), 20)
        assert cut and broker.bodies("q") == bodies(*range(400))


@pytest.mark.parametrize("kind", [SendingState, ReceivingState])
def test_a_link_that_is_lost_waits_for_no_answer_to_its_detach(kind: Any) -> None:
    """Else the next link's detach would be taken for that answer, and what it says for nothing."""
    state = kind()
    state.next_round()
    state.suspend(*([Pair().session.attach_sender("s", Source("x"), Target("q"))] if kind is SendingState else []))
    assert not state.begins_round()


async def test_rounds_that_settle_nothing_end(broker: FakeBroker) -> None:
    broker.keeps_maps, broker.frame_size = True, 512
    async with await connect(broker.url) as connection:
        sender = await in_doubt(broker, connection, 300)
        for name, tag in list(broker.tags):
            del broker.tags[name, tag]
        broker.cut()
        broker.hold_outcomes = False
        await asyncio.wait_for(sender.drain(), 20)
        assert sorted(broker.bodies("q")) == sorted(bodies(*range(300)) * 2)


async def test_a_sender_that_will_not_reconnect_asks_for_nothing(broker: FakeBroker) -> None:
    async with await connect(broker.url, retry_s=0) as connection:
        await connection.sender("q")
        (link,) = broker.connections[0].links
        assert link.remote_attach.target.timeout == 0 and link.remote_attach.properties is None


async def test_what_a_sender_and_a_receiver_ask_for(broker: FakeBroker, connection: Connection) -> None:
    await connection.sender("q")
    await connection.receiver("q")
    await connection.receiver("q", resume_s=2.5)
    sender, plain, resuming = broker.connections[0].links
    assert (sender.remote_attach.target.timeout, sender.remote_attach.target.durable) == (10, 2)
    assert Symbol("holdfast:tag-offset") in sender.remote_attach.properties
    assert (plain.remote_attach.source.timeout, resuming.remote_attach.source.timeout) == (0, 3)


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 0), (0.1, 1), (10.0, 10), (float("inf"), 2**32 - 1)])
def test_timeouts_are_whole_seconds(seconds: float, asked: int) -> None:
    assert timeout_s(seconds) == asked


# ------------------------------------------------------------------------------------------------- receiving


def link(pair: Pair, mine: Any, theirs: Any) -> Receiver:
    receiver = pair.session.attach_receiver("from", Source("q"), Target("here"), unsettled=mine)
    of(LinkAttached, pair.pump()[1])[0].link.accept(unsettled=theirs)
    pair.pump()
    return receiver


def test_an_outcome_is_kept_until_credit_granted_after_it_was_used() -> None:
    state: ReceivingState[bytes] = ReceivingState()
    receiver = link(Pair(), None, None)
    state.answered(receiver)
    receiver.grant(2)
    for tag in (b"a", b"b"):
        state.took(tag, tag)
        receiver.credit -= 1
    state.settled(b"a", Accepted())
    state.granting(receiver)
    receiver.grant(2)
    state.settled(b"b", Accepted())
    assert list(state.said) == [b"a", b"b"]
    state.took(b"c", b"c")  # sent on what was granted with the word on `a`
    assert list(state.said) == [b"b"]


def test_a_map_tells_outcomes_first_and_that_what_is_held_is_whole() -> None:
    state: ReceivingState[bytes] = ReceivingState()
    assert state.map(lambda item: item) is None
    state.answered(link(Pair(), None, None))
    for tag, payload in ((b"a", b"\x00\x53\x75\xa0\x01x"), (b"b", b""), (b"c", b"no message")):
        state.took(tag, payload)
    state.settled(b"b", Accepted())
    assert list((state.map(lambda item: item) or {}).items()) == [
        (b"b", Accepted()), (b"a", Received(1, 0)), (b"c", None),
    ]  # fmt: skip


def test_what_the_sender_does_not_have_is_settled_by_it() -> None:
    state: ReceivingState[bytes] = ReceivingState()
    state.answered(link(Pair(), None, None))
    for tag in (b"a", b"b", b"c"):
        state.took(tag, tag)
    state.settled(b"c", Accepted())
    assert state.answered(link(Pair(), {b"a": None, b"b": None, b"c": Accepted()}, {b"b": None}))
    assert (list(state.open), list(state.said), state.awaited) == ([b"b"], [], {b"b"})
    assert state.resumed(b"b", settled=False) == (b"b", None)
    state.aborted(b"b")
    assert not state.open and not state.awaited


def test_a_peer_that_answers_without_a_map_keeps_nothing() -> None:
    state: ReceivingState[bytes] = ReceivingState()
    state.answered(link(Pair(), None, None))
    state.took(b"a", b"a")
    assert not state.answered(link(Pair(), {b"a": None}, None))
    assert state.map(lambda item: item) == {}


def cut_map(count: int) -> tuple[ReceivingState[bytes], Receiver, list[bytes]]:
    """A receiver that holds so many, of which the frame of its attach told some; the sender has them all."""
    state: ReceivingState[bytes] = ReceivingState()
    state.answered(link(Pair(), None, None))
    for number in range(count):
        state.took(number.to_bytes(4), b"")
    pair = Pair({"max_frame_size": 512}, {"max_frame_size": 512})
    mine = state.map(lambda item: item)
    assert mine is not None and len(mine) == count
    receiver = link(pair, mine, dict.fromkeys(mine))
    assert receiver.resumes_only and receiver.local_attach is not None
    assert state.answered(receiver)
    told = list(receiver.local_attach.unsettled or {})
    assert 0 < len(told) < count
    for tag in list(state.awaited):
        assert state.resumed(tag, settled=False) == (b"", None)
    return state, receiver, told


def test_what_a_program_holds_beyond_a_frame_stays_its_own() -> None:
    """No round begins that would tell the same again, and nothing is given up."""
    state, receiver, told = cut_map(100)
    assert not state.round_over(receiver) and len(state.open) == 100
    state.settled(told[0], Accepted())
    assert state.round_over(receiver)
    state.next_round()
    assert not state.round_over(receiver) and state.begins_round()
    again = state.map(lambda item: item)
    assert again is not None and len(again) == 99 and told[0] not in again  # its outcome was heard


def test_an_outcome_that_a_cut_map_left_out_is_told_in_the_next() -> None:
    state, receiver, told = cut_map(100)
    untold = next(tag for tag in state.open if tag not in told)
    state.settled(untold, Accepted())
    state.granting(receiver)
    state.count()  # a delivery came on credit that was granted later: that says nothing of what this link did not tell
    assert list(state.said) == [untold]
    state.next_round()
    assert state.begins_round() and list(state.said) == [untold]
    again = state.map(lambda item: item)
    assert again is not None and next(iter(again)) == untold


def test_a_peer_whose_own_map_stays_cut_is_given_up() -> None:
    state: ReceivingState[bytes] = ReceivingState()
    state.answered(link(Pair(), None, None))
    state.took(b"a", b"")
    state.attached = state.partial = True
    state.next_round()
    assert state.begins_round() and list(state.map(lambda item: item) or ()) == [b"a"]
    state.next_round()
    assert state.map(lambda item: item) is None


def test_a_receivers_rounds_after_the_next_break_count_anew() -> None:
    """They are not those of the first, though as many are left."""
    state: ReceivingState[bytes] = ReceivingState()
    for _ in range(2):
        state.answered(link(Pair(), {}, {}))
        for number in range(100):
            state.took(number.to_bytes(4), b"")
        pair = Pair({"max_frame_size": 512}, {"max_frame_size": 512})
        state.answered(link(pair, state.map(lambda item: item), {}))
        state.settled(next(iter(state.open)), Accepted())
        state.next_round()
        again = state.map(lambda item: item)
        assert again is not None and 0 < len(again) < 100
        state.answered(link(Pair(), again, {}))
        assert state.attached and not state.partial and not state.open


@pytest.mark.parametrize("decides", ["before the break", "after it", "never"])
async def test_what_a_resumed_receiver_holds_comes_to_no_other(decides: str, tmp_path: Path) -> None:
    """At a node whose frames are so small that the map of what it holds takes many rounds."""
    config = tmp_path / "node.toml"
    config.write_text('[limits]\nframe_bytes_max = 512\n[[queue]]\nname = "q"\n')
    async with (
        await NodeProcess.start(tmp_path / "data", name="t", config=config) as node,
        await connect(node.url) as sends,
        await connect(node.url, retry_s=60) as connection,
    ):
        sender = await sends.sender("q")
        for body in bodies(*range(200)):
            await sender.post(body)
        await sender.drain()
        receiver = await connection.receiver("q", credit=400, resume_s=60)
        held = [await anext(receiver) for _ in range(200)]
        if decides == "before the break":
            for delivery in held:
                delivery.accept()
        assert connection._wire is not None and connection._wire._transport is not None
        connection._wire._transport.abort()
        other = await sends.receiver("q", credit=400)
        if decides == "after it":
            await asyncio.sleep(0.5)
            for delivery in held:
                delivery.accept()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await anext(other)
        await sender.post(b"last")
        assert (await anext(other)).message.body_bytes() == b"last"


class Item:
    """A message in doubt."""

    key = 1

    def whole(self) -> bytes:
        return b""


def test_a_break_ends_no_round_of_a_sender() -> None:
    """What a round settled that a break ended nobody knows; to take it for nothing would double what is in doubt."""
    state: SendingState[Item] = SendingState()
    state.attached = state.partial = True
    state.held = {b"a": Item()}
    for _ in range(3):
        assert state.map({1}) == {b"a": None}
    state.next_round()
    assert state.map({1}) == {b"a": None}
    state.next_round()
    assert state.map({1}) is None
