"""A node that is there and takes nothing: `--stall-timeout`, the line that says for what `send` waits, and a pipe."""

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from client.fake_broker import FakeBroker, Peer
from holdfast.amqp.wire.performatives import Released
from holdfast.client import Accepted, Connection
from holdfast.client.verbs.running import Progress, telling_stalls
from holdfast.errors import ConfigError
from support.process import Completed, killed_at_the_end, run_holdfast, summary

LIMIT_S = 30.0


def stops_reading(peer: Peer, link: Any) -> None:
    """The node's link has its credit, and from then on nothing is read."""
    peer.transport.pause_reading()


@asynccontextmanager
async def send(broker: FakeBroker, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`holdfast send q` on a pipe whose other end stays open."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "send", "q", "--url", broker.url, *options,
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with killed_at_the_end(process):
        yield process


async def ended(process: asyncio.subprocess.Process) -> str:
    """What it said on standard error, with its own end and not with that of its input."""
    assert process.stderr is not None
    async with asyncio.timeout(LIMIT_S):
        told = await process.stderr.read()
        await process.wait()
    return told.decode()


async def given_up(broker: FakeBroker, *options: str, reason: str) -> Completed:
    sent = await run_holdfast("send", "q", "--url", broker.url, "--stall-timeout", "1", *options, limit_s=LIMIT_S)
    assert sent.code == 1 and f"holdfast send: q: {reason}" in sent.stderr, sent.stderr
    assert "given up after 1 s (--stall-timeout)" in sent.stderr
    return sent


@pytest.mark.parametrize("options", [[], ["--file", "{file}"], ["--producer", "p"]])
async def test_an_attach_that_is_not_answered(broker: FakeBroker, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"1")
    broker.answers_attaches = False
    options = [option.format(file=tmp_path / "file") for option in options]
    await given_up(broker, *options or ["--count", "1"], reason="the node has not answered the attach")
    assert broker.attaches == 1


async def test_an_attach_that_is_not_answered_after_a_break(broker: FakeBroker) -> None:
    """With a message in doubt, though the pipe is quiet."""
    broker.hold_outcomes = True
    async with send(broker, "--stall-timeout", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        await broker.until(lambda: broker.bodies("q") == [b"1"])
        broker.answers_attaches = False
        broker.cut()
        told = await ended(process)
    assert process.returncode == 1 and "q: the node has not answered the attach" in told
    assert "given up after 1 s" in told and broker.attaches == 2


@pytest.mark.parametrize("options", [[], ["--browse"], ["--to", "."]])
async def test_a_receiver_whose_attach_is_not_answered(broker: FakeBroker, options: list[str]) -> None:
    broker.answers_attaches = False
    got = await run_holdfast(
        "receive", "q", "--url", broker.url, "--count", "1", "--idle-timeout", "1", *options, limit_s=LIMIT_S
    )
    assert got.code == 1 and "q: the node has not answered the attach of the link for 1 s" in got.stderr, got.stderr


async def test_a_node_that_stops_reading(broker: FakeBroker) -> None:
    broker.after_attach = stops_reading
    await given_up(broker, "--count", "400", "--size", "64000", reason="the node reads nothing more")


async def test_a_node_that_stops_reading_within_a_file(broker: FakeBroker, tmp_path: Path) -> None:
    broker.after_attach = stops_reading
    with (tmp_path / "file").open("wb") as file:
        file.truncate(50_000_000)
    await given_up(broker, "--file", str(tmp_path / "file"), reason="the node reads nothing more")


async def test_a_window_that_stays_shut_within_a_file(broker: FakeBroker, tmp_path: Path) -> None:
    broker.after_attach = stops_reading
    broker.incoming_window = 4
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    await given_up(broker, "--file", str(tmp_path / "file"), reason="the node has closed the session's incoming window")


@pytest.mark.parametrize("idle_time_out_s", [None, 0.4])
async def test_answers_that_do_not_come_to_a_pipe_that_is_quiet(
    broker: FakeBroker, idle_time_out_s: float | None
) -> None:
    """The command does not wait for its input; and the empty frames that keep the connection are no progress."""
    broker.hold_outcomes = True
    broker.idle_time_out_s = idle_time_out_s
    async with send(broker, "--stall-timeout", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        told = await ended(process)
    assert process.returncode == 1 and summary(told)["accepted"] == 0
    assert "q: the node has not yet stored what was sent; given up after 1 s" in told


async def test_a_connection_that_is_given_up_ends_it_though_the_pipe_is_quiet(broker: FakeBroker) -> None:
    async with send(broker, "--retry", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        await broker.until(lambda: broker.bodies("q") == [b"1"])
        await broker.stop()
        told = await ended(process)
    assert process.returncode == 1 and "Connection refused" in told and summary(told)["accepted"] == 1


def releases(times: int) -> Callable[[bytes], Any]:
    left = times

    def decide(payload: bytes) -> Any:
        nonlocal left
        left -= 1
        return Released() if left >= 0 else None

    return decide


@pytest.mark.parametrize("options", [[], ["--rate", "0.05"]])
async def test_what_was_given_back_is_offered_again_while_the_pipe_is_quiet(
    broker: FakeBroker, options: list[str]
) -> None:
    """So a release is no stall either, nor while the next line waits for its turn."""
    broker.decide = releases(2)
    async with send(broker, "--stall-timeout", "4", *options) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n" if options else b"1\n")
        await broker.until(lambda: broker.bodies("q") == [b"1"])
        await asyncio.sleep(5)
        assert process.returncode is None
        if not options:
            process.stdin.close()
            assert summary(await ended(process))["accepted"] == 1 and process.returncode == 0


async def test_a_node_that_gives_everything_back_is_given_up(broker: FakeBroker) -> None:
    """Though what is offered again leaves this system each time."""
    broker.decide = lambda payload: Released()
    await given_up(broker, "--count", "3", reason="the node gives every message back")
    assert broker.bodies("q") == []


@pytest.mark.parametrize("size", [1, 20_000_000])
async def test_a_node_that_gives_a_file_back_is_given_up(broker: FakeBroker, tmp_path: Path, size: int) -> None:
    """Also where each attempt takes its time."""
    (tmp_path / "file").write_bytes(bytes(size))
    broker.decide = lambda payload: Released()
    await given_up(broker, "--file", str(tmp_path / "file"), reason="the node gives every message back")
    assert broker.bodies("q") == []


class Slow(asyncio.Protocol):
    """Passes on what a client sends, so many bytes a second, and all that comes back."""

    def __init__(self, broker: FakeBroker, bytes_s: int) -> None:
        self.broker = broker
        self.bytes_s = bytes_s
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.broker.port)
        back = asyncio.create_task(self.pass_back(theirs, writer))
        try:
            while data := await reader.read(self.bytes_s // 20):
                ours.write(data)
                await asyncio.sleep(len(data) / self.bytes_s)
        finally:
            back.cancel()
            ours.close()
            writer.close()

    async def pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)


@asynccontextmanager
async def slow_way(broker: FakeBroker, bytes_s: int) -> AsyncIterator[str]:
    """The URL of a way to the broker that takes so many bytes a second."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # of what it accepts too
    own.bind(("127.0.0.1", 0))
    slow = Slow(broker, bytes_s)
    server = await asyncio.start_server(slow.run, sock=own, limit=4096)
    try:
        yield f"amqp://127.0.0.1:{own.getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [400_000, 4_000_000])
async def test_bytes_that_leave_are_no_stall(broker: FakeBroker, size: int) -> None:
    """A long line over a thin link, whether or not the system's own buffer takes all of it at once."""
    async with slow_way(broker, size // 6) as url:
        sent = await run_holdfast(
            "send", "q", "--url", url, "--count", "1", "--size", str(size), "--stall-timeout", "3", limit_s=LIMIT_S
        )
    assert sent.code == 0 and summary(sent.stderr)["seconds"] > 4, sent.stderr
    assert [len(body) for body in broker.bodies("q")] == [size]


async def test_nobody_who_reads_what_it_says(broker: FakeBroker) -> None:
    """The limit holds though the line that says for what it waits cannot be written."""
    broker.hold_outcomes = True
    reader, writer = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "send", "q", "--url", broker.url, "--stall-timeout", "4", "--count", "1",
        stdin=asyncio.subprocess.DEVNULL, stderr=writer,
    )  # fmt: skip
    async with killed_at_the_end(process):
        os.close(writer)
        os.close(reader)
        await broker.until(lambda: broker.bodies("q") != [])
        async with asyncio.timeout(LIMIT_S):
            await process.wait()
    assert process.returncode == 1


async def test_what_ends_the_watch_ends_the_sender(connection: Connection) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    sender = await connection.sender("q")
    args = argparse.Namespace(verb="send", address="q", stall_timeout=1.0)
    async with telling_stalls(args, sender, Progress(), broken):
        await asyncio.wait_for(sender.over, LIMIT_S)
    assert isinstance(sender.failure, ZeroDivisionError)


async def test_what_a_sender_that_is_not_attached_yet_waits_for(broker: FakeBroker, connection: Connection) -> None:
    broker.answers_attaches = False
    sender = await connection.sender("q", producer="p", wait=False)
    assert sender.waits_for == "attach" and not sender.over.done()
    with pytest.raises(ConfigError, match="before the node answered"):
        await sender.post(b"1")  # its number is not known
    broker.answers_attaches = True
    broker.cut()
    await sender.ready()
    assert sender.waits_for is None and await sender.send(b"1") == Accepted()


async def test_for_what_a_sender_waits(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    assert sender.waits_for is None
    broker.hold_outcomes = True
    first = await sender.submit(b"1")
    await broker.until(lambda: broker.bodies("q") == [b"1"])
    assert sender.waits_for == "answers"
    before = sender.progress
    broker.release_outcomes()
    assert await first == Accepted()
    assert sender.waits_for is None and sender.progress > before
    assert not sender.over.done()
    await sender.close()
    assert sender.over.done()
