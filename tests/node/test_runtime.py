"""The runtime, driven with a scripted core and real sockets."""

import asyncio
import itertools
import json
import logging
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.engine.events import (
    BytesReceived,
    CloseConnection,
    Command,
    CommitRefused,
    Committed,
    Connect,
    ConnectionLost,
    ConnectionOpened,
    DriverWarned,
    Event,
    Log,
    ReadPutOff,
    Record,
    SendBytes,
    Stopping,
    TimerFired,
    TurnEnded,
    WritingPaused,
    WritingResumed,
)
from holdfast.engine.port import Batch
from holdfast.errors import HoldfastError, StorageError, StorageFull
from holdfast.names import HostPort
from holdfast.node import runtime as runtime_module
from holdfast.node.process.telemetry import TelemetryFile
from holdfast.peers.limits.refusals import REFUSALS_MAX
from holdfast_lab.real.killed_node import Moments
from node.fakes import (
    LIMIT_S,
    FailingStore,
    FakeCore,
    HangingStore,
    Once,
    Running,
    commit,
    echo,
    neighbour,
    read,
    settings,
)
from support.eventually import eventually_true

# ----------------------------------------------------------------------------------- connections and turns


async def test_bytes_go_in_and_out_and_the_connection_ends_once(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        opened = await core.until(ConnectionOpened)
        assert (opened.loopback, opened.neighbour) == (True, None)
        assert opened.peer == "127.0.0.1:{}".format(writer.get_extra_info("sockname")[1])
        writer.write(b"hello")
        assert await read(reader, 5) == b"hello"
        writer.close()
        lost = await core.until(ConnectionLost)
        assert lost.connection == opened.connection
    assert len(core.of(ConnectionLost)) == 1


async def test_connections_are_numbered_and_never_twice(tmp_path: Path) -> None:
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        for count in (1, 2, 3):
            _, writer = await running.connect()
            await core.until(ConnectionOpened, count)
            writer.close()
            await core.until(ConnectionLost, count)
    assert [event.connection for event in core.of(ConnectionOpened)] == [1, 2, 3]


async def test_each_burst_ends_with_exactly_one_turn(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        for _ in range(20):
            writer.write(b"x" * 1000)
            await read(reader, 1000)
        writer.close()
        await core.until(ConnectionLost)
        turns = len(core.of(TurnEnded))
        await core.until(TurnEnded, turns)
    kinds = [type(event) for event in core.events]
    assert kinds[0] is TurnEnded, "the core may begin before anybody connects"
    assert not any(a is b is TurnEnded for a, b in itertools.pairwise(kinds))
    assert kinds[-1] in (TurnEnded, Stopping)


async def test_turns_carry_wall_clock_and_memory_at_intervals(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"x")
        await read(reader, 1)
        await core.until(TurnEnded, 3)
        writer.close()
    first, second = core.of(TurnEnded)[:2]
    assert abs(first.wall_ms - time.time() * 1000) < 60_000
    assert first.resident_bytes > 1_000_000
    assert second.resident_bytes is None


async def test_a_turn_is_told_the_processor_time_and_the_events_of_the_one_before(tmp_path: Path) -> None:
    def work(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            until = time.thread_time() + 0.03
            while time.thread_time() < until:
                continue
            yield SendBytes(connection=event.connection, chunks=[event.data])

    core = FakeCore(work)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"x")
        await read(reader, 1)
        turns = len(core.of(TurnEnded))
        writer.write(b"y")
        await read(reader, 1)
        await core.until(TurnEnded, turns + 1)
        writer.close()
        await core.until(ConnectionLost)
    told = core.of(TurnEnded)
    assert told[0].cpu_s is None and all(turn.cpu_s is not None for turn in told[1:])
    long = [turn for turn in told[1:] if turn.cpu_s >= 0.03]
    assert long and all(turn.kinds[0] == "BytesReceived" for turn in long)


async def test_the_core_is_told_what_waits_for_the_socket_and_what_was_put_off(tmp_path: Path) -> None:
    def answer(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived) and event.data == b"go":
            yield SendBytes(connection=event.connection, chunks=[b"a" * 20_000_000])

    core = FakeCore(answer)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"go")
        await core.until(WritingPaused)
        assert len(await read(reader, 20_000_000)) == 20_000_000
        await core.until(WritingResumed)
        writer.write(b"z" * 3_000_000)
        assert (await core.until(ReadPutOff)).size > 0
        writer.close()
        await core.until(ConnectionLost)
    turns = core.of(TurnEnded)
    unsent = [size for turn in turns for _, size in turn.unsent]
    assert max(unsent) > 1_000_000 and unsent[-1] < 256 * 1024
    assert any(turn.put_off_bytes for turn in turns) and turns[-1].put_off_bytes == 0


async def test_close_flushes_and_abort_does_not_wait(tmp_path: Path) -> None:
    def answer(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            yield SendBytes(connection=event.connection, chunks=[b"y" * 1_000_000])
            yield CloseConnection(connection=event.connection, abort=event.data == b"abort")

    core = FakeCore(answer)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"close")
        async with asyncio.timeout(LIMIT_S):
            assert len(await reader.read(-1)) == 1_000_000
        writer.close()
        await core.until(ConnectionLost)
        reader, writer = await running.connect()
        writer.write(b"abort")
        await core.until(ConnectionLost, 2)
        writer.close()


async def test_commands_for_a_connection_that_is_gone_are_dropped(tmp_path: Path) -> None:
    def late(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, ConnectionLost):
            yield SendBytes(connection=event.connection, chunks=[b"late"])
            yield CloseConnection(connection=event.connection)

    core = FakeCore(late)
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        writer.close()
        await core.until(ConnectionLost)
    assert await running.code() == 0


async def test_a_full_socket_is_told_and_order_holds(tmp_path: Path) -> None:
    """What a pause brings about is written after what was given before it."""

    def answer(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            yield SendBytes(connection=event.connection, chunks=[b"a" * 8_000_000])
            yield SendBytes(connection=event.connection, chunks=[b"b" * 1_000])
        if isinstance(event, WritingPaused):
            yield SendBytes(connection=event.connection, chunks=[b"c" * 1_000])
        if isinstance(event, WritingResumed):
            yield SendBytes(connection=event.connection, chunks=[b"d"])

    core = FakeCore(answer)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"go")
        await core.until(WritingPaused)
        assert not core.of(WritingResumed)
        assert await read(reader, 8_000_000) == b"a" * 8_000_000
        assert await read(reader, 2_001) == b"b" * 1_000 + b"c" * 1_000 + b"d"
        writer.close()


async def test_one_past_connections_max_is_dropped(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, settings(tmp_path, connections_max=1, reserved=1)) as running:
        held = [await running.connect() for _ in range(2 + REFUSALS_MAX)]
        await core.until(ConnectionOpened, 2 + REFUSALS_MAX)
        for _ in range(2):
            reader, writer = await running.connect()
            with pytest.raises(ConnectionError):
                await read_until_end(reader)
            writer.close()
        held.pop()[1].close()
        await core.until(ConnectionLost)
        reader, writer = await running.connect()
        writer.write(b"in")
        assert await read(reader, 2) == b"in"
        writer.close()
        for _, other in held:
            other.close()
    assert len(core.of(ConnectionOpened)) == 3 + REFUSALS_MAX
    assert ["connections_max 1 and its reserve reached" in event.text for event in core.of(DriverWarned)] == [True]


async def read_until_end(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(LIMIT_S):
        if not await reader.read(-1):
            raise ConnectionError("closed")


async def test_sockets_send_at_once_and_hold_little(tmp_path: Path) -> None:
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        await core.until(ConnectionOpened)
        own = running.runtime._peers[1].transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 128 * 1024
        writer.close()


# ------------------------------------------------------------------------------------------------ timers


async def test_a_deadline_fires_not_early_and_once(tmp_path: Path) -> None:
    fired: list[tuple[float, float]] = []

    def timed(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, TimerFired):
            assert core.deadline is not None
            fired.append((core.deadline, now))
            core.deadline = None if len(fired) == 3 else now + 0.01
        return ()

    core = FakeCore(timed)
    core.deadline = time.monotonic() + 0.05
    async with Running(core, settings(tmp_path)):
        await core.until(TimerFired, 3)
        await core.until(TurnEnded, 4)
    assert len(fired) == 3
    assert all(now >= deadline for deadline, now in fired)


async def test_a_core_that_has_more_to_do_is_called_again_while_sockets_are_read(tmp_path: Path) -> None:
    """A deadline of now is work in pieces; it ends here with what arrives meanwhile."""

    def busy(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, ConnectionOpened | TimerFired):
            core.deadline = now
        if isinstance(event, BytesReceived):
            core.deadline = None
        return ()

    core = FakeCore(busy)
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        await core.until(TimerFired, 100)
        writer.write(b"x")
        await core.until(BytesReceived)
        writer.close()


async def test_a_nearer_deadline_replaces_a_farther_one(tmp_path: Path) -> None:
    def timed(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, ConnectionOpened):
            core.deadline = now + 0.02
        if isinstance(event, TimerFired):
            core.deadline = None
        return ()

    core = FakeCore(timed)
    core.deadline = time.monotonic() + 3600
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        await core.until(TimerFired)
        writer.close()


async def test_a_deadline_that_moved_away_does_not_fire(tmp_path: Path) -> None:
    core = FakeCore(echo)
    core.deadline = time.monotonic() + 0.5  # far enough that a busy machine moves it in time
    async with Running(core, settings(tmp_path)) as running:
        core.deadline = time.monotonic() + 0.6
        await core.until(TimerFired)
        assert time.monotonic() >= core.deadline
        core.deadline = None
    assert running.task.done()


# ------------------------------------------------------------------------------------------------ commits


async def test_a_commit_is_answered(tmp_path: Path) -> None:
    core = FakeCore(Once(commit(7), TurnEnded))
    async with Running(core, settings(tmp_path)) as running:
        done = await core.until(Committed)
        assert (done.number, done.room_bytes) == (7, running.store.room_bytes())
        assert running.store.get(1, 7) == b"body"
        assert core.events[-1] == done or isinstance(core.events[-1], TurnEnded)


async def test_the_answer_to_a_commit_ends_its_turn_and_the_next_is_handed_over_after_what_the_turn_says(
    tmp_path: Path,
) -> None:
    passed: asyncio.Future[type] = asyncio.get_running_loop().create_future()

    def talk(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            wanted.append(event.connection)
        if isinstance(event, TurnEnded) and wanted and not core.of(Committed):
            yield commit(1)
            yield SendBytes(connection=wanted.pop(), chunks=[b"gathered"])
        if isinstance(event, Committed):
            asyncio.get_running_loop().call_soon(lambda: passed.set_result(type(core.events[-1])))

    wanted: list[int] = []
    core = FakeCore(talk)
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        writer.write(b"x")
        assert await read(reader, 8) == b"gathered"
        async with asyncio.timeout(LIMIT_S):
            assert await passed is TurnEnded, "before anything else of the loop's is run"
        assert running.store.get(1, 1) == b"body"
        writer.close()


async def test_a_full_store_refuses_and_the_node_goes_on(tmp_path: Path) -> None:
    store = FailingStore(StorageFull("no space"))

    def again(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, TurnEnded) and not core.of(CommitRefused) and len(core.of(TurnEnded)) == 1:
            yield commit(1)
        if isinstance(event, CommitRefused):
            store.error = None
            yield commit(2)

    core = FakeCore(again)
    async with Running(core, settings(tmp_path), store=store):
        assert (await core.until(CommitRefused)).number == 1
        assert (await core.until(Committed)).number == 2
    assert store.asked == 2


@pytest.mark.parametrize("error", [StorageError("input/output error"), RuntimeError("defect")])
async def test_a_failed_disk_ends_the_node_without_another_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store = FailingStore(error)
    core = FakeCore(lambda event, now: [commit(len(core.events))] if isinstance(event, TurnEnded) else [])
    running = Running(core, settings(tmp_path), store=store)
    assert await running.code() == 1
    events = len(core.events)
    assert not core.of(Committed)
    assert store.asked == 1
    assert len(core.events) == events
    critical = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1
    assert str(error) in critical[0]


# ------------------------------------------------------------------------------------------------ dialling


async def test_a_neighbour_is_dialled(tmp_path: Path) -> None:
    there = FakeCore(echo)
    async with Running(there, settings(tmp_path)) as hub:

        def dialling(event: Event, now: float) -> Iterable[Command]:
            if isinstance(event, TurnEnded) and len(here.of(TurnEnded)) == 1:
                yield Connect(neighbour="hub")
            if isinstance(event, ConnectionOpened):
                yield SendBytes(connection=event.connection, chunks=[b"AM", b"QP"])

        here = FakeCore(dialling)
        async with Running(here, settings(tmp_path, neighbours=(neighbour(hub.port),))) as running:
            opened = await here.until(ConnectionOpened)
            assert (opened.neighbour, opened.loopback) == ("hub", True)
            assert (await here.until(BytesReceived)).data == b"AMQP"
            own = running.runtime._peers[opened.connection].transport.get_extra_info("socket")
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 16 * 1024


# ------------------------------------------------------------------------------------------ records and logs


async def test_records_go_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    lost = {"origin": UUID(int=1), "first": 1, "last": 2, "reason": "why"}
    core = FakeCore(Once(Record(kind="loss", fields=lost), TurnEnded))
    async with Running(core, settings(tmp_path), telemetry=TelemetryFile(path)):
        await eventually_true(lambda: path.read_text().endswith("\n"), what="the record is in the file")
    told = json.loads(path.read_text())
    assert (told["kind"], told["node"], told["reason"]) == ("loss", "ewr", "why")
    assert told["uptime_s"] >= 0


async def test_records_without_a_file_are_dropped(tmp_path: Path) -> None:
    core = FakeCore(Once(Record(kind="node", fields={}), TurnEnded))
    async with Running(core, settings(tmp_path)) as running:
        pass
    assert await running.code() == 0


async def test_a_record_that_breaks_its_schema_is_said_once_and_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core = FakeCore(lambda event, now: [Record(kind="node", fields={})] if isinstance(event, TurnEnded) else [])
    async with Running(core, settings(tmp_path), telemetry=TelemetryFile(tmp_path / "t")) as running:
        _, writer = await running.connect()
        writer.close()
        await core.until(ConnectionLost)
    assert await running.code() == 0
    assert (tmp_path / "t").read_bytes() == b""
    assert caplog.text.count("telemetry node: ") == 1


async def test_a_log_line_stays_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore(Once(Log(level="WARNING", text="peer 'a\nb' says é"), TurnEnded))
    async with Running(core, settings(tmp_path)):
        pass
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "\n" not in record.getMessage()
    assert "a\\nb" in record.getMessage()


# ------------------------------------------------------------------------------------------------ the end


async def test_stop_tells_the_core_and_flushes(tmp_path: Path) -> None:
    core = FakeCore(lambda event, now: last_words(core, event))
    async with Running(core, settings(tmp_path)) as running:
        reader, writer = await running.connect()
        await core.until(ConnectionOpened)
        running.runtime.stop()
        running.runtime.stop()
        async with asyncio.timeout(LIMIT_S):
            assert len(await reader.read(-1)) == 3_000_000
        writer.close()
        assert await running.code() == 0
    assert len(core.of(Stopping)) == 1


def last_words(core: FakeCore, event: Event) -> Iterable[Command]:
    if isinstance(event, Stopping):
        for opened in core.of(ConnectionOpened):
            yield SendBytes(connection=opened.connection, chunks=[b"z" * 3_000_000])


async def test_nobody_new_is_let_in_while_ending(tmp_path: Path) -> None:
    core = FakeCore(stops=False)
    async with Running(core, settings(tmp_path)) as running:
        running.runtime.stop()
        with pytest.raises(ConnectionError):
            reader, writer = await running.connect()
            try:
                await read_until_end(reader)
            finally:
                writer.close()
        running.runtime._finish(0)


@pytest.mark.parametrize("stops", [True, False], ids=["unread", "unanswered"])
async def test_a_peer_that_hangs_does_not_hold_the_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    monkeypatch.setattr(runtime_module, "STOP_TIME_OUT_S", 0.2)
    core = FakeCore(lambda event, now: last_words(core, event), stops=stops)
    async with Running(core, settings(tmp_path)) as running:
        _, writer = await running.connect()
        writer.transport.pause_reading()
        await core.until(ConnectionOpened)
        running.runtime.stop()
        assert await running.code() == 0
        writer.transport.abort()


@pytest.mark.parametrize("stops", [True, False], ids=["core-done", "core-waits"])
async def test_a_disk_that_hangs_does_not_hold_the_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stops: bool
) -> None:
    monkeypatch.setattr(runtime_module, "STOP_TIME_OUT_S", 0.2)
    monkeypatch.setattr(runtime_module, "WRITER_TIME_OUT_S", 0.1)
    store = HangingStore()
    core = FakeCore(Once(commit(1), TurnEnded), stops=stops)
    try:
        async with Running(core, settings(tmp_path), store=store) as running:
            assert await asyncio.to_thread(store.entered.wait, LIMIT_S)
            running.runtime.stop()
            assert await running.code() == 1
        lines = [record.getMessage() for record in caplog.records]
        assert sum("the disk has not answered a commit for" in line for line in lines) == 1
        assert not any("not every peer" in line for line in lines)
    finally:
        store.go_on.set()


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async with Running(FakeCore(), settings(tmp_path)) as running:
        given = settings(tmp_path)
        taken = type(given)(core=given.core, listen=(HostPort("127.0.0.1", running.port),), data=tmp_path / "other")
        with pytest.raises(HoldfastError, match=f"127.0.0.1:{running.port}: the port is in use already"):
            await Running(FakeCore(), taken).task


# ------------------------------------------------------------------------------------------------ points


async def test_points_are_counted(tmp_path: Path) -> None:
    points = Moments(None, None)

    def acted(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            yield commit(1)
        if isinstance(event, Committed) and event.number < 3:
            yield SendBytes(connection=1, chunks=[b"settled"])
            yield commit(event.number + 1, Batch(retires=[(1, 1)]) if event.number == 1 else Batch())

    core = FakeCore(acted)
    async with Running(core, settings(tmp_path), points=points) as running:
        reader, writer = await running.connect()
        writer.write(b"x")
        assert await read(reader, 7) == b"settled"
        await core.until(Committed, 3)
        assert await read(reader, 7) == b"settled"
        writer.close()
        await core.until(ConnectionLost)
    assert points.counts == {
        "before-append": 1,
        "append": 1,
        "committing": 0,
        "committed": 0,
        "settled": 2,
        "retiring": 1,
        "retired": 1,
    }
