"""One life of a client with a spool, recorded: a process of its own, and the node that it speaks to within it.

    python -m crash.spool_life SPOOL ROOT LOG SEED FIRST COUNT

Rules of this file: what the node stored is written into the log at once, and each life begins with all of it: the
node loses nothing. Bodies are the numbers from FIRST on, COUNT of them.
"""

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from client.fake_broker import FakeBroker
from holdfast.broker.stored.ranges import RangeSet
from holdfast.client import Spool, connect
from holdfast.client.spool import numbering, spool
from holdfast_lab.powerloss.calls import Record, mark_bytes, read_log

ADDRESS, PRODUCER = "q", "p"
LIMIT_S = 30.0


def make_small() -> None:
    """Blocks and files of which a short life needs several."""
    numbering.BLOCK = 8
    spool.COMPACT_BYTES = 2_000


def node_of(records: Iterable[Record]) -> FakeBroker:
    """A broker that has what the marks among `records` say was stored."""
    broker = FakeBroker()
    stored = broker.producers.setdefault((ADDRESS, PRODUCER), RangeSet())
    for one in records:
        if one.kind == "M" and (mark := one.mark)["did"] == "store":
            broker.append(ADDRESS, bytes.fromhex(mark["bare"]))
            stored.add(mark["number"])
    return broker


async def live(path: Path, root: Path, log: Path, seed: int, first: int, count: int) -> None:
    rng = Random(f"life {seed}")
    interval_s = rng.choice((0.0, 0.02, 60.0))
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)

    def mark(**fields: Any) -> None:
        os.write(descriptor, mark_bytes(**fields))

    broker = node_of(read_log(log, root))
    broker.on_append = lambda number, bare: mark(did="store", number=number, bare=bare.hex())
    await broker.listen()
    is_late = rng.random() < 0.4
    if is_late:
        await broker.stop()
    connection = await connect(broker.url, retry_s=LIMIT_S, wait=False, rng=rng)
    sender = await connection.sender(
        ADDRESS, producer=PRODUCER, in_doubt_max=5, when_full=Spool(path, fsync_interval_s=interval_s)
    )
    for number in range(first, first + count):
        await sender.post(b"%d " % number + rng.randbytes(rng.choice((0, 10, 700))).hex().encode())
        mark(did="post", number=number, kept=interval_s == 0)
        if is_late and number == first + count // 2:
            await broker.listen()
            await asyncio.wait_for(sender.ready(), LIMIT_S)
        draw = rng.random()
        if draw < 0.3:
            await asyncio.sleep(0)
        elif draw < 0.4:
            broker.hold_outcomes = True
        elif draw < 0.5:
            broker.release_outcomes()
        elif draw < 0.53:
            broker.cut()
    if rng.random() < 0.6:
        broker.release_outcomes()
        await asyncio.wait_for(sender.drain(), LIMIT_S)
    if rng.random() < 0.5:
        os._exit(0)  # nothing is put in order
    await connection.abort()
    mark(did="end")


if __name__ == "__main__":
    make_small()
    _, path, root, log, *numbers = sys.argv
    asyncio.run(live(Path(path), Path(root), Path(log), *map(int, numbers)))
