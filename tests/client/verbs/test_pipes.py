"""`holdfast receive` into a pipe: what its reader did not take out of it is still in the queue, as if not offered."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.client import connect
from support.eventually import eventually_async
from support.process import NodeProcess, killed_at_the_end, run_holdfast

COUNT = 1_200
LIMIT_S = 30.0


def line(number: int) -> bytes:
    return b"%07d " % number + b"x" * 56 + b"\n"


async def fill(node: NodeProcess, count: int = COUNT) -> None:
    text = b"".join(map(line, range(1, count + 1))).decode()
    sent = await run_holdfast("send", "q", "--url", node.url, stdin=text)
    assert sent.code == 0


@asynccontextmanager
async def receiving(node: NodeProcess, *more: str, out: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`holdfast receive q` with that descriptor for its standard output, of which this process keeps no copy."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "receive", "q", "--url", node.url, *more,
        stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(out)
    async with killed_at_the_end(process):
        yield process


async def left(node: NodeProcess) -> list[tuple[bytes, int]]:
    """What is in the queue: bodies, and how often each failed."""
    async with await connect(node.url) as connection:
        told = await connection.manage("READ", "holdfast:queue", "q")
        receiver = await connection.receiver("q", count_max=int(told["messages"]), credit=2 * COUNT)
        found: list[tuple[bytes, int]] = []
        while batch := await receiver.batch(timeout_s=2.0):
            for delivery in batch:
                header = delivery.message.header
                found.append((delivery.message.body_bytes(), 0 if header is None else header.delivery_count or 0))
        return found


async def messages(node: NodeProcess) -> int:
    async with await connect(node.url) as connection:
        return int((await connection.manage("READ", "holdfast:queue", "q"))["messages"])


def expected(first: int) -> list[tuple[bytes, int]]:
    return [(line(number)[:-1], 0) for number in range(first, COUNT + 1)]


async def read_some(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await asyncio.to_thread(os.read, descriptor, size - len(data))
    return data


@pytest.mark.parametrize("size", [1, 10 * 65 + 1, 400 * 65 + 64])
async def test_what_the_reader_did_not_read_stays_in_the_queue(node: NodeProcess, size: int) -> None:
    """To the byte: the messages whose lines it read whole have left, and no other."""
    await fill(node)
    ours, theirs = os.pipe()
    async with receiving(node, out=theirs) as process:
        assert len(await read_some(ours, size)) == size
        os.close(ours)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
    said, summary = stderr.decode().splitlines()
    told = json.loads(summary)
    assert (process.returncode, told["received"]) == (1, size // 65)
    are = "message that was read is" if size // 65 == 1 else "messages that were read are"
    assert said == f"holdfast receive: q: the reader of the output ended; {size // 65} {are} off the queue"
    assert await left(node) == expected(size // 65 + 1)


async def test_receive_into_head(node: NodeProcess) -> None:
    """A shell's pipe: what `head` read for its one line is gone, a buffer of it, and not what lay behind it."""
    await fill(node)
    command = f"{sys.executable} -m holdfast receive q --url {node.url} | head -n 1"
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    stdout, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert stdout == line(1)
    found = await left(node)
    assert found == expected(COUNT + 1 - len(found)) and COUNT - len(found) <= 65_536 // 2 // 65


async def test_a_reader_that_goes_took_nothing_from_who_browses(node: NodeProcess) -> None:
    await fill(node)
    ours, theirs = os.pipe()
    async with receiving(node, "--browse", out=theirs) as process:
        await read_some(ours, 65)
        os.close(ours)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert b"off the queue" not in stderr and len(await left(node)) == COUNT


async def test_a_reader_that_goes_while_nothing_comes_ends_the_command(node: NodeProcess) -> None:
    ours, theirs = os.pipe()
    async with receiving(node, out=theirs) as process:
        await asyncio.sleep(0.5)
        os.close(ours)
        await asyncio.wait_for(process.wait(), LIMIT_S)
    assert process.returncode == 1


async def test_what_a_slow_reader_has_taken_is_accepted_while_it_reads_on(node: NodeProcess) -> None:
    await fill(node)
    ours, theirs = os.pipe()
    async with receiving(node, out=theirs) as process:
        await read_some(ours, 100 * 65)
        await eventually_async(lambda: messages(node), lambda count: count == COUNT - 100, what="100 accepted")
        process.kill()
        await process.wait()
    os.close(ours)
    await eventually_async(lambda: messages(node), lambda count: count == COUNT - 100, what="no more accepted")


@pytest.mark.parametrize("how", ["count", "idle"])
async def test_at_its_end_it_does_not_wait_for_ever_for_a_reader_that_reads_later(node: NodeProcess, how: str) -> None:
    """A program that waits for the command before it reads what it printed gets all, and the queue forgets it."""
    await fill(node, 20)
    options = ["--count", "20"] if how == "count" else ["--idle-timeout", "0.5"]
    ours, theirs = os.pipe()
    async with receiving(node, *options, out=theirs) as process:
        await asyncio.wait_for(process.wait(), LIMIT_S)
    assert process.returncode == 0
    assert await read_some(ours, 20 * 65) == b"".join(map(line, range(1, 21)))
    os.close(ours)
    assert await messages(node) == 0


@pytest.mark.parametrize("number", [signal.SIGINT])
async def test_a_signal_accepts_what_was_printed_and_nothing_else(node: NodeProcess, number: int) -> None:
    await fill(node)
    ours, theirs = os.pipe()
    reading = asyncio.create_task(asyncio.to_thread(read_all, ours))
    async with receiving(node, out=theirs) as process:
        await eventually_async(lambda: messages(node), lambda count: count == 0, what="all accepted")
        process.send_signal(number)
        await asyncio.wait_for(process.wait(), LIMIT_S)
    assert await reading == b"".join(map(line, range(1, COUNT + 1)))
    os.close(ours)


def read_all(descriptor: int) -> bytes:
    data = b""
    while some := os.read(descriptor, 1 << 20):
        data += some
    return data


async def test_a_file_that_takes_no_more_gives_back_what_was_not_printed(node: NodeProcess, tmp_path: Any) -> None:
    """A limit on the size of files stands for a full disk."""
    await fill(node)
    path = tmp_path / "out"
    command = f"ulimit -f 10; exec {sys.executable} -m holdfast receive q --url {node.url} > {path}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f"trap '' XFSZ; {command}", stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode == 1 and b"standard output: File too large" in stderr
    whole = path.stat().st_size // 65
    assert 0 < whole < COUNT
    assert await left(node) == expected(whole + 1)


async def test_what_was_under_way_at_a_close_did_not_fail(node: NodeProcess) -> None:
    """Nobody has seen it: at once after the attach nothing of it has come, and it is given back all the same."""
    await fill(node)
    for _ in range(5):
        async with await connect(node.url) as connection:
            await connection.receiver("q", credit=2 * COUNT)
    assert await left(node) == expected(1)
