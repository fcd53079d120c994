"""Requests around breaks: each is carried out once at most (docs/client.md, "Requests and replies")."""

import asyncio
from typing import Any

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Rejected as RejectedState
from holdfast.client import Connection, NoReply, NotAccepted

LIMIT_S = 10.0


def replied(broker: FakeBroker, body: str) -> None:
    """The service answers the latest request."""
    asked = Message.decode(broker.queue("prices").appended[-1].bare).properties
    assert asked is not None and isinstance(asked.reply_to, str)
    properties = asked.__class__(correlation_id=asked.message_id)
    broker.append(asked.reply_to, Message(properties=properties, value=body).encode())
    broker.offer()


def asking(connection: Connection, body: str, limit_s: float = 60.0) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(connection.request("prices", body, limit_s=limit_s))


async def arrived(broker: FakeBroker, count: int) -> None:
    await broker.until(lambda: len(broker.queue("prices").appended) == count)


async def used(broker: FakeBroker, connection: Connection) -> None:
    """The connection has its links for requests to `prices` and their replies."""
    first = asking(connection, "first")
    await arrived(broker, 1)
    replied(broker, "answer")
    assert (await asyncio.wait_for(first, LIMIT_S)).body == "answer"


@pytest.mark.parametrize("keeps_maps", [False, True])
async def test_a_request_whose_outcome_a_break_took_is_not_sent_again(
    broker: FakeBroker, connection: Connection, keeps_maps: bool
) -> None:
    """Also at a node that has forgotten the link, as one that was started again has."""
    await used(broker, connection)
    broker.keeps_maps, broker.hold_outcomes = keeps_maps, True
    pending = asking(connection, "one")
    await arrived(broker, 2)
    await broker.stop()
    with pytest.raises(NoReply, match="broke before the reply came; the request may have been carried out"):
        await asyncio.wait_for(pending, 1.0)  # not only at the next connection
    broker.hold_outcomes = False
    broker.tags.clear()
    await broker.listen()
    second = asking(connection, "two")
    await arrived(broker, 3)
    replied(broker, "answer")
    assert (await asyncio.wait_for(second, LIMIT_S)).body == "answer"
    assert [Message.decode(entry.bare).value for entry in broker.queue("prices").appended] == ["first", "one", "two"]
    await asyncio.wait_for(connection.close(), LIMIT_S)  # nothing is in doubt


async def test_a_link_that_ends_alone_does_not_send_a_request_again(broker: FakeBroker, connection: Connection) -> None:
    await used(broker, connection)
    broker.hold_outcomes = True
    pending = asking(connection, "one")
    await arrived(broker, 2)
    broker.detach_all("amqp:link:detach-forced")
    with pytest.raises(NoReply, match="may have been carried out"):
        await asyncio.wait_for(pending, LIMIT_S)
    broker.hold_outcomes = False
    second = asking(connection, "two")
    await arrived(broker, 3)
    second.cancel()
    assert [Message.decode(entry.bare).value for entry in broker.queue("prices").appended] == ["first", "one", "two"]


async def test_a_request_that_was_given_up_before_it_left_never_leaves(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await used(broker, connection)
    await broker.stop()
    async with asyncio.timeout(LIMIT_S):
        for _ in iter(lambda: connection.is_open, False):
            await asyncio.sleep(0)
    with pytest.raises(NoReply, match=r"no reply came within 0\.1 s"):
        await asking(connection, "while there is no node", limit_s=0.1)
    await broker.listen()
    async with asyncio.timeout(LIMIT_S):
        sender = await connection.sender("other")
        await sender.send("x")
        (own,) = [await making for making in connection._conversation._senders.values()]
        with monkeypatch.context() as patch:
            patch.setattr(type(own), "turn_ended", lambda self, *, paused: None)  # as without credit
            with pytest.raises(NoReply, match=r"no reply came within 0\.1 s"):
                await asking(connection, "without credit", limit_s=0.1)
        assert own.in_doubt == 0
        third = asking(connection, "third")
        await arrived(broker, 2)
        replied(broker, "answer")
        assert (await third).body == "answer"
    assert [Message.decode(entry.bare).value for entry in broker.queue("prices").appended] == ["first", "third"]


async def test_a_reply_may_come_before_the_outcome(broker: FakeBroker, connection: Connection) -> None:
    await used(broker, connection)
    broker.hold_outcomes = True
    pending = asking(connection, "one")
    await arrived(broker, 2)
    replied(broker, "early")
    assert (await asyncio.wait_for(pending, LIMIT_S)).body == "early"
    broker.release_outcomes()
    await asyncio.wait_for(connection.close(), LIMIT_S)


async def test_a_request_that_is_refused_says_so(broker: FakeBroker, connection: Connection) -> None:
    broker.decide = lambda payload: RejectedState()
    with pytest.raises(NotAccepted, match=r"^request to 'prices': the node rejected the message"):
        await asyncio.wait_for(asking(connection, "one"), LIMIT_S)
