"""Opening in one flight, reconnecting, giving up, silence, logins."""

import asyncio
import socket
from random import Random

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol
from holdfast.client import (
    Accepted,
    AuthenticationFailed,
    Connection,
    ConnectionEnded,
    ConnectionFailed,
    LinkError,
    ManagementError,
    connect,
)
from holdfast.errors import ConfigError


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


async def test_the_opening_is_one_flight(broker: FakeBroker) -> None:
    async with await connect(broker.url) as connection:
        assert connection.is_open and connection.reconnects == 0
        first = broker.connections[0].first_read
        # SASL header, init, AMQP header, open and begin, before anything was read.
        assert first is not None and first.startswith(b"AMQP\x03") and b"AMQP\x00" in first
        assert b"\x00\x53\x10" in first and b"\x00\x53\x11" in first


async def test_links_are_attached_in_the_first_flight_of_a_reconnect(
    broker: FakeBroker, connection: Connection
) -> None:
    sender = await connection.sender("q")
    broker.cut()
    assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 1
    first = broker.connections[-1].first_read
    assert first is not None and b"\x00\x53\x12" in first


async def test_it_gives_up_with_one_clear_error(broker: FakeBroker) -> None:
    connection = await connect(broker.url, retry_s=0.3, rng=Random(1))
    sender = await connection.sender("q")
    receiver = await connection.receiver("q")
    broker.hold_outcomes = True
    future = await sender.submit(b"x")
    await broker.stop()
    with pytest.raises(ConnectionFailed, match=r"^amqp://127.0.0.1:\d+: cannot connect: "):
        await asyncio.wait_for(future, 5)
    with pytest.raises(ConnectionFailed):
        await sender.submit(b"y")
    with pytest.raises(ConnectionFailed):
        await anext(receiver)
    with pytest.raises(ConnectionFailed):
        await connection.manage("STATUS", "holdfast:node")
    with pytest.raises(ConnectionFailed):  # a message was lost sight of: close says so
        await connection.close()


async def test_without_retry_it_tries_once() -> None:
    with pytest.raises(ConnectionFailed, match=r"cannot connect: .*refused"):
        await connect(f"amqp://127.0.0.1:{free_port()}", retry_s=0)


async def test_it_waits_for_a_node_that_comes_later() -> None:
    broker = FakeBroker()
    broker.port = free_port()
    connection = await connect(broker.url, retry_s=10, wait=False, rng=Random(1))
    assert not connection.is_open
    async with broker:
        await asyncio.wait_for(connection.opened(), 5)
        await connection.close()


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x01\x00\x02\x02\x46"])
async def test_a_port_that_speaks_tls_is_named_for_what_it_may_be(answer: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match=r"said anything; so does a port that speaks TLS: .* amqps://"):
            await asyncio.wait_for(connect(f"amqp://127.0.0.1:{port}", retry_s=0), 5)


async def test_a_wrong_password_is_final_and_not_shown() -> None:
    async with FakeBroker(users={"ann": "right"}) as broker:
        address = f"127.0.0.1:{broker.port}"
        async with await connect(f"amqp://ann:right@{address}") as connection:
            assert "right" not in repr(connection)
            assert await (await connection.sender("q")).send(b"x") == Accepted()
        with pytest.raises(AuthenticationFailed) as caught:
            await asyncio.wait_for(connect(f"amqp://ann:wrong@{address}", retry_s=30), 5)
        assert "wrong" not in str(caught.value)
        with pytest.raises(AuthenticationFailed, match="wants a user and a password, as in amqp://user@host: "):
            await asyncio.wait_for(connect(f"amqp://{address}", retry_s=30), 5)


async def test_a_login_that_was_not_checked_is_tried_again() -> None:
    """Somebody guesses the user's password from the same address: that is no reason to end."""
    users = {"ann": "right"}
    async with FakeBroker(users=users) as broker:
        broker.logins_not_checked = 2
        url = f"amqp://ann:right@127.0.0.1:{broker.port}"
        async with await asyncio.wait_for(connect(url, retry_s=30, rng=Random(1)), 5) as connection:
            assert await (await connection.sender("q")).send(b"x") == Accepted()
        assert broker.logins == 3
        broker.logins_not_checked = 1
        with pytest.raises(ConnectionFailed, match="not checked"):
            await asyncio.wait_for(connect(url, retry_s=0), 5)


FULL = ("amqp:resource-limit-exceeded", "user 'ann' has 1 connections, the most it may have")


async def test_a_connection_that_is_closed_at_once_is_tried_again() -> None:
    """A user at its bound of connections: until there is room, links wait, and nobody sees a fault of the protocol."""
    async with FakeBroker() as broker:
        broker.close_opened = [FULL, FULL]
        async with await asyncio.wait_for(connect(broker.url, retry_s=30, rng=Random(1)), 5) as connection:
            assert connection.reconnects == 0
            assert await (await connection.sender("q")).send(b"x") == Accepted()


async def test_why_a_connection_was_closed_at_once_is_shown() -> None:
    async with FakeBroker() as broker:
        broker.close_opened = [FULL] * 100
        for retry_s in (0, 0.2):
            with pytest.raises(ConnectionFailed, match=r"'ann' has 1 connections.*\(amqp:resource-limit-exc"):
                await asyncio.wait_for(connect(broker.url, retry_s=retry_s, rng=Random(1)), 5)


async def test_a_link_that_is_made_while_the_connection_closes_waits_for_the_next(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for between the node's close and the end of the transport."""
    broker.answer = lambda told, value: (200, "", {})
    asked: list[asyncio.Task[object]] = []
    ending = connection._ending

    def at_the_end(error: Error | None, what: str) -> None:
        ending(error, what)
        if asked:
            return
        for use in (connection.sender("q"), connection.receiver("q"), connection.parts_receiver("q")):
            asked.append(asyncio.create_task(use))
        asked.append(asyncio.create_task(connection.manage("READ", "t")))

    monkeypatch.setattr(connection, "_ending", at_the_end)
    broker.connections[0].engine.close(Error(Symbol("amqp:connection:forced"), "later"))
    broker.connections[0].flush()
    await broker.until(lambda: len(asked) == 4)
    await asyncio.wait_for(asyncio.gather(*asked), 5)
    assert connection.reconnects == 1


async def test_silence_is_loss(broker: FakeBroker) -> None:
    connection = await connect(broker.url, retry_s=10, idle_time_out_s=0.3, rng=Random(1))
    sender = await connection.sender("q")
    broker.silent = True
    future = await sender.submit(b"x")
    await broker.until(lambda: not broker.connections or len(broker.connections) > 1)
    broker.silent = False
    assert await asyncio.wait_for(future, 5) == Accepted()
    assert connection.reconnects >= 1 and broker.bodies("q") == [b"x"]
    await connection.close()


async def test_it_keeps_an_idle_connection_alive() -> None:
    async with FakeBroker(idle_time_out_s=0.2) as broker, await connect(broker.url) as connection:
        # The broker's own clock ends the connection if nothing comes for 0.2 s.
        engine = broker.connections[0].engine
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.6
        while loop.time() < until:
            await broker.until(lambda: True)
            assert not engine.tick(loop.time())
            broker.changed.clear()
            await asyncio.wait_for(broker.changed.wait(), 1)
        assert connection.reconnects == 0


async def test_a_refused_link_says_why(broker: FakeBroker, connection: Connection) -> None:
    broker.refuse = ("amqp:not-found", "no queue 'q'")
    with pytest.raises(LinkError, match="no queue 'q'") as caught:
        await connection.sender("q")
    assert caught.value.condition == "amqp:not-found"
    with pytest.raises(LinkError, match="no queue 'q'"):
        await connection.receiver("q")
    broker.refuse = None
    assert await (await connection.sender("q")).send(b"x") == Accepted()


async def test_a_passing_refusal_is_tried_again(broker: FakeBroker, connection: Connection) -> None:
    broker.refuse = ("amqp:resource-limit-exceeded", "later")
    asked = asyncio.create_task(connection.sender("q"))
    await broker.until(lambda: broker.attaches >= 2)
    broker.refuse = None
    sender = await asyncio.wait_for(asked, 5)
    assert await sender.send(b"x") == Accepted()


async def test_management_answers_and_refuses(broker: FakeBroker, connection: Connection) -> None:
    broker.answer = lambda told, value: (
        (200, "", {"echo": value, "name": told.get("name")}) if told["operation"] == "READ" else (404, "no such", None)
    )
    assert await connection.manage("READ", "t", "n", {"a": [1]}) == {"echo": {"a": [1]}, "name": "n"}
    with pytest.raises(ManagementError, match=r"^DELETE t 'n': 404 no such$") as caught:
        await connection.manage("DELETE", "t", "n")
    assert caught.value.code == 404


async def test_a_request_without_an_answer_goes_again(broker: FakeBroker, connection: Connection) -> None:
    answers = iter([False, True])

    def answer(told: object, value: object) -> tuple[int, str, object]:
        if not next(answers):
            broker.cut()
        return 200, "", {"done": True}

    broker.answer = answer
    assert await asyncio.wait_for(connection.manage("ADVANCE", "t"), 5) == {"done": True}
    assert connection.reconnects == 1


async def test_many_requests_at_once(broker: FakeBroker, connection: Connection) -> None:
    broker.answer = lambda told, value: (200, "", {"n": value["n"]})
    answers = await asyncio.gather(*(connection.manage("READ", "t", None, {"n": n}) for n in range(300)))
    assert [answer["n"] for answer in answers] == list(range(300))


async def test_used_after_close(broker: FakeBroker) -> None:
    connection = await connect(broker.url)
    sender = await connection.sender("q")
    await connection.close()
    await connection.close()
    for use in (connection.sender("q"), connection.receiver("q"), connection.manage("READ", "t"), sender.send(b"x")):
        with pytest.raises(ConnectionEnded):
            await use


async def test_options_out_of_range_are_refused(broker: FakeBroker, connection: Connection) -> None:
    with pytest.raises(ConfigError, match="retry_s"):
        await connect(broker.url, retry_s=-1)
    with pytest.raises(ConfigError, match="in_doubt_max"):
        await connection.sender("q", in_doubt_max=0)
    with pytest.raises(ConfigError, match="when_full"):
        await connection.sender("q", when_full="drop")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigError, match="credit"):
        await connection.receiver("q", credit=0)
    with pytest.raises(ConfigError, match="accepted is alone"):
        await connection.receiver("q", subscription="s", browse=True)
    with pytest.raises(ConfigError, match=r"ca_file .*accepted is with amqps://"):
        await connect(broker.url, ca_file="/does/not/exist")
    with pytest.raises(ConfigError, match="ca_file"):
        await connect("amqps://127.0.0.1:1", ca_file="/does/not/exist")


async def test_a_defect_ends_the_connection_instead_of_hanging(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = await connection.sender("q")
    monkeypatch.setattr(sender, "_pump", lambda: 1 / 0)
    future = await sender.submit(b"x")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(future, 5)
