"""Opening in one flight, reconnecting, giving up, silence, logins."""

import asyncio
import socket
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker, Peer, closed_port
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire.performatives import Accepted as AcceptedState
from holdfast.amqp.wire.performatives import Error, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.client import (
    Accepted,
    AuthenticationFailed,
    Connection,
    ConnectionEnded,
    ConnectionFailed,
    LinkError,
    ManagementError,
    Spool,
    connect,
    management,
)
from holdfast.client.network.wire import Wire
from holdfast.errors import ConfigError


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
    with closed_port() as port, pytest.raises(ConnectionFailed, match=r"cannot connect: .*refused"):
        await connect(f"amqp://127.0.0.1:{port}", retry_s=0)


async def test_without_retry_an_answer_that_comes_late_is_no_long_outage() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.1)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(late, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="cannot connect: this is an HTTP server"):
            await connect(f"amqp://127.0.0.1:{port}", retry_s=0)


async def test_it_waits_for_a_node_that_comes_later() -> None:
    broker = FakeBroker()
    with closed_port() as broker.port:
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
        with pytest.raises(ConnectionFailed, match=r"said anything; so does .* a port that speaks TLS: .* amqps://"):
            await asyncio.wait_for(connect(f"amqp://127.0.0.1:{port}", retry_s=0), 5)


async def test_a_wrong_password_is_final_and_not_shown() -> None:
    async with FakeBroker(users={"ann": "right"}) as broker:
        address = f"127.0.0.1:{broker.port}"
        async with await connect(f"amqp://ann:right@{address}") as connection:
            assert "right" not in repr(connection)
            assert await (await connection.sender("q")).send(b"x") == Accepted()
        with pytest.raises(AuthenticationFailed) as caught:
            await asyncio.wait_for(connect(f"amqp://ann:0ther@{address}", retry_s=30), 5)
        assert "0ther" not in str(caught.value) and str(caught.value).endswith(f"{address}: wrong user or password")
        with pytest.raises(AuthenticationFailed, match="requires a user and a password, as in amqp://user@host: "):
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


async def test_who_is_logged_out_while_it_opens_logs_in_again(broker: FakeBroker, connection: Connection) -> None:
    """The node's rules changed just then: its open and its close come in one read."""
    sender = await connection.sender("q")
    broker.close_opened = [("amqp:unauthorized-access", "closed: what its user may do has changed; log in again")]
    broker.cut()
    assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
    assert not broker.close_opened and connection.failure is None


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

    def at_the_end(wire: Wire, error: Error | None, what: str) -> None:
        ending(wire, error, what)
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
    first = broker.connections[0]
    future = await sender.submit(b"x")
    await broker.until(lambda: first not in broker.connections)
    broker.silent = False
    assert await asyncio.wait_for(future, 5) == Accepted()
    assert connection.reconnects >= 1 and broker.bodies("q") == [b"x"]
    await connection.close()


async def test_it_keeps_an_idle_connection_alive() -> None:
    async with FakeBroker(idle_time_out_s=0.2) as broker, await connect(broker.url) as connection:
        # What comes are empty frames, each due before the broker, which announces half of its 0.2 s, would end it.
        assert connection._wire is not None
        loop, engine = asyncio.get_running_loop(), connection._wire.engine
        for _ in range(8):
            broker.changed.clear()
            await asyncio.wait_for(broker.changed.wait(), 10)
            due = engine.next_deadline()
            assert due is not None and due <= loop.time() + 0.2 / 2
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


async def test_a_request_of_which_word_comes_while_its_link_goes_costs_no_other_link(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node ends the link of the answers alone; that it took the request is on its way against our own detach."""
    broker.answer = lambda told, value: (200, "", {"done": True})
    answer = Peer.answer

    def detach_then_settle(peer: Peer, event: Delivery) -> None:
        monkeypatch.setattr(Peer, "answer", answer)
        peer.transport.pause_reading()
        (reply,) = peer.replies.values()
        reply.detach(error=Error(Symbol("amqp:internal-error"), "too long an answer"))
        peer.flush()

        def settle() -> None:
            event.link.settle(event.delivery_id, event.delivery_id, Released())
            peer.flush()
            peer.transport.resume_reading()

        peer.loop.call_later(0.3, settle)  # longer than the client waits before it attaches again

    monkeypatch.setattr(Peer, "answer", detach_then_settle)
    sender = await connection.sender("q")
    assert await asyncio.wait_for(connection.manage("READ", "t"), 5) == {"done": True}
    assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 0


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
    with pytest.raises(ConfigError, match="excludes browse and a range"):
        await connection.receiver("q", subscription="s", browse=True)
    with pytest.raises(ConfigError, match=r"ca_file .*is for amqps://"):
        await connect(broker.url, ca_file="/does/not/exist")
    with pytest.raises(ConfigError, match="container_id has 513 bytes"):
        await connect(broker.url, container_id="ü" * 256 + "x")
    with pytest.raises(ConfigError, match="ca_file"):
        await connect("amqps://127.0.0.1:1", ca_file="/does/not/exist")


async def test_a_defect_ends_the_connection_instead_of_hanging(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = await connection.sender("q")
    monkeypatch.setattr(sender._transmission, "pump", lambda: 1 / 0)
    future = await sender.submit(b"x")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(future, 5)


async def test_what_ends_the_task_that_connects_is_told_to_all_who_wait(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fall_over(self: Connection) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Connection, "_connect_once", fall_over)
    connection = await connect(broker.url, wait=False)
    sending = asyncio.create_task(connection.sender("q"))
    for waits in (connection.opened(), sending):
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(waits, 2)
    await asyncio.wait_for(connection.close(), 2)


async def test_a_link_that_fits_no_frame_of_the_node_ends_alone(tmp_path: Path) -> None:
    async with FakeBroker() as broker:
        broker.frame_size = 512
        async with await connect(broker.url, retry_s=10, rng=Random(1)) as connection:
            sender = await connection.sender("q")
            spool = Spool(tmp_path / "spool")
            for _ in range(2):  # the spool is free for the next
                with pytest.raises(LinkError, match=r"^sender to 'x{401}'…: cannot be attached: .* a frame"):
                    await connection.sender("x" * 600, producer="p", when_full=spool)
            for use in (connection.sender, connection.receiver, connection.parts_receiver):
                with pytest.raises(LinkError, match=r"(to|from) 'x{401}'…: cannot be attached: .* a frame"):
                    await use("x" * 600)
            broker.cut()
            assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()


async def test_a_node_that_comes_back_with_smaller_frames_costs_the_links_that_do_not_fit(
    broker: FakeBroker, connection: Connection
) -> None:
    sender = await connection.sender("q")
    other = await connection.sender("x" * 600)
    broker.frame_size = 512
    broker.cut()
    assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
    with pytest.raises(LinkError, match=r"^sender to 'x{401}'…: cannot be attached: .* a frame of the peer's"):
        await asyncio.wait_for(other.send(b"x"), 5)


async def test_a_link_that_goes_out_before_the_node_named_its_frames_ends_alone(broker: FakeBroker) -> None:
    """The first connection ends with it, as the node takes no frame of that size; the second knows better."""
    broker.frame_size = 512
    async with await connect(broker.url, retry_s=10, wait=False, rng=Random(1)) as connection:
        sender, other = await asyncio.gather(
            connection.sender("q"), connection.receiver("x" * 600), return_exceptions=True
        )
        assert isinstance(other, LinkError) and "cannot be attached" in str(other)
        assert not isinstance(sender, BaseException) and await sender.send(b"x") == Accepted()


@pytest.mark.parametrize("name_bytes", [1025, 20_000])
async def test_a_link_with_too_long_a_name_ends_alone(name_bytes: int, connection: Connection) -> None:
    """The node's answer repeats the name, and a node would end the connection for one that is longer yet."""
    sender = await connection.sender("q")
    for ask in (
        connection.sender("a", name="x" * name_bytes),
        connection.receiver("a", name="\ud800" + "x" * (name_bytes - 3)),
        connection.receiver("a", subscription="x" * name_bytes),
        connection.parts_receiver("a", subscription="x" * name_bytes),
    ):
        with pytest.raises(LinkError, match=f"'a': cannot be attached: the link's name has {name_bytes} bytes"):
            await ask
    assert await sender.send(b"x") == Accepted()
    assert connection.reconnects == 0
    await connection.receiver("q", subscription="x" * 1024)


async def test_a_link_whose_attach_cannot_be_encoded_ends_alone(connection: Connection) -> None:
    sender = await connection.sender("q")
    with pytest.raises(LinkError, match=r"^sender to .*: cannot be attached"):
        await connection.sender("\ud800")
    with pytest.raises(LinkError, match=r"^receiver from 'q': cannot be attached"):
        await connection.receiver("q", start_sequence=-1)
    assert await sender.send(b"x") == Accepted()
    assert connection.reconnects == 0


async def test_two_links_of_one_name_cost_the_second(connection: Connection) -> None:
    sender = await connection.sender("q", name="n")
    with pytest.raises(LinkError, match=r"^sender to 'q': cannot be attached: .*'n'"):
        await connection.sender("q", name="n")
    assert await sender.send(b"x") == Accepted()


async def test_a_request_larger_than_the_node_takes_costs_nothing_else(broker: FakeBroker) -> None:
    broker.answer = lambda told, value: (200, "", {})
    broker.message_bytes_max = 4096
    async with await connect(broker.url, retry_s=10, rng=Random(1)) as connection:
        sender = await connection.sender("q")
        with pytest.raises(ManagementError, match=r"^READ t: 400 amqp:link:message-size-exceeded .* 4096 bytes"):
            await connection.manage("READ", "t", None, {"text": "x" * 5000})
        assert await connection.manage("READ", "t") == {}
        assert await sender.send(b"x") == Accepted()
        assert connection.reconnects == 0


async def test_requests_without_an_answer_leave_room_for_others(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked waits no more; that an answer is still to come is not known."""
    asked = 0

    def unanswered(peer: Peer, event: Delivery) -> None:
        nonlocal asked
        asked += 1
        event.link.settle(event.delivery_id, event.delivery_id, AcceptedState())

    with monkeypatch.context() as patch:
        patch.setattr(Peer, "answer", unanswered)
        for round in (1, 2):
            asking = [asyncio.create_task(connection.manage("READ", "t")) for _ in range(management.CREDIT)]
            await broker.until(lambda round=round: asked == round * management.CREDIT)
            for one in asking:
                one.cancel()
            await asyncio.wait(asking)
    broker.answer = lambda told, value: (200, "", {})
    assert await connection.manage("READ", "t", limit_s=5) == {} and connection.reconnects == 0


async def test_a_request_that_waits_goes_out_once_another_timed_out(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management, "CREDIT", 1)
    answer = Peer.answer

    def answered_if_second(peer: Peer, event: Delivery) -> None:
        if b"second" in event.payload:
            answer(peer, event)

    monkeypatch.setattr(Peer, "answer", answered_if_second)
    broker.answer = lambda told, value: (200, "", {})
    first = asyncio.create_task(connection.manage("READ", "first", limit_s=0.3))
    assert await asyncio.wait_for(connection.manage("READ", "second", limit_s=5), 5) == {}
    with pytest.raises(ConnectionFailed, match="no answer"):
        await first


async def test_a_link_that_fails_here_is_detached_at_the_node(broker: FakeBroker, connection: Connection) -> None:
    broker.answer = lambda told, value: (200, "", {})
    await connection.manage("READ", "t")
    await connection.sender("q")
    await connection.receiver("q")
    assert len(broker.connections[0].links) == 4
    for link in list(connection._links):
        link.fail(ConnectionEnded("its disk refused"))
    await broker.until(lambda: not broker.connections[0].links)
    assert connection.reconnects == 0 and await connection.manage("READ", "t") == {}


async def test_small_frames_do_not_wait_for_larger_ones(broker: FakeBroker, connection: Connection) -> None:
    assert connection._wire is not None and connection._wire._transport is not None
    own = connection._wire._transport.get_extra_info("socket")
    assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
