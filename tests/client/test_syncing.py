"""When a spool is synced: whoever waits is told, once what it wrote is on the disk, and the loop goes on meanwhile."""

import asyncio
from typing import Any, cast

from holdfast.client.spool import SpoolFile
from holdfast.client.syncing import Syncing


class FakeSpool:
    """A spool that counts."""

    def __init__(self) -> None:
        self.dirty = self.syncing = False
        self.syncs = 0

    def sync(self) -> None:
        self.dirty = False
        self.syncs += 1

    def close(self) -> None:
        return


class Holder:
    def is_over(self) -> bool:
        return False

    def fail(self, error: Exception) -> None:
        raise AssertionError(error)


def begun() -> tuple[FakeSpool, Syncing]:
    spool = FakeSpool()
    return spool, Syncing(Holder(), cast(SpoolFile, cast(Any, spool)), 0.0, asyncio.get_running_loop())


async def test_who_asks_between_the_end_of_a_sync_and_its_word_does_not_hold_up_the_loop() -> None:
    """Tasks that ask as soon as they are told: some come in the very pass in which the sync has ended."""
    spool, syncing = begun()

    async def submits(count: int) -> None:
        for _ in range(count):
            spool.dirty = True
            await syncing.done()

    async with asyncio.timeout(20.0):
        await asyncio.gather(*(submits(100) for _ in range(8)))
    assert spool.syncs <= 8 * 100


async def test_who_submits_again_and_again_holds_up_no_other() -> None:
    spool, syncing = begun()
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
