"""`close` of a connection: its senders first, all at once; then its receivers, all at once."""

import asyncio

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.wire.performatives import Rejected
from holdfast.client import Connection
from holdfast.client.link import CLOSE_LIMIT_S
from support.eventually import eventually_async

RECEIVERS = 50


async def test_receivers_end_at_once_and_not_one_after_the_other(broker: FakeBroker, connection: Connection) -> None:
    consumers = [await connection.receiver(f"q{number}") for number in range(RECEIVERS)]
    browsers = [await connection.receiver(f"q{number}", browse=True) for number in range(RECEIVERS)]
    broker.connections[0].transport.pause_reading()
    closing = asyncio.ensure_future(connection.close())

    async def all_wait() -> bool:
        return all(link._drained for link in consumers) and all(link._gone for link in browsers)

    await eventually_async(all_wait, what="each waits for its answer")
    broker.connections[0].transport.resume_reading()
    await asyncio.wait_for(closing, 10)
    assert all(link.is_over() for link in consumers + browsers)


async def test_what_an_outcome_accepts_is_accepted_before_the_receivers_end(
    broker: FakeBroker, connection: Connection
) -> None:
    """A program that passes messages on: a message is accepted once its copy is stored."""
    broker.put("from", b"1", b"2", b"3")
    broker.hold_outcomes = True
    source, target = await connection.receiver("from"), await connection.sender("to")
    for _ in range(3):
        delivery = await anext(source)
        stored = await target.submit(delivery.message)
        stored.add_done_callback(lambda _, delivery=delivery: delivery.accept())
    closing = asyncio.ensure_future(connection.close())
    await broker.until(lambda: len(broker.bodies("to")) == 3)
    broker.release_outcomes()
    await asyncio.wait_for(closing, 10)
    assert broker.accepts == 3 and broker.queue("from").entries == []


async def test_an_error_keeps_no_link_from_its_end(broker: FakeBroker, connection: Connection) -> None:
    broker.put("from", b"1", b"2")
    receiver, failing, other = (
        await connection.receiver("from"),
        await connection.sender("to"),
        await connection.sender("other"),
    )
    broker.decide = lambda bare: Rejected(None) if bare.endswith(b"bad") else None
    (await anext(receiver)).accept()

    def on_outcome(number: int | None, outcome: object) -> None:
        raise ZeroDivisionError

    await failing.post(b"bad", on_outcome=on_outcome)
    await other.post(b"good")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(connection.close(), 10)
    assert broker.bodies("other") == [b"good"] and broker.accepts == 1
    assert [entry.count for entry in broker.queue("from").entries] == [0]


@pytest.mark.parametrize("browse", [True, False])
async def test_two_that_close_a_receiver_at_once_wait_for_one_answer(
    broker: FakeBroker, connection: Connection, browse: bool
) -> None:
    """As a generator that is given up does, while its connection closes: one would wait to the limit."""
    receiver = await connection.receiver("q", browse=browse)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(receiver.close(), receiver.close(), connection.close())
    assert asyncio.get_running_loop().time() - began < CLOSE_LIMIT_S / 2
    assert receiver.is_over()


async def test_who_is_cancelled_while_it_closes_a_link_cancels_no_other(
    broker: FakeBroker, connection: Connection
) -> None:
    receiver = await connection.receiver("q", browse=True)
    broker.connections[0].transport.pause_reading()
    closing = [asyncio.ensure_future(receiver.close()) for _ in range(2)]
    await asyncio.sleep(0)
    closing[0].cancel()
    done, _ = await asyncio.wait(closing, timeout=CLOSE_LIMIT_S / 2)
    assert len(done) == 2 and closing[0].cancelled() and closing[1].exception() is None
    broker.connections[0].transport.resume_reading()
