"""When a client gives up at a node that is there and does nothing for it, and how often it says so."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from client.fake_broker import FakeBroker, Peer, closed_port
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.client import Accepted, Connection, ConnectionFailed, LinkError, connect
from holdfast.client.network.backoff import LOG_CAUSES_MAX, LOG_INTERVAL_S, STOOD_S, LogThrottle, Outage

CAUSE = Error(Symbol("amqp:internal-error"), "a defect")


def close(peer: Peer, link: Any) -> None:
    peer.engine.close(CAUSE)
    peer.flush()


def cut(peer: Peer, link: Any) -> None:
    peer.transport.close()


def detach(peer: Peer, link: Any) -> None:
    link.detach(error=CAUSE)
    peer.flush()


async def send(connection: Connection) -> None:
    await (await connection.sender("q")).send(b"x")


async def send_as_producer(connection: Connection) -> None:
    await (await connection.sender("q", producer="p")).send(b"x")


async def receive(connection: Connection) -> None:
    await anext(await connection.receiver("q"))


async def receive_parts(connection: Connection) -> None:
    await anext(await connection.parts_receiver("q"))


async def ask(connection: Connection) -> None:
    await connection.manage("STATUS", "holdfast:node")


@pytest.mark.parametrize("what", [send, send_as_producer, receive, receive_parts, ask])
@pytest.mark.parametrize("fault", [close, cut, detach])
async def test_a_node_that_opens_and_then_ends_everything_is_given_up(
    fault: Callable[[Peer, Any], None],
    what: Any,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.WARNING)
    waited: dict[Outage, float] = {}
    next_wait_s = Outage.next_wait_s

    def wait_s(outage: Outage) -> float:
        found = next_wait_s(outage)
        waited[outage] = waited.get(outage, 0.0) + found
        return found

    # Only its own waits count as time: how long attempts take beside them is the machine's.
    monkeypatch.setattr(Outage, "next_wait_s", wait_s)
    monkeypatch.setattr(Outage, "down_s", lambda outage, now: waited.get(outage, 0.0))
    broker.after_attach = fault
    broker.hold_outcomes = True
    connection = await connect(broker.url, retry_s=0.6, rng=Random(1))
    with pytest.raises(LinkError if fault is detach else ConnectionFailed) as caught:
        await asyncio.wait_for(what(connection), 20)
    await connection.abort()
    if fault is cut:
        assert "every connection ended at once" in str(caught.value)
    attempts = broker.attaches // (2 if what is ask else 1)
    assert 3 <= attempts <= 12, "waits grow up to the limit"
    assert len([record for record in caplog.records if record.name == "holdfast.client"]) <= 1


async def test_it_is_tried_until_the_time_is_over() -> None:
    """However long the next wait would be: whoever asks for two seconds has a node that starts in the last of them."""
    began = asyncio.get_running_loop().time()
    with closed_port() as port, pytest.raises(ConnectionFailed, match="no connection for 2 s"):
        await connect(f"amqp://127.0.0.1:{port}", retry_s=2.0, rng=Random(1))
    assert 2.0 <= asyncio.get_running_loop().time() - began < 10.0


@pytest.mark.parametrize("fault", [close, detach])
async def test_progress_begins_anew(fault: Callable[[Peer, Any], None], broker: FakeBroker) -> None:
    """A node that takes one message for each connection is slow, and of use."""
    async with await connect(broker.url, retry_s=1, rng=Random(1)) as connection:
        sender = await connection.sender("q")

        def end_after_one(payload: bytes) -> None:
            asyncio.get_running_loop().call_later(0.02, fault, broker.connections[-1], broker.connections[-1].links[-1])

        broker.decide = end_after_one
        for _ in range(20):
            assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()


def test_an_outage_ends_by_progress_or_by_time() -> None:
    outage = Outage(Random(1), since=0.0)
    outage.failed(1.0)
    assert outage.down_s(3.0) == 3, "it counts from its making"
    outage.up(10.0)
    outage.failed(11.0)
    assert outage.down_s(12.0) == 1, "the first time ends it"
    outage.up(12.0)
    outage.failed(12.0 + STOOD_S - 0.1)
    assert outage.down_s(20.0) == 9, "it did not stand"
    outage.up(20.0)
    outage.failed(20.0 + STOOD_S)
    assert outage.down_s(26.0) == 26 - 20 - STOOD_S
    outage.up(26.0)
    outage.gained = True
    outage.failed(26.5)
    assert outage.down_s(27.0) == 0.5 and not outage.gained


async def test_what_a_link_gained_before_its_connection_broke_ends_its_outage(broker: FakeBroker) -> None:
    """Two passing detaches far apart, and a break between them: the second is the first of others."""
    async with await connect(broker.url, retry_s=30, rng=Random(1)) as connection:
        sender = await connection.sender("q")
        broker.detach_all("amqp:internal-error", "a defect")
        assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
        for outage in (sender.outage, connection._outage):  # longer ago than what is waited for without progress
            if outage._since is not None:
                outage._since -= 60
        attaches = broker.attaches
        assert await asyncio.wait_for(sender.send(b"y"), 5) == Accepted()
        broker.hold_outcomes = True
        broker.cut()
        future = await sender.submit(b"z")
        await broker.until(lambda: broker.attaches > attaches)
        broker.detach_all("amqp:internal-error", "a defect")
        broker.release_outcomes()
        assert await asyncio.wait_for(future, 5) == Accepted()


def test_an_outage_ends_by_what_came_before_the_connection_went() -> None:
    for gains in (True, False):
        outage = Outage(Random(1))
        outage.up(0.0)
        outage.failed(1.0)
        outage.up(2.0)
        outage.gained = gains
        outage.interrupted(2.0 + (0.0 if gains else STOOD_S))
        assert outage.down_s(100.0) == 0 and not outage.gained, "it is over, and none has begun"
        outage.up(100.0)
        outage.failed(100.0)
        assert outage.down_s(101.0) == 1
        outage.up(101.0)
        outage.interrupted(101.0 + STOOD_S - 0.1)
        outage.up(110.0)
        outage.interrupted(111.0)
        assert outage.down_s(120.0) == 20, "neither gained nor stood"


def test_the_same_cause_is_told_once_in_a_while() -> None:
    throttle = LogThrottle()
    assert throttle.is_due("a", 0.0) and not throttle.is_due("a", LOG_INTERVAL_S - 1)
    assert throttle.is_due("b", 1.0) and not throttle.is_due("a", 2.0)
    assert throttle.is_due("a", LOG_INTERVAL_S) and not throttle.is_due("b", LOG_INTERVAL_S)
    told = sum(throttle.is_due(str(number), LOG_INTERVAL_S + 1) for number in range(10 * LOG_CAUSES_MAX))
    assert told <= LOG_CAUSES_MAX, "nor do causes that all differ fill a terminal"
