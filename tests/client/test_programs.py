"""The client as a program meets it, against a real node: bodies that come back as they were sent, refusals that raise,
blocks that end what they hold, requests and replies, and the node's administration.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.client import (
    Accepted,
    Connection,
    Delivery,
    LinkError,
    ManagementError,
    Message,
    NoReply,
    NotAccepted,
    Rejected,
    compose,
    connect,
)
from holdfast.client.blocking import BlockingConnection
from holdfast.errors import ConfigError, LocalProtocolError
from support.process import NodeProcess

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reference

LIMIT_S = 20


@pytest.fixture
async def connection(node: NodeProcess) -> AsyncIterator[Connection]:
    async with asyncio.timeout(60), await connect(node.url) as connection:
        yield connection


BODIES: tuple[Any, ...] = (
    b"", b"bytes", bytes(300), "", "text \u00e9", "x" * 300, 0, -5, 2**40, 1.5, True, None, UUID(int=7),
    [1, "two", [3.0, None]], {"reader": "dock-4", "rssi": -61, "tags": ["a", "b"]},
)  # fmt: skip


async def test_a_body_comes_back_as_it_was_sent(connection: Connection) -> None:
    async with connection.sender("bodies") as sender:
        for body in BODIES:
            assert await sender.send(body) == Accepted()
    async with connection.receiver("bodies", count_max=len(BODIES)) as receiver:
        found = [delivery.body async for delivery in received(receiver, len(BODIES))]
    assert found == list(BODIES) and [type(body) is bool for body in found] == [type(body) is bool for body in BODIES]


async def received(receiver: Any, count: int) -> AsyncIterator[Delivery]:
    """The next messages, accepted once they were looked at."""
    for _ in range(count):
        async with asyncio.timeout(LIMIT_S):
            delivery = await anext(receiver)
        yield delivery
        delivery.accept()


async def test_bytes_like_bodies_are_sent_as_bytes_and_sequences_are_read_as_one(connection: Connection) -> None:
    sender = await connection.sender("bodies")
    await sender.send(bytearray(b"array"))
    await sender.send(memoryview(b"view"))
    await sender.send(Message(sequences=[[1, 2], [3]]))
    await sender.send(Message(data=[b"a", b"b"]))
    receiver = await connection.receiver("bodies")
    assert [item.body async for item in received(receiver, 4)] == [b"array", b"view", [1, 2, 3], b"ab"]


async def test_a_body_that_amqp_cannot_carry_is_one_plain_line(connection: Connection) -> None:
    sender = await connection.sender("bodies")
    for body in (object(), {1, 2}, [object()]):
        with pytest.raises(ConfigError, match=r"^invalid body \(.* has no AMQP encoding\); expected bytes, str"):
            await sender.send(body)
    assert await sender.send("after") == Accepted()


async def test_what_is_composed_is_read_from_the_delivery(connection: Connection) -> None:
    message = compose(
        {"late": 5}, subject="jfk", properties={"site": "dock"}, message_id="m-1", correlation_id="c-1",
        reply_to="answers", content_type="application/x", priority=7, ttl_s=60,
    )  # fmt: skip
    await (await connection.sender("composed")).send(message)
    receiver = await connection.receiver("composed")
    delivery = await anext(receiver)
    assert (delivery.body, delivery.subject, delivery.properties) == ({"late": 5}, "jfk", {"site": "dock"})
    assert (delivery.message_id, delivery.correlation_id, delivery.reply_to) == ("m-1", "c-1", "answers")
    header = delivery.message.header
    assert header is not None and header.durable and header.priority == 7 and 0 < (header.ttl or 0) <= 60_000
    await (await connection.sender("composed")).send(b"bare")
    delivery.accept()
    bare = await anext(receiver)
    assert (bare.subject, bare.properties, bare.message_id, bare.delivery_count) == (None, {}, None, 0)


def test_what_cannot_be_composed_is_one_plain_line() -> None:
    with pytest.raises(ConfigError, match="invalid value 10 for priority; expected 0 to 9"):
        compose("x", priority=10)
    for ttl_s in (0, -1, 5_000_000):
        with pytest.raises(ConfigError, match="for ttl_s; expected more than 0"):
            compose("x", ttl_s=ttl_s)


# --------------------------------------------------------------------------------------------------- refusals


async def test_a_refusal_raises_unless_it_is_asked_for(connection: Connection) -> None:
    await connection.admin.create_queue("small", messages_max=1, when_full="refuse")
    async with connection.sender("small") as sender:
        await sender.send("1")
        with pytest.raises(NotAccepted, match=r"sender to 'small': the node rejected the message: .*full") as caught:
            await sender.send("2")
        error = caught.value
        assert error.condition == "amqp:resource-limit-exceeded" and error.is_full
        assert isinstance(error.outcome, Rejected)
        outcome = await sender.send("3", check=False)
        assert isinstance(outcome, Rejected) and outcome.is_full
        assert isinstance(await (await sender.submit("4")), Rejected)
    async with connection.transaction() as transaction:
        small = await connection.sender("small")
        with pytest.raises(NotAccepted):
            await transaction.send(small, bytes(2_000_000_000 // 1_000))  # larger than a transaction holds
        await transaction.rollback()


# ----------------------------------------------------------------------------------------------------- blocks


async def test_a_block_that_ends_well_accepts_and_one_that_fails_counts(connection: Connection) -> None:
    await connection.admin.create_queue("jobs", deliveries_max=2)
    async with connection.sender("jobs") as sender:
        await sender.send("job")
    async with connection.receiver("jobs") as receiver:
        with pytest.raises(ValueError, match="broken"):
            async with (await anext(receiver)).process() as delivery:
                assert delivery.delivery_count == 0
                raise ValueError("broken")
        async with (await anext(receiver)).process() as again:
            assert again.body == "job" and again.delivery_count == 1
    assert (await connection.admin.queue("jobs"))["messages"] == 0


async def test_what_a_failed_block_does_is_chosen(connection: Connection) -> None:
    sender, receiver = await connection.sender("jobs"), await connection.receiver("jobs", credit=1)
    await sender.send("first")
    with pytest.raises(ValueError, match="no such part"):
        async with (await anext(receiver)).process(on_error="reject"):
            raise ValueError("no such part")
    dead = await anext(await connection.receiver("$dead-letters"))
    reasons = [str(value) for value in (dead.message.message_annotations or {}).values()]
    assert any("ValueError: no such part" in reason for reason in reasons), reasons
    await sender.send("second")
    with pytest.raises(ValueError, match="later"):
        async with (await anext(receiver)).process(on_error="release"):
            raise ValueError("later")
    released = await anext(receiver)
    assert released.body == "second" and released.delivery_count == 0
    with pytest.raises(ConfigError, match="invalid value 'requeue' for on_error; expected one of retry, reject"):
        released.process(on_error="requeue")  # type: ignore[arg-type]


async def test_a_cancelled_block_releases_and_what_the_block_settled_stays(connection: Connection) -> None:
    sender, receiver = await connection.sender("jobs"), await connection.receiver("jobs", credit=1)
    await sender.send("one")
    begun = asyncio.Event()

    async def work(delivery: Delivery) -> None:
        async with delivery.process(on_error="reject"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work(await anext(receiver)))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = await anext(receiver)
    assert again.body == "one" and again.delivery_count == 0
    async with again.process() as settled:
        settled.release()
    assert (await anext(receiver)).body == "one"


async def test_links_end_with_their_blocks(connection: Connection) -> None:
    async with connection.sender("q") as sender, connection.receiver("q") as receiver:
        await sender.post("counted")
        assert (await anext(receiver)).body == "counted"
    assert sender.is_over() and receiver.is_over() and sender.accepted == 1
    async with await connection.sender("q") as sender:
        await sender.send("as before")
    assert sender.is_over()
    with pytest.raises(ZeroDivisionError):
        async with connection.receiver("q") as receiver:
            raise ZeroDivisionError
    assert receiver.is_over()
    made = asyncio.create_task(connection.sender("q"))
    assert not (await made).is_over()


# --------------------------------------------------------------------------------------- requests and replies


async def test_a_request_gets_its_own_reply(connection: Connection, node: NodeProcess) -> None:
    async def serve(server: Connection) -> None:
        async for asked in await server.receiver("double"):
            async with asked.process():
                await server.reply(asked, asked.body * 2)

    async with await connect(node.url) as server:
        serving = asyncio.ensure_future(serve(server))
        replies = await asyncio.gather(*(connection.request("double", number) for number in range(20)))
        assert [reply.body for reply in replies] == [2 * number for number in range(20)]
        named = await connection.request("double", compose([1], message_id="mine"))
        assert named.body == [1, 1] and named.correlation_id == "mine"
        named.accept()  # is settled, and stays so
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_a_request_without_a_reply_says_so(connection: Connection) -> None:
    with pytest.raises(NoReply, match=r"nobody: no reply came within 0\.3 s"):
        await connection.request("nobody", "hello?", limit_s=0.3)
    asked = await anext(await connection.receiver("nobody"))
    with pytest.raises(ConfigError, match="has no reply-to"):
        await (await connection.sender("plain")).send("no question")
        await connection.reply(await anext(await connection.receiver("plain")), "an answer")
    await connection.reply(asked, "too late")  # nobody waits for it any more, and nothing breaks
    await connection.admin.create_queue("full", messages_max=1, when_full="refuse")
    await (await connection.sender("full")).send("1")
    with pytest.raises(NotAccepted):
        await connection.request("full", "2", limit_s=LIMIT_S)


async def test_a_break_ends_requests_and_later_ones_work(node: NodeProcess) -> None:
    async with asyncio.timeout(60), await connect(node.url) as connection:
        pending = asyncio.ensure_future(connection.request("slow", "one"))
        receiver = await connection.receiver("slow")
        first = await anext(receiver)
        await node.kill()
        await node.restart(same_port=True)
        with pytest.raises(NoReply, match="the connection broke"):
            await pending
        with pytest.raises((LinkError, NotAccepted)):  # the node for its reply is gone
            await connection.reply(first, "late")
        second = asyncio.ensure_future(connection.request("slow", "two"))
        while True:
            asked = await anext(receiver)
            asked.accept()
            if asked.body == "two":
                break
        await connection.reply(asked, "done")
        assert (await second).body == "done"


# --------------------------------------------------------------------------------------------- administration


async def test_the_node_is_administered_by_methods(connection: Connection) -> None:
    admin = connection.admin
    assert await admin.create_queue("q", messages_max=3, when_full="refuse") is True
    assert await admin.create_queue("q", messages_max=3, when_full="refuse") is False
    with pytest.raises(ManagementError) as caught:
        await admin.create_queue("q", messages_max=4)
    assert caught.value.code == 409
    assert (await admin.change_queue("q", messages_max=None))["messages_max"] is None
    assert (await admin.change_queue("q", deliveries_max=4))["messages_max"] is None
    for number in range(5):
        await (await connection.sender("q", name=f"s{number}")).send(number)
    assert (await admin.queue("q"))["messages"] == 5
    assert await admin.purge_queue("q") == 5
    await (await connection.receiver("topic/t", subscription="s")).close()
    assert (await admin.change_subscription("topic/t", "s", messages_max=3, when_full="end"))["messages_max"] == 3
    assert (await admin.change_subscription("topic/t", "s", idle_s=60))["when_full"] == "end"
    (told,) = await admin.subscriptions("topic/t")
    assert (told["messages"], told["messages_max"], told["idle_s"]) == (0, 3, 60)
    assert (await admin.change_subscription("topic/t", "s", messages_max=None))["messages_max"] is None
    await admin.delete_subscription("topic/t", "s")
    assert await admin.create_link("copies", "q", "other", mode="copy") is True
    assert await admin.create_link("later", "q", "other", mode="copy", start="next") is True
    assert await admin.create_link("from", "q", "other", mode="copy", start=1) is True
    assert {link["name"]: link["start"] for link in await admin.links()} == {
        "copies": "first",
        "later": "next",
        "from": 1,
    }
    for name in ("later", "from"):
        await admin.delete_link(name)
    assert [link["name"] for link in await admin.links()] == ["copies"]
    await admin.stop_link("copies")
    assert [link["state"] for link in await admin.links()] == ["stopped"]
    await admin.start_link("copies")
    await admin.delete_link("copies")
    await (await connection.receiver("q", subscription="night")).close()
    assert [(row["queue"], row["name"]) for row in await admin.subscriptions()] == [("q", "night")]
    await admin.delete_subscription("q", "night")
    assert await admin.subscriptions("q") == []
    await admin.register_service("prices", "q")
    with pytest.raises(ManagementError, match="409"):
        await admin.register_service("prices", "other")
    await admin.register_service("prices", "other", replace=True)
    assert await admin.service("prices") == "other" and [row["name"] for row in await admin.services()] == ["prices"]
    await admin.remove_service("prices")
    assert await admin.services() == []
    status = await admin.status()
    assert status["node"] == "t" and {row["name"] for row in status["queues"]} >= {"q"}
    assert (await admin.where("nothing"))["found"] is False
    await connection.abort()


async def test_more_queues_than_a_page_are_listed(connection: Connection) -> None:
    names = [f"q{number:03}" for number in range(205)]
    await asyncio.gather(*map(connection.admin.create_queue, names))
    assert [row["name"] for row in await connection.admin.queues()] == names
    assert [row["name"] for row in (await connection.admin.status())["queues"]] == names


# ------------------------------------------------------------------------------------------ what a program sees


async def test_dir_shows_what_the_reference_has(connection: Connection, blocking: BlockingConnection) -> None:
    """All that a program uses, and nothing that the parts of the client call of each other."""
    pages = reference.PAGES["holdfast.client"] | reference.PAGES["holdfast.client.blocking"]
    sender, receiver = await connection.sender("q"), await connection.receiver("q")
    await sender.send("x")
    things = [connection, sender, receiver, await anext(receiver), connection.admin, blocking, blocking.admin]
    things.append(await connection.parts_receiver("q"))
    for thing in things:
        shown = {name for name in dir(thing) if not (name.startswith("__") and name.endswith("__"))}
        assert shown == {*pages[type(thing).__name__]}, type(thing).__name__


def test_a_program_without_a_loop_has_all_of_it(blocking: BlockingConnection) -> None:
    admin = blocking.admin
    assert admin.create_queue("jobs", messages_max=2, when_full="refuse", deliveries_max=3) is True
    with blocking.sender("jobs") as sender:
        sender.send({"n": 1})
        sender.send("two")
        with pytest.raises(NotAccepted):
            sender.send("three")
        assert isinstance(sender.send("three", check=False), Rejected)
    with pytest.raises(NotAccepted):
        blocking.send("jobs", "three")
    with blocking.receiver("jobs") as receiver:
        with next(receiver).process() as delivery:
            assert delivery.body == {"n": 1} and delivery.properties == {} and delivery.subject is None
        with pytest.raises(ValueError, match="no"), next(receiver).process():
            raise ValueError("no")
        again = next(receiver)
        assert again.body == "two" and again.delivery_count == 1
        again.accept()
    with pytest.raises(NoReply):
        blocking.request("nobody", "hello?", limit_s=0.3)
    asked = next(blocking.receiver("nobody"))
    assert asked.reply_to and asked.message_id and asked.correlation_id == asked.message_id
    blocking.reply(asked, "late")
    assert admin.queue("jobs")["messages"] == 0 and admin.status()["node"] == "t"
    assert admin.change_queue("jobs", messages_max=None)["messages_max"] is None
    assert {row["name"] for row in admin.queues()} >= {"jobs", "nobody"}
    assert admin.create_link("copies", "jobs", "other", mode="copy") is True and len(admin.links()) == 1
    admin.stop_link("copies")
    admin.start_link("copies")
    admin.delete_link("copies")
    blocking.receiver("jobs", subscription="night").close()
    assert [row["name"] for row in admin.subscriptions("jobs")] == ["night"]
    admin.delete_subscription("jobs", "night")
    blocking.receiver("topic/t", subscription="s").close()
    assert admin.change_subscription("topic/t", "s", messages_max=3, when_full="end")["messages_max"] == 3
    admin.register_service("prices", "jobs")
    assert admin.service("prices") == "jobs" and len(admin.services()) == 1
    admin.remove_service("prices")
    assert admin.reload().keys() >= {"changed", "restart"}
    assert admin.purge_queue("jobs") == 0 and admin.create_queue("brief") and admin.delete_queue("brief") == 0
    assert admin.where("nothing")["found"] is False


@pytest.fixture
async def blocking(node: NodeProcess) -> AsyncIterator[BlockingConnection]:
    connection = BlockingConnection(node.url)
    yield connection
    await asyncio.to_thread(connection.close)


async def test_a_body_in_parts_is_not_read_as_one(connection: Connection) -> None:
    await (await connection.sender("q")).send_parts([b"a", b"b"])
    delivery = await anext(await connection.parts_receiver("q"))
    with pytest.raises(LocalProtocolError, match="its body comes in parts"):
        _ = delivery.body
    assert [part async for part in delivery.parts()] == [b"ab"]
    delivery.accept()
