"""A spool that is being synced when its sender ends, however that ends: it is free for the next one, and keeps what it
had."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from client.fake_broker import FakeBroker
from holdfast.client import Connection, Sender, Spool, connect
from holdfast.client.spool import SpoolFile
from holdfast.errors import StorageError


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
