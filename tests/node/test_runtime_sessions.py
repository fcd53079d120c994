"""What the runtime does for sessions: a fresh dial gives up the one under way; how far the output has come."""

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.engine.events import (
    BytesReceived,
    Command,
    Connect,
    ConnectFailed,
    Event,
    MeasureOutput,
    NetworkChanged,
    OutputMeasured,
    SendBytes,
    TurnEnded,
)
from holdfast.names import HostPort
from holdfast.node.network import dials
from node.fakes import LIMIT_S, FakeCore, Running, neighbour, read, settings


async def test_a_fresh_dial_takes_the_place_of_one_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[asyncio.Event] = []
    began: asyncio.Queue[int] = asyncio.Queue()
    given_up: asyncio.Queue[int] = asyncio.Queue()

    async def dial(host: str, port: int, *, source: HostPort | None = None) -> socket.socket:
        under_way.append(asyncio.Event())
        number = len(under_way)
        began.put_nowait(number)
        try:
            await under_way[-1].wait()
        except asyncio.CancelledError:
            given_up.put_nowait(number)
            raise
        raise ConnectionRefusedError(111, "no")

    monkeypatch.setattr(dials, "dial", dial)

    def dialling(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, (TurnEnded, NetworkChanged)) and len(under_way) < 2:
            yield Connect(neighbour="hub")

    core = FakeCore(dialling)
    async with Running(core, settings(tmp_path, neighbours=(neighbour(1),))) as running:
        async with asyncio.timeout(LIMIT_S):
            assert await began.get() == 1
            running.runtime._network_changed()
            assert await began.get() == 2
            assert await given_up.get() == 1
        assert not core.of(ConnectFailed), "the one given up is not answered"
        under_way[1].set()
        assert (await core.until(ConnectFailed)).neighbour == "hub"
        assert not running.runtime._dials.under_way


async def test_how_far_the_output_has_come_is_measured(tmp_path: Path) -> None:
    size = 8 * 1024 * 1024

    def reaction(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            if event.data == b"go":
                yield SendBytes(connection=event.connection, chunks=[bytes(size)])
            yield MeasureOutput(connection=event.connection)
            yield MeasureOutput(connection=event.connection + 99)

    core = FakeCore(reaction)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"go")
        first = await core.until(OutputMeasured)
        assert first.written_bytes == size
        assert 0 <= first.acknowledged_bytes < size
        await read(reader, size)
        writer.write(b"on")
        second = await core.until(OutputMeasured, 2)
        assert second.acknowledged_bytes == second.written_bytes == size
        writer.close()
