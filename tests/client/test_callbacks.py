"""What a program's `on_outcome` raises: its sender ends, and nothing else."""

import asyncio

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.wire.performatives import Rejected
from holdfast.client import Accepted, Connection, connect


async def test_what_a_callback_raises_ends_its_sender_alone(broker: FakeBroker, connection: Connection) -> None:
    """All outcomes that came with it are told and counted, and nobody waits for what is not to come."""
    broker.decide = lambda bare: Rejected(None) if bare.endswith(b"bad") else None
    broker.hold_outcomes = True
    other, sender = await connection.sender("other"), await connection.sender("q")
    told = []

    def on_outcome(number: int | None, outcome: object) -> None:
        told.append(outcome)
        raise ZeroDivisionError(len(told))

    for _ in range(3):
        await sender.post(b"bad", on_outcome=on_outcome)
    await sender.post(b"good")
    await broker.until(lambda: broker.bodies("q") == [b"good"])
    broker.release_outcomes()
    with pytest.raises(ZeroDivisionError, match="1"):
        await sender.drain()
    with pytest.raises(ZeroDivisionError, match="1"):
        await sender.send(b"next")
    assert len(told) == sender.rejected == 3
    assert await asyncio.wait_for(other.send(b"x"), 5) == Accepted() and connection.reconnects == 0
    with pytest.raises(ZeroDivisionError, match="1"):
        await connection.close()


async def test_a_callback_that_raises_where_the_message_is_too_large(broker: FakeBroker) -> None:
    broker.message_bytes_max = 1_000

    def on_outcome(number: int | None, outcome: object) -> None:
        raise ZeroDivisionError

    connection = await connect(broker.url)
    sender, other = await connection.sender("q"), await connection.sender("other")
    await sender.post(bytes(2_000), on_outcome=on_outcome)
    await sender.post(b"behind")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(sender.drain(), 5)
    assert await other.send(b"x") == Accepted() and connection.reconnects == 0
    with pytest.raises(ZeroDivisionError):
        await connection.close()


async def test_a_callback_that_raises_at_the_last_outcome(broker: FakeBroker, connection: Connection) -> None:
    """Nothing else is in doubt: whoever drains hears of it all the same."""
    broker.decide = lambda bare: Rejected(None)

    def on_outcome(number: int | None, outcome: object) -> None:
        raise ZeroDivisionError

    sender = await connection.sender("q")
    await sender.post(b"bad", on_outcome=on_outcome)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(sender.drain(), 5)
