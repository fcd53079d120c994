"""What fails in the driver: one connection's failure ends that connection, the core's ends the node."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.events import (
    BytesReceived,
    Command,
    ConnectionLost,
    ConnectionOpened,
    DriverFailed,
    Event,
    TurnEnded,
)
from holdfast.node import runtime as runtime_module
from node.fakes import FailingStore, FakeCore, Running, commit, echo, settings


@pytest.mark.parametrize("what", ["a write", "a callback"])
async def test_what_fails_with_one_connection_ends_that_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    core = FakeCore(echo)
    async with Running(core, settings(tmp_path)) as running:
        good_reader, good_writer = await running.connect()
        reader, writer = await running.connect()
        victim = (await core.until(ConnectionOpened, 2)).connection
        with monkeypatch.context() as patch:
            if what == "a write":
                patch.setattr(runtime_module, "write", raising(RuntimeError("no such chunk")))
            else:
                patch.setattr(running.runtime._reads, "_take", raising(RuntimeError("no such chunk")))
            writer.write(b"x")
            assert (await core.until(ConnectionLost)).connection == victim
        with contextlib.suppress(ConnectionError):
            await reader.read()
        good_writer.write(b"y")
        assert await good_reader.readexactly(1) == b"y"
        writer.close()
        good_writer.close()
    assert [event.connection for event in core.of(DriverFailed)] == [victim]
    (line,) = [record for record in caplog.records if "the connection is ended" in record.getMessage()]
    assert "no such chunk" in line.getMessage() and line.exc_info


def raising(error: Exception) -> Callable[..., Any]:
    def call(*args: object) -> None:
        raise error

    return call


async def test_a_core_that_cannot_say_when_to_go_on_ends_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FailingStore()
    core = FakeCore(lambda event, now: [commit(1)] if isinstance(event, TurnEnded) else [])
    monkeypatch.setattr(core, "next_deadline", raising(RuntimeError("no such time")))
    running = Running(core, settings(tmp_path), store=store)
    assert await running.code() == 1
    assert store.asked == 0  # the turn's commit was not handed over any more
    assert "no such time" in caplog.text and "ending" in caplog.text


async def test_a_broken_invariant_ends_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event, now: float) -> Iterable[Command]:
        assert not isinstance(event, BytesReceived), "invariant"
        return ()

    core = FakeCore(broken)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"x")
        assert await running.code() == 1
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
    assert "defect at BytesReceived" in caplog.text
    assert isinstance(core.events[-1], BytesReceived)


async def test_a_second_commit_in_flight_is_a_defect(tmp_path: Path) -> None:
    core = FakeCore(lambda event, now: [commit(1), commit(2)] if isinstance(event, TurnEnded) else [])
    running = Running(core, settings(tmp_path))
    assert await running.code() == 1
