"""Messages in parts, against the broker of the tests and against nodes: whole, once, and never in memory."""

import asyncio
import hashlib
import json
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Symbol
from holdfast.cli import parser
from holdfast.client import Accepted, BodyGone, Connection, DeliveryBroken, LinkError, Rejected, Sender, Spool, connect
from holdfast.client.blocking import BlockingConnection
from holdfast.client.messages.bodies import PART_BYTES, SECTION_BYTES, Body, Parts
from holdfast.client.outcomes import Released
from holdfast.client.verbs import files
from holdfast.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from holdfast.units import MIB
from support.eventually import eventually_true
from support.process import NodeProcess, run_holdfast
from support.screen import Screen

LIMIT_S = 30


def noise(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


async def encoded(parts: Parts, size: int | None = None) -> bytes:
    return b"".join([piece async for piece in Body(parts, size).sections()])


# ----------------------------------------------------------------------------------------------------- the body


async def test_a_body_from_a_pipe_needs_its_size(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"pipe is no regular file; give one, or the size of the body$"):
        Body(pipe)
    writing = asyncio.create_task(asyncio.to_thread(pipe.write_bytes, b"body"))
    assert await encoded(pipe, 4) == await encoded([b"body"], 4)
    await writing


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * SECTION_BYTES + 5])
@pytest.mark.parametrize("told", [True, False])
async def test_every_kind_of_source_is_the_same_body(tmp_path: Path, size: int, told: bool) -> None:
    whole = noise(size)
    path = tmp_path / "body"
    path.write_bytes(whole)
    items = [whole[at : at + 77_777] for at in range(0, size, 77_777)]

    async def later() -> AsyncIterator[bytes]:
        for item in items:
            yield item

    sources: list[Parts] = [items, iter(items), later(), lambda: items, later, lambda: path]
    for source in sources:
        payload = await encoded(source, size if told else None)
        message = Message.decode(payload)
        assert message.body_bytes() == whole
        if told:
            assert len(payload) == Body([], size).length(0)
        assert message.data is not None and (len(message.data) == 1) >= told
    assert Message.decode(await encoded(path)).data == [whole]


async def test_a_size_that_is_wrong_is_told(tmp_path: Path) -> None:
    for size, found in ((2, "more"), (4, "3")):
        with pytest.raises(ConfigError, match=f"has {found} bytes; expected {size}"):
            await encoded([b"abc"], size)
    with pytest.raises(ConfigError, match="give a file"):
        Body(tmp_path / "none")
    with pytest.raises(ConfigError, match="invalid str in body; expected bytes"):
        await encoded(["text"])  # type: ignore[list-item]  # the mistake that is told
    with pytest.raises(ConfigError, match="at least 0"):
        Body([], -1)


# --------------------------------------------------------------------------------------------- sending in parts


async def test_it_arrives_whole_between_others(broker: FakeBroker, connection: Connection) -> None:
    whole = noise(3 * MIB)
    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        first = await sender.submit(b"before")
        body = asyncio.ensure_future(
            sender.send_parts([whole], message=Message(properties=Properties(subject="s")), size=len(whole))
        )
        await asyncio.sleep(0)
        after = await sender.submit(b"after")
        assert [await first, await body, await after] == [Accepted()] * 3
    assert broker.bodies("q") == [b"before", whole, b"after"]
    properties = Message.decode(broker.queue("q").appended[1].bare).properties
    assert properties is not None and properties.subject == "s"


async def test_what_the_body_raises_is_raised_and_nothing_is_sent(broker: FakeBroker, connection: Connection) -> None:
    def broken() -> Iterator[bytes]:
        yield noise(2 * MIB)
        raise ValueError("the disk went")

    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ValueError, match="the disk went"):
            await sender.send_parts(broken())
        with pytest.raises(ConfigError, match="expected 9"):
            await sender.send_parts([noise(MIB)], size=9)
        assert await sender.send(b"next") == Accepted()
    assert broker.bodies("q") == [b"next"] and sender.in_doubt == 0


async def test_arguments_that_contradict_each_other(connection: Connection, tmp_path: Path) -> None:
    sender = await connection.sender("q")
    with pytest.raises(ConfigError, match=r"(use|give) one of them"):
        await sender.send_parts([b"a"], message=Message(data=[b"b"]))
    with pytest.raises(ConfigError, match=r"(use|give) one of them"):
        await sender.send_parts([b"a"], message=Message(value=None))
    with pytest.raises(ConfigError, match="a message with a body in parts cannot have a footer"):
        await sender.send_parts([b"a"], message=Message(footer={Symbol("check"): 1}))
    spooling = await connection.sender("q", producer="p", when_full=Spool(tmp_path / "spool"))
    with pytest.raises(ConfigError, match="Spool"):
        await spooling.send_parts([b"a"])


async def test_what_the_node_does_not_take_is_not_sent(node: NodeProcess) -> None:
    async with await connect(node.url) as connection, asyncio.timeout(LIMIT_S):
        sender = await connection.sender("q")
        sender._transmission.message_bytes_max = limit = 3 * MIB
        assert isinstance(await sender.send_parts([b"x" * limit], size=limit, check=False), Rejected)
        assert isinstance(await sender.send_parts([b"x" * MIB] * 4, check=False), Rejected)
        assert isinstance(await sender.send_parts([b"x" * MIB] * 2), Accepted)
        assert (await connection.manage("READ", "holdfast:queue", "q"))["messages"] == 1


@pytest.mark.parametrize("producer", [None, "p"])
async def test_after_a_break_it_begins_anew_and_arrives_once(node: NodeProcess, producer: str | None) -> None:
    whole = noise(20 * MIB)
    readings = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal readings
        readings += 1
        for at in range(0, len(whole), MIB):
            if readings == 1 and at == 10 * MIB:
                breaking.append(asyncio.ensure_future(restart()))
                await asyncio.Event().wait()  # until the break ends this reading
            yield whole[at : at + MIB]

    async def restart() -> None:
        await node.kill()
        await node.restart(same_port=True)

    breaking: list[asyncio.Future[None]] = []
    async with await connect(node.url) as connection, asyncio.timeout(LIMIT_S):
        sender = await connection.sender("q", producer=producer)
        assert await sender.send_parts(body) == Accepted()
        assert readings == 2
        assert (await connection.manage("READ", "holdfast:queue", "q"))["messages"] == 1
        receiver = await connection.parts_receiver("q", start_sequence=1, end_sequence=2)
        seen = [b"".join([part async for part in delivery.parts()]) async for delivery in receiver]
    assert seen == [whole]


async def test_an_iterator_that_was_begun_cannot_begin_anew(broker: FakeBroker, connection: Connection) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield noise(2 * MIB)
        broker.cut()
        yield noise(2 * MIB)

    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(BodyGone):
            await sender.send_parts(body())
        assert await sender.send(b"next") == Accepted()
    assert broker.bodies("q") == [b"next"]


async def stuck() -> AsyncIterator[bytes]:
    yield noise(2 * MIB)
    await asyncio.Event().wait()


def is_sending_parts(sender: Sender) -> bool:
    return sender._transmission.outflow is not None


@pytest.mark.parametrize("producer", [None, "p"])
async def test_who_is_cancelled_within_a_body_gives_it_up(
    producer: str | None, broker: FakeBroker, connection: Connection
) -> None:
    """What comes behind it goes on, and `close` does not wait for the body."""
    sender = await connection.sender("q", producer=producer)
    async with asyncio.timeout(LIMIT_S):
        for _ in range(2):
            sending = asyncio.create_task(sender.send_parts(stuck()))
            behind = asyncio.create_task(sender.send(b"behind"))
            await eventually_true(lambda: sender.in_doubt == 2 and is_sending_parts(sender), what="it is sent")
            sending.cancel()
            assert await behind == Accepted()
        last = asyncio.create_task(sender.send_parts(stuck()))
        await eventually_true(lambda: is_sending_parts(sender), what="it is sent")
        last.cancel()
        await connection.close()
    assert broker.bodies("q") == [b"behind", b"behind"] and sender.accepted == 2


async def test_who_is_cancelled_before_its_turn_gives_it_up(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        first, second = (asyncio.create_task(sender.send_parts(stuck())) for _ in range(2))
        await eventually_true(lambda: sender.in_doubt == 2, what="both wait")
        for task in (second, first):
            task.cancel()
            await asyncio.wait([task])
        assert sender.in_doubt == 0 and await sender.send(b"x") == Accepted()


async def test_who_is_cancelled_within_a_break_gives_it_up(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        sending = asyncio.create_task(sender.send_parts(stuck))
        await eventually_true(lambda: is_sending_parts(sender), what="it is sent")
        await broker.stop()
        await eventually_true(lambda: not is_sending_parts(sender), what="the link is gone")
        sending.cancel()
        await asyncio.wait([sending])
        await broker.listen()
        assert await sender.send(b"x") == Accepted()
        await connection.close()
    assert broker.bodies("q") == [b"x"]


async def test_who_is_cancelled_behind_a_whole_body_leaves_it_in_doubt(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.hold_outcomes = True
    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        sending = asyncio.create_task(sender.send_parts([b"whole"]))
        await broker.until(lambda: broker.bodies("q") == [b"whole"])
        sending.cancel()
        await asyncio.wait([sending])
        assert sender.in_doubt == 1
        broker.release_outcomes()
        await sender.drain()
    assert sender.accepted == 1


# ------------------------------------------------------------------------------------------- receiving in parts


async def test_small_and_large_come_in_order(broker: FakeBroker, connection: Connection, tmp_path: Path) -> None:
    bodies = [b"", b"small", noise(5 * MIB), b"x" * 70_000, b"last"]
    broker.put("q", *bodies)
    receiver = await connection.parts_receiver("q", count_max=5)
    seen = []
    async with asyncio.timeout(LIMIT_S):
        async for delivery in receiver:
            path = tmp_path / "body"
            assert await delivery.save(path) == len(bodies[len(seen)])
            seen.append(path.read_bytes())
            assert delivery.message.message_annotations and delivery.sequence == len(seen)
            delivery.accept()
        await receiver.close()
        await broker.until(lambda: broker.accepts == 5)
    assert seen == bodies


async def test_what_nobody_reads_stands_still_and_nothing_else_does(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", noise(20 * MIB))
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        delivery = await anext(receiver)
        sender = await connection.sender("other")
        for _ in range(50):
            assert await sender.send(b"x") == Accepted()
        assert delivery._unread_bytes < 3 * MIB and not delivery.whole
        digest = hashlib.sha256()
        async for part in delivery.parts():
            digest.update(part)
        delivery.accept()
    assert digest.digest() == hashlib.sha256(noise(20 * MIB)).digest()


async def test_rules_of_a_body_are_told(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", noise(8 * MIB), b"next")
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        delivery = await anext(receiver)
        with pytest.raises(LocalProtocolError, match="before its end"):
            delivery.accept()
        with pytest.raises(LocalProtocolError, match="read or discard it"):
            await anext(receiver)
        delivery.reject()  # the rest is thrown away as it comes, and then it is told
        with pytest.raises(LocalProtocolError, match="discarded"):
            await anext(delivery.parts())
        following = await anext(receiver)
        assert [part async for part in following.parts()] == [b"next"]
        with pytest.raises(LocalProtocolError, match="read or discarded already"):
            await anext(following.parts())
        following.accept()
        await broker.until(lambda: broker.accepts == 2)
    assert broker.queue("q").entries == []


async def test_released_in_its_middle_it_goes_back(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", noise(8 * MIB))
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        (await anext(receiver)).release()
        again = await anext(receiver)
        assert sum([len(part) async for part in again.parts()]) == 8 * MIB
        again.accept()
        await broker.until(lambda: broker.accepts == 1)


async def test_a_break_in_its_middle_ends_it_and_it_comes_anew(broker: FakeBroker, connection: Connection) -> None:
    whole = noise(8 * MIB)
    broker.put("q", b"held", whole)
    receiver = await connection.parts_receiver("q", count_max=2)
    async with asyncio.timeout(LIMIT_S):
        held = await anext(receiver)
        broken = await anext(receiver)
        with pytest.raises(DeliveryBroken):
            async for _ in broken.parts():
                broker.cut()
        again = await anext(receiver)
        assert b"".join([part async for part in again.parts()]) == whole
        again.accept()
        held.accept()
        await broker.until(lambda: broker.accepts == 2)
        with pytest.raises(StopAsyncIteration):
            await anext(receiver)
    assert receiver.received == 2 and receiver.duplicates_suppressed == 1


async def test_what_is_held_or_accepted_is_not_shown_again(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", noise(2 * MIB, 1), noise(2 * MIB, 2), noise(2 * MIB, 3))
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        taken = []
        for _ in range(2):
            delivery = await anext(receiver)
            assert len([part async for part in delivery.parts()]) > 1
            taken.append(delivery)
        broker.cut()
        third = await anext(receiver)
        while receiver.duplicates_suppressed < 2:
            with pytest.raises(DeliveryBroken):  # it was on its way when the connection broke
                async for _ in third.parts():
                    pass
            third = await anext(receiver)
        assert b"".join([part async for part in third.parts()]) == noise(2 * MIB, 3)
        for delivery in (*taken, third):
            delivery.accept()
        await broker.until(lambda: broker.accepts == 3)


async def test_a_body_of_another_kind_is_told_and_can_be_given_back(broker: FakeBroker, connection: Connection) -> None:
    broker.append("q", Message(value=[1, 2]).encode())
    broker.append("q", Message(value="text" * 100_000).encode())
    broker.offer()
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        odd = await anext(receiver)
        with pytest.raises(RemoteProtocolError, match="in parts"):
            await anext(odd.parts())
        odd.reject()
        text = await anext(receiver)
        assert b"".join([part async for part in text.parts()]) == b"text" * 100_000
        text.accept()
        await broker.until(lambda: broker.accepts == 2)


async def test_the_node_s_polite_goodbye_in_its_middle_ends_it(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", b"held", noise(20 * MIB))
    receiver = await connection.parts_receiver("q")
    async with asyncio.timeout(LIMIT_S):
        held = await anext(receiver)
        broken = await anext(receiver)
        with pytest.raises(DeliveryBroken, match="in the middle of a message"):
            async for _ in broken.parts():
                broker.detach_all(None)
        with pytest.raises(StopAsyncIteration):
            await anext(receiver)
        assert [part async for part in held.parts()] == [b"held"]
    assert receiver.ended and receiver.received == 1 and broken.settled


def sessions_in_use(connection: Connection) -> int:
    assert connection._wire is not None
    return len(connection._wire.engine._sessions)


async def test_its_session_ends_with_it(broker: FakeBroker, connection: Connection) -> None:
    async with asyncio.timeout(LIMIT_S):
        for _ in range(300):  # more than a connection has sessions
            receiver = await connection.parts_receiver("q")
            await receiver.close()
    assert connection.is_open and connection.reconnects == 0


async def test_its_session_ends_with_its_range(broker: FakeBroker, connection: Connection) -> None:
    broker.put("q", b"one", b"two")
    async with asyncio.timeout(LIMIT_S):
        for _ in range(300):  # more than a connection has sessions
            receiver = await connection.parts_receiver("q", start_sequence=1, end_sequence=3)
            assert [b"".join([part async for part in item.parts()]) async for item in receiver] == [b"one", b"two"]
        await connection.receiver("q")  # behind the answer to the last end
    assert connection.is_open and connection.reconnects == 0 and sessions_in_use(connection) == 1


async def test_memory_stays_flat(node: NodeProcess) -> None:
    size = 32 * MIB
    part = noise(MIB)
    async with await connect(node.url) as connection, asyncio.timeout(3 * LIMIT_S):
        sender = await connection.sender("q")
        receiver = await connection.parts_receiver("q")
        tracemalloc.start()
        try:
            assert await sender.send_parts(part for _ in range(size // MIB)) == Accepted()
            delivery = await anext(receiver)
            assert sum([len(piece) async for piece in delivery.parts()]) == size
            delivery.accept()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12 * MIB


async def test_given_back_by_the_node_is_an_outcome(broker: FakeBroker, connection: Connection) -> None:
    from holdfast.amqp.wire import performatives

    broker.decide = lambda _: performatives.Released()
    sender = await connection.sender("q")
    async with asyncio.timeout(LIMIT_S):
        assert await sender.send_parts([noise(2 * MIB)], check=False) == Released()


# ------------------------------------------------------------------------------------------------- the commands


async def test_files_there_and_back(node: NodeProcess, tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (source / "large.bin").write_bytes(noise(9 * MIB))
    (source / "empty").write_bytes(b"")
    files = [argument for name in ("large.bin", "empty") for argument in ("--file", str(source / name))]
    sent = await run_holdfast("send", "q", *files, "--url", node.url)
    assert sent.code == 0, sent.stderr
    assert json.loads(sent.stderr.splitlines()[-1])["accepted"] == 2
    got = await run_holdfast("receive", "q", "--to", str(target), "--count", "2", "--json", "--url", node.url)
    assert got.code == 0, got.stderr
    lines = [json.loads(line) for line in got.stdout.splitlines()]
    assert [(line["file"], line["bytes"]) for line in lines] == [
        (str(target / "1-large.bin"), 9 * MIB),
        (str(target / "2-empty"), 0),
    ]
    assert (target / "1-large.bin").read_bytes() == noise(9 * MIB)
    assert sorted(path.name for path in target.iterdir()) == ["1-large.bin", "2-empty"]
    assert json.loads(got.stderr.splitlines()[-1])["received"] == 2


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", ".hidden", "a\nb", "a/b", "x" * 129, 7, None])
def test_a_name_that_is_no_plain_one_is_left_out(tmp_path: Path, name: object) -> None:
    message = Message(application_properties={"file-name": name}, data=[b"x"])
    assert files._name(3, message, tmp_path) == "3"
    assert files._name(0, message, tmp_path) == "1"
    (tmp_path / "1").touch()
    assert files._name(0, message, tmp_path) == "2"


@pytest.mark.parametrize("name", ["plain.txt", "a b", "_", "x" * 128])
def test_a_plain_name_follows_the_sequence(tmp_path: Path, name: str) -> None:
    message = Message(application_properties={"file-name": name}, data=[b"x"])
    assert files._name(3, message, tmp_path) == f"3-{name}"
    assert files._name(0, message, tmp_path) == f"1-{name}"
    (tmp_path / f"1-{name}").touch()
    assert files._name(0, message, tmp_path) == f"2-{name}"


async def test_a_name_leads_nowhere_else(node: NodeProcess, tmp_path: Path) -> None:
    target = tmp_path / "to"
    target.mkdir()
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        await sender.send(Message(application_properties={"file-name": "../../etc/passwd"}, data=[b"x"]))
    got = await run_holdfast("receive", "q", "--to", str(target), "--count", "1", "--url", node.url)
    assert (got.code, got.stdout.split()) == (0, [str(target / "1")])
    assert (target / "1").read_bytes() == b"x"


async def test_the_line_of_progress_goes_before_a_path_and_an_error_are_printed(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    broker.put("q", b"one", b"two")
    (tmp_path / "3").mkdir()
    broker.put("q", b"three")
    args = parser().parse_args(["receive", "q", "--to", str(tmp_path), "--count", "3", "--url", broker.url])
    async with asyncio.timeout(LIMIT_S):
        assert await files._ReceiveFiles(args, tmp_path).run() == 1
    assert "0 of 3 received" in screen.getvalue()
    one, two, error, summary = (line.rpartition("\x1b[K")[2] for line in screen.getvalue().strip().split("\n"))
    assert (one, two) == (str(tmp_path / "1"), str(tmp_path / "2"))
    assert error.startswith("holdfast receive: ") and json.loads(summary)["received"] == 2


async def test_a_directory_that_takes_no_file_loses_no_message(node: NodeProcess, tmp_path: Path) -> None:
    target = tmp_path / "to"
    target.mkdir()
    (target / "1").mkdir()
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
        got = await run_holdfast("receive", "q", "--to", str(target), "--count", "1", "--url", node.url)
        assert got.code == 1 and "the message stays in its queue" in got.stderr
        assert (await connection.manage("READ", "holdfast:queue", "q"))["messages"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("send", "q", "f", "--file", "x"), "FILE and --file"),
        (("send", "q", "--count", "1", "--file", "x"), "--count and --file"),
        (("send", "q", "--file", "/none/there"), "give a file that can be read"),
        (("receive", "q", "--to", "/none/there"), "give one that exists"),
    ],
)
async def test_mistakes_are_told(arguments: tuple[str, ...], text: str) -> None:
    result = await run_holdfast(*arguments)
    assert result.code == 2 and text in result.stderr


async def test_a_range_ends_before_a_message_that_is_too_large_and_its_bytes_are_read_alone(
    start_node: Callable[..., Awaitable[NodeProcess]],
) -> None:
    node = await start_node("hub")
    large = Message(properties=Properties(message_id="x"), value=["v" * 3 * MIB])
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        for message in (Message(data=[b"1"]), large, Message(data=[b"3"])):
            await sender.send(message)

    def read() -> tuple[list[int], Message, list[object]]:
        with BlockingConnection(node.url) as connection:
            sequences: list[int] = []
            with pytest.raises(LinkError, match="sequence 2 is larger than this link takes") as caught:
                for entries in connection.read_range("q", 1, 4, message_bytes_max=MIB):
                    sequences += [entry.sequence for entry in entries]
            assert caught.value.condition == "amqp:link:message-size-exceeded"
            ((sequence, enqueued_ms, whole),) = (
                (entry.sequence, entry.enqueued_ms, b"".join(entry.parts)) for entry in connection.read_first("q", 2, 4)
            )
            assert enqueued_ms > 0
            return [*sequences, sequence], Message.decode(whole), list(connection.read_first("q", 5, 5))

    sequences, message, nothing = await asyncio.wait_for(asyncio.to_thread(read), LIMIT_S)
    assert sequences == [1, 2] and nothing == []
    assert message.value == large.value and message.properties == large.properties
