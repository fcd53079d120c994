"""The client without an event loop: what an interruption leaves behind, an iterator that outlives its connection."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from client.fake_broker import FakeBroker, closed_port
from holdfast.client import ConnectionEnded
from holdfast.client.blocking import BlockingConnection, Entry

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
