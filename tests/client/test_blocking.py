"""The client without an event loop: what an interruption leaves behind, an iterator that outlives its connection, calls
in the thread that serves it.
"""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from client.fake_broker import FakeBroker, closed_port
from holdfast.client import ConnectionEnded, blocking
from holdfast.client.blocking import BlockingConnection, Entry
from holdfast.client.receive.receiver import Receiver
from holdfast.errors import HoldfastError, LocalProtocolError
from support.process import killed_at_the_end

INTERRUPTED = """
import sys
from holdfast.client.blocking import BlockingConnection

connection = BlockingConnection(sys.argv[1])
try:
    connection.open()
except KeyboardInterrupt:
    sys.exit(130)
finally:
    connection.close()
"""


def test_an_interruption_while_the_node_is_not_there_leaves_no_noise() -> None:
    with (
        closed_port() as port,
        subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, f"amqp://127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stderr is not None
        assert "trying again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130 and errors == ""


def close_it(entries: Iterator[list[Entry]]) -> None:
    assert hasattr(entries, "close")
    entries.close()


def go_on(entries: Iterator[list[Entry]]) -> None:
    with pytest.raises(ConnectionEnded, match="closed"):
        next(entries)
    assert next(entries, None) is None


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("end", [close_it, go_on])
async def test_a_range_that_is_read_beyond_the_connections_end_starts_nothing(
    end: Callable[[Iterator[list[Entry]]], None], reopened: bool, broker: FakeBroker
) -> None:
    broker.put("q", *[b"%d" % number for number in range(5_000)])

    def read() -> list[str]:
        connection = BlockingConnection(broker.url)
        entries = connection.read_range("q", 1, 5_001)
        assert next(entries)
        connection.close()
        if reopened:
            connection.open()
        end(entries)
        if reopened:
            connection.close()
        return [thread.name for thread in threading.enumerate()]

    assert "holdfast-client" not in await asyncio.wait_for(asyncio.to_thread(read), 30)


@pytest.mark.parametrize(("size", "asked"), [(1, 40), (1_000, 10), (50_000, 1)])
async def test_a_range_has_few_large_messages_ahead_of_its_reader(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, size: int, asked: int
) -> None:
    """It asks for little before it knows what comes."""
    monkeypatch.setattr(blocking, "CREDIT", 40)
    monkeypatch.setattr(blocking, "READ_BYTES_MAX", 10_900)
    told: list[int] = []
    real = Receiver.ask_for
    monkeypatch.setattr(Receiver, "ask_for", lambda receiver, credit: (told.append(credit), real(receiver, credit))[1])
    broker.put("q", *[bytes(size) for _ in range(100)])

    def read() -> list[int]:
        with BlockingConnection(broker.url) as connection:
            return [entry.sequence for entries in connection.read_range("q", 1, 101) for entry in entries]

    assert await asyncio.wait_for(asyncio.to_thread(read), 30) == list(range(1, 101))
    assert told[0] == blocking.FIRST_CREDIT and set(told[1:]) == {asked}


async def in_time(work: Callable[[], None]) -> None:
    """Runs `work` in a thread that nobody waits for if it hangs."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive(), "it waits for ever"
    if failed:
        raise failed[0]


async def test_a_range_that_the_connections_own_thread_collects_is_closed_without_a_wait(broker: FakeBroker) -> None:
    """The garbage collector runs in any thread, and ends an iterator that nobody has finished in that one."""
    broker.put("q", *[b"%d" % number for number in range(5_000)])

    def read() -> None:
        with BlockingConnection(broker.url) as connection:
            held = [connection.read_range("q", 1, 5_001)]
            assert next(held[0])
            assert connection._loop is not None
            connection._loop.call_soon_threadsafe(held.clear)
            connection.send("other", b"goes on")  # behind that, in the same thread
            assert not held

    await in_time(read)
    assert broker.bodies("other") == [b"goes on"]
    await broker.until(lambda: not broker.connections)


async def test_the_other_sides_name_is_its_container_id(broker: FakeBroker) -> None:
    def ask() -> None:
        with BlockingConnection(broker.url) as connection:
            assert connection.node() == "fake"

    await in_time(ask)


CALLS: dict[str, Callable[[BlockingConnection], object]] = {
    "open": lambda connection: connection.open(),
    "node": lambda connection: connection.node(),
    "send": lambda connection: connection.send("q", b"x"),
    "manage": lambda connection: connection.manage("STATUS", "holdfast:node"),
    "read_range": lambda connection: next(connection.read_range("q", 1, 2)),
    "read_first": lambda connection: next(connection.read_first("q", 1, 2)),
    "close": lambda connection: connection.close(),
}


@pytest.mark.filterwarnings("error")  # a coroutine that was never awaited, among others
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_in_the_connections_own_thread_is_an_error_at_once(name: str, broker: FakeBroker) -> None:
    """It would wait for itself."""

    def call() -> None:
        with BlockingConnection(broker.url) as connection:
            connection.open()
            assert connection._loop is not None
            done: Future[object] = Future()

            def inside() -> None:
                try:
                    done.set_result(CALLS[name](connection))
                except HoldfastError as error:
                    done.set_exception(error)

            connection._loop.call_soon_threadsafe(inside)
            with pytest.raises(LocalProtocolError, match="its own thread"):
                done.result(timeout=5)
            connection.send("other", b"goes on")

    await in_time(call)
    assert broker.bodies("other") == [b"goes on"]


LEFT_OPEN = """
import sys
from holdfast.client import ConnectionEnded, blocking
from holdfast.client.blocking import BlockingConnection

class Late:
    def __del__(self):
        try:
            connection.send("q", b"too late")
        except ConnectionEnded:
            print("refused")
        connection.close()

connection = BlockingConnection(sys.argv[1])
late = Late()
late.itself = late
entries = connection.read_range("q", 1, 5_001)
assert next(entries)
"""


async def test_a_program_that_ends_with_a_range_half_read_ends(broker: FakeBroker) -> None:
    """Python has stopped the connection's thread by the time it ends the iterator."""
    broker.put("q", *[b"%d" % number for number in range(5_000)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEFT_OPEN, broker.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with killed_at_the_end(process):
        output, errors = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, output, errors) == (0, b"refused\n", b"")
