"""What a receiver promises: in order, none handed out twice by one receiver, credit and counts kept."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.fake_broker import FakeBroker
from holdfast.amqp.links.sender import Sender
from holdfast.client import Accepted, Connection, ConnectionEnded, Delivery, LinkError, Receiver, connect, link
from holdfast.client.receive import receiver
from holdfast.client.receive.parts_delivery import DeliveryInParts
from holdfast.client.receive.settlements import ranges
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.units import MIB
from support import today
from support.eventually import eventually_async


def body(delivery: Delivery) -> bytes:
    return delivery.message.body_bytes()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_messages_come_in_order_and_accepting_removes_them(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(300))
    receiver = await connection.receiver("q", credit=20)
    seen = []
    async for delivery in receiver:
        seen.append(body(delivery))
        assert delivery.sequence == len(seen) and delivery.enqueued_ms > 0
        await delivery.accept()
        if len(seen) == 300:
            break
    await receiver.close()
    assert seen == numbers(300) and not broker.queue("q").entries and broker.accepts == 300


@pytest.mark.parametrize(
    "decide",
    [
        lambda delivery: delivery.reject("x:é"),
        lambda delivery: delivery.reject("x:y", "\ud800"),
        lambda delivery: delivery.modify(annotations={"k": 2**70}),
        lambda delivery: delivery.modify(annotations={"k": object()}),
        lambda delivery: delivery.modify(annotations={"é": 1}),
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
async def test_an_outcome_that_cannot_be_encoded_is_refused_at_once(
    decide: Callable[[Delivery], object], in_parts: bool, broker: FakeBroker, connection: Connection
) -> None:
    """Nothing is decided by it."""
    broker.put("q", b"1")
    receiver = await (connection.parts_receiver if in_parts else connection.receiver)("q")
    delivery = await anext(receiver)
    with pytest.raises(ConfigError, match=r"^invalid outcome "):
        decide(delivery)
    assert not delivery.settled
    delivery.reject("x:y", "ü")
    await broker.until(lambda: not broker.queue("q").entries)
    assert not receiver.is_over()


async def test_an_outcome_that_became_one_that_cannot_be_encoded_ends_its_link_alone(
    broker: FakeBroker, connection: Connection
) -> None:
    """The others of its turn go out."""
    broker.put("q", *numbers(3))
    receiver, other = await connection.receiver("q"), await connection.sender("other")
    first, second, third = [await anext(receiver) for _ in range(3)]
    tried = [1]
    first.modify(annotations={"k": tried})
    tried.append(2**70)
    second.accept()
    third.reject("x:y")
    with pytest.raises(LinkError, match=r"^receiver from 'q': an outcome cannot be sent: "):
        await asyncio.wait_for(anext(receiver), 5)
    assert await asyncio.wait_for(other.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 0 and [entry.sequence for entry in broker.queue("q").entries] == [1]


async def test_each_outcome_does_what_it_says(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(5))
    receiver = await connection.receiver("q", credit=5)
    deliveries = [await anext(receiver) for _ in range(5)]
    deliveries[0].accept()
    deliveries[1].reject("amqp:decode-error", "not JSON")
    deliveries[2].release()
    deliveries[3].modify(annotations={"x-opt-tried": 1})
    deliveries[0].accept()  # a second time does nothing
    deliveries[1].release()
    await broker.until(lambda: [entry.count for entry in broker.queue("q").entries] == [0, 1, 0])
    again = [await anext(receiver) for _ in range(2)]
    assert [body(delivery) for delivery in again] == [b"2", b"3"]
    assert again[1].message.header is not None and again[1].message.header.delivery_count == 1


async def test_credit_is_the_bound_of_what_comes_ahead(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(50))
    receiver = await connection.receiver("q", credit=10)
    await broker.until(lambda: sum(entry.link is not None for entry in broker.queue("q").entries) == 10)
    for _ in range(4):
        await anext(receiver)
    assert sum(entry.link is not None for entry in broker.queue("q").entries) == 10
    await anext(receiver)  # half is used: now it is topped up
    await broker.until(lambda: sum(entry.link is not None for entry in broker.queue("q").entries) == 15)


async def test_no_more_than_count_max_is_ever_taken(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(50))
    receiver = await connection.receiver("q", credit=10, count_max=17)
    seen = [body(delivery) async for delivery in receiver]
    assert seen == numbers(17)
    assert sum(entry.link is not None for entry in broker.queue("q").entries) == 17
    await receiver.close()
    assert await receiver.batch() == []


@pytest.mark.parametrize("in_parts", [False, True])
async def test_a_large_message_on_its_way_counts_among_count_max(
    broker: FakeBroker, connection: Connection, in_parts: bool
) -> None:
    """The first frame of it used credit, and it is handed out much later: no credit takes its place meanwhile."""
    broker.put("q", *(b"%d" % number * 2 * MIB for number in range(5)))
    open_receiver = connection.parts_receiver if in_parts else connection.receiver
    receiver = await open_receiver("q", credit=10, count_max=2)

    async def looks_all_the_time() -> None:
        while True:
            receiver.touch()
            await asyncio.sleep(0)

    looks = asyncio.create_task(looks_all_the_time())
    for _ in range(2):
        delivery = await asyncio.wait_for(anext(receiver), 10)
        if isinstance(delivery, DeliveryInParts):
            async for _ in delivery.parts():
                pass
        await delivery.accept()
    await broker.until(lambda: broker.accepts == 2)
    assert await receiver.batch(timeout_s=0.3) == []
    looks.cancel()
    left = broker.queue("q").entries
    assert len(left) == 3 and all(entry.link is None for entry in left), "they are on their way"


async def test_in_parts_each_comes_with_a_credit_of_one_though_none_is_settled(
    broker: FakeBroker, connection: Connection
) -> None:
    """What was handed out is counted already, though its last frame has not come: the next has its credit."""
    broker.put("q", *(b"%d" % number * 2 * MIB for number in range(3)))
    receiver = await connection.parts_receiver("q", credit=1)
    for number in range(3):
        delivery = await asyncio.wait_for(anext(receiver), 10)
        assert isinstance(delivery, DeliveryInParts)
        body = b"".join([part async for part in delivery.parts()])
        assert body == b"%d" % number * 2 * MIB


async def test_close_gives_back_what_was_not_handed_out(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(9))
    receiver = await connection.receiver("q", credit=9)
    first = await anext(receiver)
    first.accept()
    await receiver.close()
    assert [(entry.link, entry.count) for entry in broker.queue("q").entries] == [(None, 0)] * 8
    with pytest.raises(ConnectionEnded):
        await anext(receiver)


async def test_close_gives_back_what_was_under_way(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent before the node hears that no more is wanted, and is no failed delivery."""
    monkeypatch.setattr(receiver, "CLOSE_LIMIT_S", 1_000.0)  # it is the node's answer that ends the wait
    closing = await connection.receiver("q", credit=9)
    broker.put("q", *numbers(3))
    await asyncio.wait_for(closing.close(), 10)
    assert [(entry.link, entry.count) for entry in broker.queue("q").entries] == [(None, 0)] * 3


async def under_way_to_its_end(broker: FakeBroker, connection: Connection) -> tuple[Receiver, asyncio.Task[None]]:
    """A receiver whose node says no more, and a `close` that waits for the answer to its drain."""
    closing = await connection.receiver("q", credit=9)
    broker.silent = True
    task = asyncio.ensure_future(closing.close())
    await asyncio.sleep(0)
    assert closing._drained is not None and not task.done()
    return closing, task


async def test_close_waits_a_limited_time_for_a_silent_node(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "CLOSE_LIMIT_S", 0.01)
    monkeypatch.setattr(link, "CLOSE_LIMIT_S", 0.01)
    closed, task = await under_way_to_its_end(broker, connection)
    await asyncio.wait_for(task, 10)
    with pytest.raises(ConnectionEnded):
        await anext(closed)


@pytest.mark.parametrize("end", ["lost", "detached", "refused"])
async def test_close_waits_no_more_once_the_link_is_gone(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """However the link ends: no answer to the drain comes any more."""
    monkeypatch.setattr(receiver, "CLOSE_LIMIT_S", 1_000.0)
    closed, task = await under_way_to_its_end(broker, connection)
    broker.silent = False
    if end == "lost":
        broker.cut()
    else:
        broker.detach_all(None if end == "detached" else "amqp:resource-deleted")
    await asyncio.wait_for(task, 10)
    with pytest.raises((ConnectionEnded, LinkError, StopAsyncIteration)):
        await anext(closed)


async def test_a_close_that_is_cancelled_while_it_drains_ends_the_receiver(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.put("q", *numbers(4))
    closed = await connection.receiver("q", credit=9)
    first = await anext(closed)
    broker.connections[0].transport.pause_reading()
    first.accept()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(closed.close(), 0.1)
    assert closed.is_over()
    broker.connections[0].transport.resume_reading()
    other = await connection.receiver("q")
    again = [await asyncio.wait_for(anext(other), 5) for _ in range(3)]
    assert [body(delivery) for delivery in again] == numbers(4)[1:]
    assert [entry.count for entry in broker.queue("q").entries] == [0] * 3, "given back, so that no delivery failed"
    await asyncio.wait_for(closed.close(), 10)
    with pytest.raises(ConnectionEnded):
        await anext(closed)


async def test_a_close_that_is_cancelled_while_the_node_takes_the_link_up_again_ends_the_receiver(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.put("q", *numbers(1))
    closed = await connection.receiver("q", resume_s=10)
    held = await anext(closed)
    broker.silent = True
    broker.cut()

    async def is_down() -> bool:
        return not connection.is_open

    await eventually_async(is_down)
    held.accept()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(closed.close(), 0.1)
    assert closed.is_over()
    broker.silent = False


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("in_parts", [False, True])
async def test_a_receiver_that_nobody_waited_for_holds_nothing(
    broker: FakeBroker, connection: Connection, in_parts: bool, answered: bool
) -> None:
    """Cancelled while the attach and its credit were under way, or just before the caller saw that it came about."""
    broker.put("q", *numbers(10))
    asked = asyncio.create_task((connection.parts_receiver if in_parts else connection.receiver)("q"))
    await (broker.until(lambda: broker.attaches == 1) if answered else asyncio.sleep(0))
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    second = await connection.receiver("q")
    seen = [body(await asyncio.wait_for(anext(second), 5)) for _ in range(10)]
    assert sorted(seen) == numbers(10)
    await broker.until(lambda: len(broker.connections[0].links) == 1)


async def test_batches(broker: FakeBroker, connection: Connection) -> None:
    receiver = await connection.receiver("q", credit=50)
    assert await receiver.batch(timeout_s=0.01) == [] and not receiver.ended
    broker.put("q", *numbers(30))
    first = await receiver.batch(count_max=7)
    assert [body(delivery) for delivery in first] == numbers(7)
    rest = await receiver.batch()
    assert [body(delivery) for delivery in rest] == numbers(30)[7:]
    waiting = asyncio.create_task(receiver.batch())
    await asyncio.sleep(0)
    with pytest.raises(LocalProtocolError, match="two tasks"):
        await receiver.batch()
    waiting.cancel()


async def test_what_the_user_holds_is_not_handed_out_again_after_a_break(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.put("q", *numbers(10))
    receiver = await connection.receiver("q", credit=4)
    held = [await anext(receiver) for _ in range(2)]
    broker.cut()
    rest = [await asyncio.wait_for(anext(receiver), 5) for _ in range(8)]
    assert [body(delivery) for delivery in rest] == numbers(10)[2:]
    assert receiver.duplicates_suppressed >= 2
    for delivery in held + rest:
        delivery.accept()  # those of the old connection are settled over the new one
    await broker.until(lambda: not broker.queue("q").entries)


async def test_what_was_accepted_but_not_heard_is_accepted_again(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(6))
    receiver = await connection.receiver("q", credit=3)
    first = await anext(receiver)
    broker.cut()
    first.accept()  # goes nowhere: the connection is gone
    seen = [await asyncio.wait_for(anext(receiver), 5) for _ in range(5)]
    assert [body(delivery) for delivery in seen] == numbers(6)[1:]
    assert receiver.duplicates_suppressed >= 1
    for delivery in seen:
        delivery.accept()
    await broker.until(lambda: not broker.queue("q").entries)


async def test_a_queue_made_anew_is_no_duplicate(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", b"old")
    receiver = await connection.receiver("q")
    (await anext(receiver)).accept()
    await broker.until(lambda: not broker.queue("q").entries)
    del broker.queues["q"]
    broker.put("q", b"new")
    broker.queue("q").entries[0].enqueued_ms += 1
    broker.cut()
    assert body(await asyncio.wait_for(anext(receiver), 5)) == b"new"
    assert receiver.duplicates_suppressed == 0


@pytest.mark.parametrize("seed", today.some(range(8), 2))
async def test_cut_again_and_again_each_is_handed_out_once_in_order(seed: int) -> None:
    rng = Random(seed)
    async with FakeBroker() as broker, await connect(broker.url, retry_s=20, rng=rng) as connection:
        broker.put("q", *numbers(300))
        receiver = await connection.receiver("q", credit=rng.choice((1, 8, 100)))
        seen: list[bytes] = []
        held: list[Delivery] = []
        async with asyncio.timeout(20):
            while len(seen) < 300:
                delivery = await anext(receiver)
                seen.append(body(delivery))
                held.append(delivery)
                while held and rng.random() < 0.6:
                    held.pop(rng.randrange(len(held))).accept()
                if rng.random() < 0.03:
                    broker.cut()
            for delivery in held:
                delivery.accept()
            await broker.until(lambda: not broker.queue("q").entries)
        assert seen == numbers(300)


async def test_a_range_ends_with_its_last_entry(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(20))
    receiver = await connection.receiver("q", start_sequence=5, end_sequence=15, credit=3)
    seen = [delivery async for delivery in receiver]
    assert [delivery.sequence for delivery in seen] == list(range(5, 15)) and receiver.ended
    assert all(delivery.settled for delivery in seen) and len(broker.queue("q").entries) == 20
    assert await receiver.batch() == []
    await receiver.close()


async def test_a_peer_that_leaves_out_the_filter_is_told_of_and_gives_nothing(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.knows_filters = False
    broker.put("q", *numbers(20))
    with pytest.raises(LinkError, match=r"receiver from 'q': the peer does not apply filter holdfast:start-sequence"):
        await connection.receiver("q", start_sequence=5, end_sequence=15)
    assert len(broker.queue("q").entries) == 20 and all(entry.link is None for entry in broker.queue("q").entries)
    receiver = await connection.receiver("q", count_max=1)  # the connection lives
    assert len(await receiver.batch()) == 1


async def test_an_empty_range_ends_at_once(broker: FakeBroker, connection: Connection) -> None:
    receiver = await connection.receiver("q", start_sequence=5, end_sequence=5)
    assert await receiver.batch() == [] and receiver.ended


@pytest.mark.parametrize("seed", today.some(range(5), 2))
async def test_a_range_read_goes_on_after_a_break(seed: int) -> None:
    rng = Random(seed)
    async with FakeBroker() as broker, await connect(broker.url, retry_s=20, rng=rng) as connection:
        broker.put("q", *numbers(200))
        receiver = await connection.receiver("q", start_sequence=1, end_sequence=201, credit=rng.choice((1, 10)))
        sequences = []
        async with asyncio.timeout(20):
            async for delivery in receiver:
                sequences.append(delivery.sequence)
                if rng.random() < 0.05:
                    broker.cut()
        assert sequences == list(range(1, 201))


async def test_a_browser_looks_only(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", *numbers(3))
    receiver = await connection.receiver("q", browse=True)
    assert [body(await anext(receiver)) for _ in range(3)] == numbers(3)
    broker.put("q", b"more")
    assert body(await anext(receiver)) == b"more"
    assert len(broker.queue("q").entries) == 4


async def test_the_end_and_a_refusal_of_the_node(broker: FakeBroker, connection: Connection) -> None:
    receiver = await connection.receiver("q")
    broker.detach_all(None)
    assert [delivery async for delivery in receiver] == [] and receiver.ended
    other = await connection.receiver("q")
    broker.detach_all("amqp:resource-deleted", "the queue is gone")
    with pytest.raises(LinkError, match="the queue is gone"):
        await anext(other)


async def test_a_subscription_is_a_durable_terminus(broker: FakeBroker, connection: Connection) -> None:
    receiver = await connection.receiver("q", subscription="audit")
    link = broker.connections[0].links[-1]
    assert link.name == "audit" and link.context.durable == 2 and link.context.expiry_policy == "never"
    await receiver.close()


@given(st.sets(st.integers(0, 60), min_size=1).flatmap(lambda ids: st.permutations(sorted(ids))))
def test_ranges_are_the_ids(ids: list[int]) -> None:
    found = ranges(list(ids))
    assert [number for first, last in found for number in range(first, last + 1)] == sorted(ids)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


async def test_what_came_settled_is_kept_over_a_break(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody offers it again."""
    send = Sender.send

    def settled(self: Sender, *parts: Any, **terms: Any) -> int:
        return send(self, *parts, **{**terms, "settled": True})

    broker.put("q", *numbers(4))
    with monkeypatch.context() as patch:
        patch.setattr(Sender, "send", settled)
        receiver = await connection.receiver("q", credit=10)
        await broker.until(lambda: len(receiver._buffer) == 4)
    broker.queue("q").entries.clear()
    attaches = broker.attaches
    broker.cut()
    await broker.until(lambda: broker.attaches > attaches)
    assert [body(await asyncio.wait_for(anext(receiver), 5)) for _ in range(4)] == numbers(4)
