"""When a spool is synced: whoever waits is told, once what it wrote is on the disk, and the loop goes on meanwhile.

However its sender ends while a sync is under way, the spool is free for the next one, and keeps what it had.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from client.fake_broker import FakeBroker
from holdfast.client import Connection, Sender, Spool, connect
from holdfast.client.spool.spool import SpoolFile
from holdfast.client.spool.syncing import Syncing
from holdfast.errors import StorageError


class FakeSpool:
    """A spool that counts. Its syncs wait for `go`, and fail with `refused`."""

    def __init__(self) -> None:
        self.dirty = self.syncing = self.closed = False
        self.syncs = 0
        self.refused: StorageError | None = None
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def sync(self) -> None:
        self.dirty = False
        self.begun.set()
        assert self.go.wait(30)
        self.syncs += 1
        if self.refused is not None:
            raise self.refused

    def close(self) -> None:
        self.closed = True


class Holder:
    """Of a spool; over once it has failed."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def is_over(self) -> bool:
        return self.failure is not None

    def fail(self, error: Exception) -> None:
        self.failure = error


def begun(interval_s: float = 0.0) -> tuple[FakeSpool, Syncing, Holder]:
    spool, holder = FakeSpool(), Holder()
    return spool, Syncing(holder, cast(SpoolFile, cast(Any, spool)), interval_s, asyncio.get_running_loop()), holder


async def under_way_at(spool: FakeSpool, syncing: Syncing, waiters: int = 1) -> list[asyncio.Task[None]]:
    """So many tasks that wait for a sync that has begun, and waits for `go`."""
    spool.go.clear()
    spool.begun.clear()
    spool.dirty = True
    tasks = [asyncio.ensure_future(syncing.done()) for _ in range(waiters)]
    await asyncio.to_thread(spool.begun.wait, 10)
    return tasks


async def test_who_asks_between_the_end_of_a_sync_and_its_word_does_not_hold_up_the_loop() -> None:
    """Tasks that ask as soon as they are told: some come in the very pass in which the sync has ended."""
    spool, syncing, _ = begun()

    async def submits(count: int) -> None:
        for _ in range(count):
            spool.dirty = True
            await syncing.done()

    async with asyncio.timeout(20.0):
        await asyncio.gather(*(submits(100) for _ in range(8)))
    assert spool.syncs <= 8 * 100


async def test_who_submits_again_and_again_holds_up_no_other() -> None:
    spool, syncing, _ = begun()
    ends = False

    async def again() -> None:
        while not ends:
            spool.dirty = True
            await syncing.done()

    hog = asyncio.ensure_future(again())
    async with asyncio.timeout(20.0):
        for _ in range(50):
            spool.dirty = True
            before = spool.syncs
            await syncing.done()
            assert spool.syncs <= before + 3
        ends = True
        await hog


async def test_callers_at_the_same_time_share_one_sync_and_a_later_one_waits_for_the_next() -> None:
    spool, syncing, _ = begun()
    early = await under_way_at(spool, syncing, 3)
    idle = asyncio.ensure_future(syncing.done())  # it has written nothing, which all is on the disk
    spool.dirty = True
    late = [asyncio.ensure_future(syncing.done()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not idle.done()
    spool.go.set()
    async with asyncio.timeout(10.0):
        await asyncio.gather(*early, idle)
        await asyncio.gather(*late)
    assert spool.syncs == 2 and not spool.dirty


async def test_a_waiter_that_is_cancelled_costs_no_other() -> None:
    spool, syncing, holder = begun()
    gone, stays = await under_way_at(spool, syncing, 2)
    await cancelled(cast("asyncio.Task[object]", gone))
    spool.go.set()
    async with asyncio.timeout(10.0):
        await stays
    assert spool.syncs == 1 and holder.failure is None
    spool.dirty = True
    async with asyncio.timeout(10.0):
        await syncing.done()
    assert spool.syncs == 2


async def test_what_the_disk_refuses_is_told_to_each_who_waits_and_to_the_holder() -> None:
    """To those too that wait for the sync after it, which does not come."""
    spool, syncing, holder = begun()
    waiting = await under_way_at(spool, syncing, 2)
    spool.dirty = True
    waiting.append(asyncio.ensure_future(syncing.done()))
    await asyncio.sleep(0)
    spool.refused = StorageError("Input/output error")
    spool.go.set()
    async with asyncio.timeout(10.0):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert found == [spool.refused] * 3 and holder.failure is spool.refused
    assert spool.closed and spool.syncs == 1


async def test_who_waits_at_a_holder_that_is_over_is_told_and_no_further_sync_begins() -> None:
    spool, syncing, holder = begun()
    waiting = await under_way_at(spool, syncing)
    spool.dirty = True
    waiting.append(asyncio.ensure_future(syncing.done()))
    await asyncio.sleep(0)
    holder.fail(ConnectionError())
    syncing.stop()
    assert not spool.closed, "it is with the thread that syncs it"
    ending = asyncio.ensure_future(syncing.ended())
    spool.go.set()
    async with asyncio.timeout(10.0):
        await asyncio.gather(*waiting, ending)
    assert spool.closed and spool.syncs == 1
    await syncing.ended()


async def test_who_waits_at_a_holder_that_is_over_hears_of_a_spool_that_could_not_be_closed() -> None:
    """What it wrote behind the last sync may not be on the disk."""
    spool, syncing, holder = begun()
    (first,) = await under_way_at(spool, syncing)
    spool.dirty = True
    behind = asyncio.ensure_future(syncing.done())
    await asyncio.sleep(0)
    holder.fail(ConnectionError())
    syncing.stop()

    def close() -> None:
        raise StorageError("Input/output error")

    spool.close = close  # type: ignore[method-assign]
    spool.go.set()
    async with asyncio.timeout(10.0):
        await first
        with pytest.raises(StorageError, match="Input/output error"):
            await behind
    assert isinstance(syncing.failure, StorageError)


async def test_who_waits_for_the_end_and_is_cancelled_leaves_the_sync_to_its_end() -> None:
    spool, syncing, _ = begun()
    (waiter,) = await under_way_at(spool, syncing)
    ending: asyncio.Task[object] = asyncio.ensure_future(cast(Any, syncing.ended()))
    await asyncio.sleep(0)
    await cancelled(ending)
    assert not waiter.done()
    spool.go.set()
    async with asyncio.timeout(10.0):
        await waiter
    assert spool.syncs == 1 and not spool.syncing


async def test_what_is_written_after_one_interval_is_synced_after_the_next() -> None:
    spool, syncing, _ = begun(0.001)
    for _ in range(3):
        spool.begun.clear()
        spool.dirty = True
        syncing.later()
        assert await asyncio.to_thread(spool.begun.wait, 10)
        await syncing.ended()
    assert spool.syncs == 3


async def test_an_interval_that_ends_with_its_loop_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has no threads any more: its holder's end syncs what is left."""
    spool, syncing, holder = begun(0.001)
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    asked = asyncio.Event()

    def none_left(*_: object) -> asyncio.Future[None]:
        asked.set()
        raise RuntimeError("Executor shutdown has been called")

    monkeypatch.setattr(loop, "run_in_executor", none_left)
    spool.dirty = True
    syncing.later()
    async with asyncio.timeout(10.0):
        await asked.wait()
    await asyncio.sleep(0)
    assert not told and spool.dirty and not spool.syncing and not holder.is_over()


# ------------------------------------------------------------------------------------ a sender that ends meanwhile


class SlowDisk:
    """One whose syncs wait until they are let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()
        self.refuses = False

    def fdatasync(self, descriptor: int) -> None:
        self.asked.set()
        assert self.go.wait(30)
        if self.refuses:
            raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk()
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            disk.fdatasync(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    yield disk
    disk.go.set()


def kept(path: Path) -> list[bytes]:
    """The messages of a spool that nobody has."""
    held = SpoolFile(Spool(path), producer="p", address="q")
    try:
        return [payload[-1:] for _, payload in held.load(100)]
    finally:
        held.close()


async def asked(disk: SlowDisk) -> None:
    await asyncio.to_thread(disk.asked.wait, 10)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def under_way(connection: Connection, path: Path, disk: SlowDisk) -> tuple[Sender, asyncio.Task[object]]:
    """A sender to a node that answers nothing, and a `submit` that waits for the disk."""
    sender = await connection.sender("q", producer="p", when_full=Spool(path, fsync_interval_s=0))
    await sender.ready()
    task: asyncio.Task[object] = asyncio.get_running_loop().create_task(sender.submit(b"a"))
    await asked(disk)
    return sender, task


async def close(connection: Connection, sender: Sender, disk: SlowDisk) -> None:
    closing = asyncio.get_running_loop().create_task(sender.close())
    await asyncio.sleep(0)
    disk.go.set()
    await closing


async def abort(connection: Connection, sender: Sender, disk: SlowDisk) -> None:
    await connection.abort()
    disk.go.set()
    await asyncio.to_thread(lambda: None)


async def cancelled_close(connection: Connection, sender: Sender, disk: SlowDisk) -> None:
    closing: asyncio.Task[object] = asyncio.get_running_loop().create_task(sender.close())
    await asyncio.sleep(0)
    await cancelled(closing)
    disk.go.set()


async def cancelled_close_of_all(connection: Connection, sender: Sender, disk: SlowDisk) -> None:
    closing: asyncio.Task[object] = asyncio.get_running_loop().create_task(connection.close())
    await asyncio.sleep(0)
    await cancelled(closing)
    disk.go.set()


Way = Callable[[Connection, Sender, SlowDisk], Awaitable[None]]
WAYS: list[Way] = [close, abort, cancelled_close, cancelled_close_of_all]


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_a_spool_is_free_when_its_sender_has_ended(
    broker: FakeBroker,
    connection: Connection,
    tmp_path: Path,
    disk: SlowDisk,
    way: Callable[..., object],
    cancels: bool,
) -> None:
    """`cancels`: whoever asked for the sync is gone before its end."""
    broker.hold_outcomes = True
    path = tmp_path / "spool"
    sender, task = await under_way(connection, path, disk)
    if cancels:
        await cancelled(task)
    await way(connection, sender, disk)
    await asyncio.wait_for(sender._syncing.ended(), 5)  # type: ignore[union-attr]
    assert kept(path) == [b"a"]
    if not cancels:
        await asyncio.wait([task])
        task.exception()


async def test_a_sync_that_fails_ends_the_sender_though_nobody_waits_for_it(
    broker: FakeBroker, connection: Connection, tmp_path: Path, disk: SlowDisk
) -> None:
    broker.hold_outcomes = disk.refuses = True
    sender, task = await under_way(connection, tmp_path / "spool", disk)
    await cancelled(task)
    disk.go.set()
    await asyncio.wait_for(sender._syncing.ended(), 5)  # type: ignore[union-attr]
    assert isinstance(sender.failure, StorageError)
    with pytest.raises(StorageError, match="Input/output error"):
        await sender.submit(b"b")


def test_a_loop_that_ends_meanwhile_leaves_the_spool_free(tmp_path: Path, disk: SlowDisk) -> None:
    """As with Ctrl-C: what waits is cancelled, and the next loop of the same process may use the spool."""
    path = tmp_path / "spool"

    async def main() -> None:
        async with FakeBroker() as broker:
            broker.hold_outcomes = True
            async with await connect(broker.url) as connection:
                await under_way(connection, path, disk)
                raise KeyboardInterrupt

    releasing = threading.Timer(0.2, disk.go.set)
    releasing.start()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    releasing.join()
    assert kept(path) == [b"a"]
