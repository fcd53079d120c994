"""The scan: hostile peers by the ten thousand against a node's process, and a healthy client beside them.

What must hold, whatever they do: each stream gets its answer, the healthy client never waits more than a second for a
message to be stored and to come back, and the node's anonymous memory grows by less than 50 MB. `make fuzz` does it for
longer, with streams drawn from a seed that it prints.
"""

import asyncio
import json
import re
import resource
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from amqp.joined import wire
from fuzz.streams import CREDIT, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, STREAMS, Stream
from fuzz.test_streams import judge
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Properties,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol
from support.process import NodeProcess
from support.raw import HELLO, credit, receives, sends, transfer

pytestmark = pytest.mark.fuzz

WAIT_S_MAX = 1.0
GROWTH_BYTES_MAX = 50_000_000
HALF_HELLOS = 10_000
LIMIT_S = 30.0
HANDSHAKE_S = 2.0
CONFIG = f"""
[node]
name = "hub"
create_queues = true

[limits]
connections_max = 1_500
address_connections_max = 1_200
handshakes_max = 500
handshake_time_out_s = {HANDSHAKE_S}
message_bytes_max = {MESSAGE_BYTES_MAX}
credit = {CREDIT}
name_bytes_max = {NAME_BYTES_MAX}
output_bytes_max = 1_000_000
"""
HALVES = [HELLO[:cut] for cut in range(len(AMQP_HEADER) + len(wire(Open("raw"))))] + [
    SASL_HEADER[:5], SASL_HEADER, SASL_HEADER + b"\x00\x00\x00\x20\x02\x01\x00\x00\x00\x53\x41",
]  # fmt: skip
"""Every way to stop within a hello."""

StartNode = Callable[..., Awaitable[NodeProcess]]


def anonymous_bytes(pid: int) -> int:
    """What the process holds in memory beside files: smaps_rollup of proc(5)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("smaps_rollup names no anonymous memory")


@asynccontextmanager
async def healthy_client(node: NodeProcess) -> AsyncIterator[None]:
    """Runs while the block does, then is judged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).parent / "healthy.py"), "127.0.0.1", str(node.port), str(node.pid),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), LIMIT_S) == b"up\n"
        yield
        process.stdin.close()
        told = json.loads(await asyncio.wait_for(process.stdout.read(), LIMIT_S))
        print(f"healthy client: {told}")
        assert told["rounds"] > 3
        assert told["longest_s"] < WAIT_S_MAX, told
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def watched(start_node: StartNode, tmp_path: Path) -> AsyncIterator[NodeProcess]:
    """A node with a healthy client beside it; its memory is judged in the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = tmp_path / "hub.toml"
    config.write_text(CONFIG + f"\n[store]\nbytes_max = {1 << 30}\n")
    try:
        node = await start_node("hub", config=config, data=tmp_path / "hub.holdfast", listen="127.0.0.1:0")
        async with healthy_client(node):
            await one(node, Stream("warm up", (HELLO,), "lives"))
            before = anonymous_bytes(node.pid)
            yield node
            grown = anonymous_bytes(node.pid) - before
        print(f"anonymous memory grew by {grown / 1e6:.1f} MB")
        assert grown < GROWTH_BYTES_MAX
        assert node.returncode is None
        assert "defect" not in node.stderr and "Traceback" not in node.stderr
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ------------------------------------------------------------------------------------------------ saying


Connecting = Callable[[NodeProcess], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def plainly(node: NodeProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection without TLS."""
    return await asyncio.open_connection("127.0.0.1", node.port)


async def one(node: NodeProcess, stream: Stream, connecting: Connecting = plainly) -> str | None:
    """Says the stream; what is wrong with the answer, None where nothing is."""
    reader, writer = await connecting(node)
    heard = bytearray()
    over = False
    ends = stream.answer.split(" ")[0] in ("dropped", "header", "sasl", "close")
    try:
        async with asyncio.timeout(LIMIT_S):
            for number, part in enumerate(stream.said):
                writer.write(part)
                if number < len(stream.said) - 1:
                    await _quiet(reader, heard)
            probes = [] if ends else [254, 255]  # what the first meets, the second comes behind
            while not over:
                if probes:
                    channel = probes.pop(0)
                    writer.write(wire(Begin(None, 0, 1, 1), channel=channel))
                    probed = re.compile(_PROBED + bytes((channel,)), re.DOTALL)
                while not over and (ends or probed.search(heard) is None):
                    data = await reader.read(65_536)
                    over = not data
                    heard += data
                if not probes:
                    break
    except ConnectionError:
        over = True
    except TimeoutError:
        return f"{stream.name}: no answer in {LIMIT_S:g} s, heard {bytes(heard)[-100:]!r}"
    finally:
        writer.transport.abort()
    wrong = judge(stream.answer, bytes(heard), over)
    return None if wrong is None else f"{stream.name}: {wrong}"


_PROBED = rb"\x00\x53\x11\xc0..\x60\x00"
"""The answer to a probe, a begin that names the remote channel; its last byte follows."""


async def _quiet(reader: asyncio.StreamReader, heard: bytearray) -> None:
    """Until the node has answered with a frame for each thing asked: the hello's begin and the attach."""
    while b"\x00\x53\x12" not in heard:
        data = await reader.read(65_536)
        if not data:
            return
        heard += data


async def say_all(
    node: NodeProcess, streams: list[Stream], at_once: int = 16, connecting: Connecting = plainly
) -> list[str]:
    """What is wrong, of all of them, said so many at a time."""
    wrong: list[str] = []
    left = iter(streams)

    async def work() -> None:
        for stream in left:
            told = await one(node, stream, connecting)
            if told is not None:
                wrong.append(told)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return wrong


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the node ends the connection within the limit."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while await reader.read(65_536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    finally:
        writer.transport.abort()
    return True


async def half_hellos(node: NodeProcess, count: int, random: Random, wave: int = 500) -> None:
    """Begun and left: most at once, every tenth until the node ends it."""
    hanging: list[asyncio.Task[bool]] = []
    for _ in range(0, count, wave):
        opened = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", node.port) for _ in range(wave)), return_exceptions=True
        )
        for number, pair in enumerate(opened):
            if isinstance(pair, BaseException):
                raise pair
            reader, writer = pair
            writer.write(random.choice(HALVES))
            if number % 10:
                writer.transport.close()
            else:
                hanging.append(asyncio.create_task(ended(reader, writer)))
    assert all(await asyncio.gather(*hanging)), "a half hello was never ended"


def mutated(random: Random) -> Stream:
    """One of the streams, or an honest conversation, with bits turned, bytes left out, put in or said twice."""
    honest = HELLO + wire(sends(), receives(handle=1), credit(10, handle=1)) + transfer(0) + transfer(1)
    data = bytearray(random.choice([honest, honest, b"".join(random.choice(STREAMS).said)[:70_000]]))
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(data))
        match random.randrange(5):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                data[at] = random.randrange(256)
            case 2:
                del data[at : at + random.randint(1, 9)]
            case 3:
                data[at:at] = random.randbytes(random.randint(1, 9))
            case _:
                data[at:at] = data[at : at + random.randint(1, 64)]
        data = data or bytearray(b"\x00")
    return Stream("mutated", (bytes(data),), "any")


async def throw(node: NodeProcess, stream: Stream) -> None:
    """Says it all, reads what comes for a moment, and goes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        writer.write(b"".join(stream.said))
        async with asyncio.timeout(0.05):
            while await reader.read(65_536):
                pass
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()


# ------------------------------------------------------------------------------------------------ the scan


async def test_half_hellos(watched: NodeProcess) -> None:
    await half_hellos(watched, HALF_HELLOS, Random(1))
    assert await one(watched, Stream("after all", (HELLO,), "lives")) is None


async def test_frames_that_announce_gigabytes(watched: NodeProcess) -> None:
    """A thousand of them; none is waited for."""
    sizes = (1 << 30, 1 << 31, 2**32 - 1, 65_537, 7, 0)
    streams = [
        Stream(f"{size} bytes", (before + struct.pack(">IBBH", size, 2, 0, 0),), "close amqp:connection:framing-error")
        for before in (AMQP_HEADER, HELLO)
        for size in sizes
    ]
    assert await say_all(watched, streams * 85) == []


async def test_every_stream_gets_its_answer(watched: NodeProcess) -> None:
    assert await say_all(watched, STREAMS) == []


TINY = b"\x00\x53\x77\x40"
FLOODS = {
    "echoes": (b"", wire(*[Flow(0, 5_000, 0, 5_000, echo=True)] * 2_000)),
    "windows": (
        b"".join(wire(receives("e", handle=n), credit(10, handle=n)) for n in range(200)),
        wire(*[Flow(0, 0, 0, 1), Flow(0, 5_000, 0, 1)] * 1_000),
    ),
    "credit": (wire(receives("empty")), wire(credit(10), credit(0)) * 2_000),
    "drains": (wire(receives("empty")), wire(credit(10, drain=True)) * 2_000),
    "dispositions for nothing": (b"", wire(Disposition(True, 100, 2**31 + 50, True, Accepted())) * 2_000),
    "attaches": (b"", b"".join(wire(sends("q", name=f"{n}", handle=n % 1_000)) for n in range(1_000))),
    "queues": (b"", b"".join(wire(sends(f"q{n}", name=f"{n}"), Detach(0, True)) for n in range(1_000))),
    "producers": (b"", b"".join(
        wire(sends("q", properties={Symbol("holdfast:producer"): f"p{n}"}), Detach(0, True)) for n in range(1_000)
    )),
    "large attaches": (b"", wire(sends("q", properties={Symbol("x"): [[]] * 50_000}), Detach(0, True)) * 10),
    "begins": (b"", (wire(Begin(None, 0, 1, 1), channel=9) + wire(End(), channel=9)) * 1_000),
    "parts": (wire(sends("q")) + transfer(0, b"", more=True), wire(Transfer(0, more=True)) * 5_000),
    "tiny messages": (
        b"".join(wire(sends("q", handle=n)) for n in range(20)),
        b"".join(transfer(n, TINY, handle=n % 20, settled=True) for n in range(2_000)),
    ),
    "requests": (wire(sends("$management"), receives("$management", handle=1)), b"".join(
        transfer(n, encoding.encode(Properties(reply_to="here")) + TINY, settled=True) for n in range(100)
    )),
    "a reader of all": (wire(receives("q", handle=0), credit(2**31)), EMPTY_FRAME * 1_000),
}  # fmt: skip
"""What is said first, and what is said for ever."""


@pytest.mark.parametrize("seconds", [4.0])
async def test_floods_that_read_nothing(watched: NodeProcess, seconds: float) -> None:
    """Connections that ask without end, two of each kind, and take no answer."""

    async def flood(first: bytes, data: bytes) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", watched.port, limit=1)
        try:
            writer.write(HELLO + first)
            async with asyncio.timeout(seconds):
                while True:
                    writer.write(data)
                    await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    await asyncio.gather(*(flood(first, data) for first, data in [*FLOODS.values()] * 2))


async def test_mutated_streams(watched: NodeProcess, day: int) -> None:
    random = Random(day)
    for _ in range(10):
        await asyncio.gather(*(throw(watched, mutated(random)) for _ in range(25)))


@pytest.mark.slow
async def test_for_longer(watched: NodeProcess, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--fuzz-seed") or Random().randrange(2**32)
    count = pytestconfig.getoption("--fuzz-streams")
    print(f"seed {seed}: make fuzz SEED={seed} STREAMS={count}")
    random = Random(seed)
    for _ in range(0, count, 1_000):
        await half_hellos(watched, 1_000, random)
        for _ in range(40):
            await asyncio.gather(*(throw(watched, mutated(random)) for _ in range(25)))
        assert await say_all(watched, random.sample(STREAMS, 20)) == []
