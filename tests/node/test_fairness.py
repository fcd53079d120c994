"""How the runtime shares a turn among its connections: who brings much waits, who brings little does not."""

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.engine import reads
from holdfast.engine.events import (
    BytesReceived,
    Command,
    ConnectionLost,
    Event,
    PauseReading,
    ResumeReading,
    TimerFired,
    TurnEnded,
)
from holdfast.engine.reads import LIGHT_BYTES, Pause
from holdfast.node.network.transport import BACKLOG, Peer
from node.fakes import LIMIT_S, FakeCore, Running, settings

MUCH = bytes(range(256)) * 8_192


async def until(core: FakeCore, connection: int, size: int) -> bytes:
    """The bytes that came on it, once there are so many."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = b"".join(event.data for event in core.of(BytesReceived) if event.connection == connection)
            if len(found) >= size:
                return found
            await core.until(BytesReceived, len(core.of(BytesReceived)) + 1)


@pytest.mark.parametrize("slow_bytes_per_s", [1, 10**15])
async def test_all_comes_in_its_order_however_short_turns_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_bytes_per_s: int
) -> None:
    monkeypatch.setattr(reads, "TURN_S", 0.0)
    monkeypatch.setattr(reads, "SLOW_BYTES_PER_S", slow_bytes_per_s)
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        writers = [(await running.connect())[1] for _ in range(3)]
        for number, writer in enumerate(writers):
            writer.write(MUCH if number < 2 else b"little")
        for number in (1, 2):
            assert await until(core, number, len(MUCH)) == MUCH
        assert await until(core, 3, 6) == b"little"
        for writer in writers:
            writer.close()
        await core.until(ConnectionLost, 3)
    if slow_bytes_per_s > 1:
        pieces = [len(event.data) for event in core.of(BytesReceived) if event.connection == 1]
        assert max(pieces[1:]) <= LIGHT_BYTES


async def test_a_turn_that_was_long_takes_one_more_read_of_much_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "TURN_S", 0.0)
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        writer.write(MUCH)
        await until(core, 1, len(MUCH))
        heavy = 0
        for event in core.events:
            if isinstance(event, TurnEnded):
                heavy = 0
            elif isinstance(event, BytesReceived) and len(event.data) > LIGHT_BYTES:
                heavy += 1
                assert heavy == 1
        writer.close()


async def test_what_was_put_off_comes_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "TURN_S", 0.0)
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        writer.write(MUCH)
        writer.close()
        await core.until(ConnectionLost)
        assert b"".join(event.data for event in core.of(BytesReceived)) == MUCH
        assert isinstance([e for e in core.events if not isinstance(e, TurnEnded)][-1], ConnectionLost)


async def test_the_core_pauses_a_connection_and_no_other(tmp_path: Path) -> None:
    first = True

    def react(event: Event, now: float) -> Iterable[Command]:
        nonlocal first
        if isinstance(event, BytesReceived) and first and event.connection == 1:
            first = False
            yield PauseReading(connection=1)
            yield PauseReading(connection=99)
        if isinstance(event, TimerFired):
            core.deadline = None
            yield ResumeReading(connection=1)

    core = FakeCore(react)
    async with Running(core, settings(tmp_path)) as running:
        _, one = await running.connect()
        _, other = await running.connect()
        one.write(b"first")
        await core.until(BytesReceived)
        one.write(b"second")
        for number in range(3):
            other.write(b"x")
            await core.until(BytesReceived, 2 + number)
        assert [event.data for event in core.of(BytesReceived) if event.connection == 1] == [b"first"]
        core.deadline = 0.0
        other.write(b"x")
        assert await until(core, 1, 11) == b"firstsecond"
        one.close()
        other.close()


class _Transport:
    """Counts."""

    def __init__(self) -> None:
        self.reading = True
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        assert self.reading and not self.closing
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading and not self.closing
        self.reading = True


def test_a_connection_is_read_again_when_no_reason_is_left() -> None:
    peer = Peer(cast(Any, None), None)
    transport = _Transport()
    peer.transport = cast(asyncio.Transport, transport)
    peer.resume(Pause.CORE)
    peer.pause(Pause.CORE)
    peer.pause(Pause.CORE)
    peer.pause(Pause.TURN)
    peer.resume(Pause.CORE)
    assert not transport.reading
    peer.resume(Pause.TURN)
    assert transport.reading
    transport.closing = True
    peer.pause(Pause.TURN)
    peer.resume(Pause.TURN)


async def test_a_burst_of_connections_is_let_in_while_the_loop_is_busy(tmp_path: Path) -> None:
    """The kernel holds what it announces: not the event loop's own hundred."""
    burst = 300
    assert burst < BACKLOG
    core = FakeCore()
    async with Running(core, settings(tmp_path, connections_max=burst)) as running:
        own = [
            socket.create_connection(("127.0.0.1", running.port), 0.5) for _ in range(burst)
        ]  # nothing is accepted yet
        for one in own:
            one.close()
        await core.until(ConnectionLost, burst)
