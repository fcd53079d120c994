"""`holdfast feed` as a process, against a real node: killed, refused, flooded (docs/feed.md)."""

import asyncio
import errno
import os
import pty
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from holdfast.client import Connection, connect
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast, summary
from support.stored import bodies_in

LIMIT_S = 60.0


async def become(connection: Connection, queue: str, wanted: Sequence[bytes]) -> None:
    async def count() -> int:
        return len(await bodies_in(connection, queue))

    await eventually_async(count, lambda found: found >= len(wanted), what=f"{len(wanted)} messages", limit_s=LIMIT_S)
    assert await bodies_in(connection, queue) == list(wanted)


async def feed(node: NodeProcess, journal: Path, *options: str) -> NodeProcess:
    arguments = ["feed", "q", "--producer", "p", "--journal", str(journal), "--url", node.url, *options]
    process = NodeProcess(arguments)
    await process.restart(limit_s=LIMIT_S)
    return process


Connect = Callable[[NodeProcess], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
async def device() -> AsyncIterator[Connect]:
    """Connects a device to a feed; at the end all are closed."""
    writers: list[asyncio.StreamWriter] = []

    async def connect_device(process: NodeProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = process.ready["listen"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        return reader, writer

    yield connect_device
    for writer in writers:
        writer.transport.abort()


async def closed(reader: asyncio.StreamReader) -> None:
    """The feed has ended the connection."""
    try:
        assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    except ConnectionResetError:
        pass


def journal_bytes(journal: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(journal.glob("*.journal")))


async def journaled(journal: Path, text: bytes) -> None:
    async def there() -> bool:
        return text in journal_bytes(journal)

    await eventually_async(there, lambda found: found, what=f"{text!r} in the journal", limit_s=LIMIT_S)


async def test_files_that_grow_and_are_rotated_arrive_once_though_it_is_killed(
    node: NodeProcess, tmp_path: Path
) -> None:
    files, written = tmp_path / "files", []
    files.mkdir()
    path = files / "a.log"

    def write(count: int) -> None:
        with path.open("ab") as file:
            for _ in range(count):
                written.append(b"line %d" % len(written))
                file.write(written[-1] + b"\n")
                file.flush()

    async def go_on() -> None:
        for turn in range(1_000):
            write(7)
            if turn % 10 == 9:
                path.rename(files / f"a.log.{turn:03d}")
            await asyncio.sleep(0.005)

    write(1)
    process = await feed(node, tmp_path / "j", "--folder", str(files), "--poll", "0.02")
    writing = asyncio.create_task(go_on())
    async with process, await connect(node.url) as connection:
        for seen in (100, 300, 600):
            await journaled(tmp_path / "j", b"line %d" % seen)
            await process.kill()
            if seen == 300:
                await node.kill()
                await node.restart(same_port=True)
            await process.restart(limit_s=LIMIT_S)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

        async def count() -> int:
            return len(await bodies_in(connection, "q"))

        await eventually_async(count, lambda found: found >= len(written), what="all lines", limit_s=LIMIT_S)
        assert sorted(await bodies_in(connection, "q")) == sorted(written)
        await process.stop()
        assert summary(process.stderr)["left"] == 0


async def test_what_a_socket_gave_is_kept_while_the_node_is_down_and_over_a_kill(
    node: NodeProcess, tmp_path: Path, device: Connect
) -> None:
    async with await feed(node, tmp_path / "j", "--listen", "127.0.0.1:0", "--format", "json") as process:
        _, writer = await device(process)
        writer.write(b'{"n": 0}\n')
        async with await connect(node.url) as connection:
            await become(connection, "q", [b'{"n": 0}'])
        await node.kill()
        writer.write(b"".join(b'{"n": %d}\r\nno json\n' % number for number in range(1, 500)) + b'{"torn": ')
        await journaled(tmp_path / "j", b'{"n": 499}')
        await process.kill()
        writer.close()
        await process.restart(limit_s=LIMIT_S)  # it takes lines while there is no node
        _, writer = await device(process)
        writer.write(b'{"n": 500}\n{"torn": ')
        await journaled(tmp_path / "j", b'{"n": 500}')
        writer.close()
        await node.restart(same_port=True)
        async with await connect(node.url) as connection:
            await become(connection, "q", [b'{"n": %d}' % number for number in range(501)])
            receiver = await connection.receiver("q", count_max=1)
            message = (await anext(receiver)).message
            assert message.properties is not None and message.properties.message_id == "p-1"
            assert message.properties.content_type == "application/json" and message.properties.creation_time
        assert await process.stop() == 143
        assert "bytes without the end of a line are left out" in process.stderr
        assert "not sent: invalid JSON" in process.stderr and process.stderr.count("not sent") <= 40


async def test_while_the_node_takes_nothing_it_stops_reading(
    node: NodeProcess, tmp_path: Path, device: Connect
) -> None:
    created = await run_holdfast("queue", "create", "q", "--messages-max", "10", "--url", node.url)
    assert created.code == 0, created.stderr
    options = ["--listen", "127.0.0.1:0", "--backlog-bytes-max", "200000"]
    lines = [b"%06d " % number + b"x" * 1000 for number in range(20_000)]
    async with await feed(node, tmp_path / "j", *options) as process, await connect(node.url) as connection:
        _, writer = await device(process)

        async def write() -> None:
            for line in lines:
                writer.write(line + b"\n")
                await writer.drain()

        writing = asyncio.create_task(write())
        await become(connection, "q", lines[:10])
        await asyncio.wait([writing], timeout=2)
        assert not writing.done()
        assert len(journal_bytes(tmp_path / "j")) < 2_000_000  # a batch beyond the bound
        receiver = await connection.receiver("q", credit=5_000)
        seen: list[bytes] = []
        async with asyncio.timeout(LIMIT_S):
            while len(seen) < 3_000:
                for delivery in await receiver.batch():
                    seen.append(delivery.message.body_bytes())
                    delivery.accept()
        assert seen == lines[: len(seen)]
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def test_what_a_full_queue_refuses_is_offered_again(node: NodeProcess, tmp_path: Path) -> None:
    create = ("queue", "create", "q", "--messages-max", "3", "--when-full", "refuse", "--url", node.url)
    assert (await run_holdfast(*create)).code == 0
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("".join(f"{number}\n" for number in range(30)))
    async with (
        await feed(node, tmp_path / "j", "--folder", str(tmp_path / "files"), "--once") as process,
        await connect(node.url) as connection,
    ):
        receiver = await connection.receiver("q", credit=1)
        seen = []
        async with asyncio.timeout(LIMIT_S):
            while len(seen) < 30:
                delivery = await anext(receiver)
                seen.append(int(delivery.message.body_bytes()))
                delivery.accept()
        assert sorted(seen) == list(range(30))
        assert await process.wait(LIMIT_S) == 0
        told = summary(process.stderr)
        assert (told["read"], told["journaled"], told["accepted"], told["left"]) == (30, 30, 30, 0)


async def test_a_serial_line_is_read_also_after_it_was_unplugged(node: NodeProcess, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    line = tmp_path / "ttyUSB0"
    line.symlink_to(os.ttyname(slave))
    options = ["--serial", str(line), "--baud", "115200", "--format", "csv", "--columns", "tag,rssi"]
    async with (
        await feed(node, tmp_path / "j", *options, "--subject-from", "tag", "--property", "site=x") as process,
        await connect(node.url) as connection,
    ):
        os.write(master, b"a,-60\r\nb,-")
        os.write(master, b"70\nc\n\x04\x03\n")
        await become(connection, "q", [b'{"tag":"a","rssi":"-60"}', b'{"tag":"b","rssi":"-70"}'])
        os.close(slave)
        os.close(master)
        await process.logged("trying again", LIMIT_S)
        master, slave = pty.openpty()
        line.unlink()
        line.symlink_to(os.ttyname(slave))
        receiver = await connection.receiver("q", selector="site = 'x' AND rssi = '-80'")
        os.write(master, b"d,-80\n")
        message = (await asyncio.wait_for(anext(receiver), LIMIT_S)).message
        assert message.properties is not None and message.properties.subject == "d"
        assert message.application_properties == {"tag": "d", "rssi": "-80", "site": "x"}
    os.close(slave)
    os.close(master)


async def test_a_hostile_device_ends_its_connection_and_no_other(
    node: NodeProcess, tmp_path: Path, device: Connect
) -> None:
    options = ["--listen", "127.0.0.1:0", "--line-bytes-max", "100", "--connections-max", "2", "--rate", "5"]
    async with await feed(node, tmp_path / "j", *options) as process, await connect(node.url) as connection:
        _, honest = await device(process)
        reader, hostile = await device(process)
        refused, _ = await device(process)
        await closed(refused)
        await process.logged("refused; the limit is 2 connections", LIMIT_S)
        hostile.write(b"whole\n" + b"x" * 1_000_000)
        await closed(reader)
        await process.logged("closed, as a line is too long; the limit is 100 bytes", LIMIT_S)
        for _ in range(50):
            reader, writer = await device(process)
            writer.write(b"y" * 102)
            await closed(reader)
        honest.write(b"one\n")
        await become(connection, "q", [b"whole", b"one"])
        honest.write(b"".join(b"%d\n" % number for number in range(10)))
        await become(connection, "q", [b"whole", b"one", *(b"%d" % number for number in range(10))])
        assert process.stderr.count("\n") < 50
        assert process.returncode is None


async def test_a_silent_connection_is_closed(node: NodeProcess, tmp_path: Path, device: Connect) -> None:
    options = ["--listen", "127.0.0.1:0", "--silence-timeout", "0.5"]
    async with await feed(node, tmp_path / "j", *options) as process:
        reader, _ = await device(process)
        await closed(reader)
        await process.logged("closed, as nothing came for 0.5 s (--silence-timeout)", LIMIT_S)


async def test_a_journal_that_does_not_fit_its_producer_is_refused(node: NodeProcess, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("1\n")
    once = ["--folder", str(files), "--once", "--url", node.url]
    first = await run_holdfast("feed", "q", "--producer", "p", "--journal", str(tmp_path / "j"), *once)
    assert first.code == 0, first.stderr
    # A new journal under a name that the node knows goes on behind its numbers; the old one is told then.
    second = await run_holdfast("feed", "q", "--producer", "p", "--journal", str(tmp_path / "k"), *once)
    assert second.code == 0, second.stderr
    (files / "a").write_text("2\n3\n")
    third = await run_holdfast("feed", "q", "--producer", "p", "--journal", str(tmp_path / "j"), *once)
    assert third.code == 1 and "another sender uses the name, or the journal is an older copy" in third.stderr
    async with await connect(node.url) as connection:
        assert await bodies_in(connection, "q") == [b"1", b"1"]
    other = await run_holdfast("feed", "q", "--producer", "x", "--journal", str(tmp_path / "j"), *once)
    assert other.code == 2 and "belongs to producer 'p', not to 'x'" in other.stderr


async def test_the_node_says_no_for_good(node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("1\n")
    once = ["--folder", str(tmp_path / "files"), "--once", "--url", node.url]
    ended = await run_holdfast("feed", "$management", "--producer", "p", "--journal", str(tmp_path / "j"), *once)
    assert ended.code in (1, 2) and ended.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "no source; give --listen, --serial or --folder"),
        ("--listen 127.0.0.1:0 --once", "--once needs --folder, and no other source"),
        ("--serial /dev/null --format csv", "--serial with --format csv needs --columns"),
        ("--serial /dev/null", "/dev/null cannot be opened (Inappropriate ioctl for device)"),
        ("--serial /dev/null --baud 9601", "invalid value 9601 for --baud; expected one of 50,"),
        ("--listen 127.0.0.1:0 --columns a", "--columns needs --format csv"),
        ("--listen 127.0.0.1:0 --format csv --columns a,a", "expected names with commas between, each once"),
        ("--listen 127.0.0.1:0 --format csv --columns a --subject-from b", "expected one of --columns"),
        ("--listen 127.0.0.1:0 --subject-from b", "--subject-from needs --format csv or json"),
        ("--folder nowhere", "nowhere is no directory; expected one for --folder"),
        ("--listen 192.0.2.1:1", "cannot listen on 192.0.2.1:1"),
        ("--listen 127.0.0.1:PORT", ": the port is in use already; choose another, or 0 for any"),
    ],
)  # fmt: skip
async def test_mistakes_are_a_line(options: str, said: str, tmp_path: Path, node: NodeProcess) -> None:
    options = options.replace("PORT", node.url.rpartition(":")[2])
    given = ["feed", "q", "--producer", "p", "--journal", str(tmp_path / "j"), "--url", node.url, *options.split()]
    ended = await run_holdfast(*given)
    assert ended.code == 2 and said in ended.stderr.splitlines()[0], ended.stderr


async def test_a_disk_that_takes_nothing_is_waited_for(node: NodeProcess, tmp_path: Path, device: Connect) -> None:
    """A limit of the process's files stands for a full disk."""
    import resource

    async with await feed(node, tmp_path / "j", "--listen", "127.0.0.1:0") as process:
        size = len(journal_bytes(tmp_path / "j"))
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        _, writer = await device(process)
        writer.write(b"a\n")
        await process.logged(f"{os.strerror(errno.EFBIG)}; nothing is read until the disk takes more", LIMIT_S)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        writer.write(b"b\n")
        async with await connect(node.url) as connection:
            await become(connection, "q", [b"a", b"b"])
        assert process.returncode is None
        process.signal(signal.SIGTERM)
        assert await process.wait(LIMIT_S) == 143
