"""Many queues of one node: made by sending to each, counted by `status`, and there again after a restart.

Rules of this file: the client library speaks here, since what is measured is the node's own bookkeeping, not a rate.
"""

import asyncio
import time

from holdfast.client import Connection, connect

SENDERS_AT_ONCE = 100
"""Links open at a time; each is closed when its message is accepted."""


async def _send_one(connection: Connection, name: str, size: int) -> None:
    sender = await connection.sender(name)
    await sender.send(bytes(size))
    await sender.close()


async def _make(url: str, prefix: str, count: int, size: int) -> float:
    gate = asyncio.Semaphore(SENDERS_AT_ONCE)

    async with await connect(url) as connection:

        async def one(number: int) -> None:
            async with gate:
                await _send_one(connection, f"{prefix}-{number}", size)

        began = time.monotonic()
        await asyncio.gather(*[one(number) for number in range(count)])
        return time.monotonic() - began


async def _status(url: str) -> tuple[float, dict[str, int]]:
    async with await connect(url) as connection:
        began = time.monotonic()
        told = await connection.admin.status()
        seconds = time.monotonic() - began
    return seconds, {str(queue["name"]): int(queue["messages"]) for queue in told["queues"]}


def make_queues(url: str, prefix: str, count: int, size: int) -> float:
    """Seconds for `count` queues, one message of `size` bytes accepted by each."""
    return asyncio.run(_make(url, prefix, count, size))


def status(url: str) -> tuple[float, dict[str, int]]:
    """Seconds from the question to the whole answer, with every queue; messages by queue."""
    return asyncio.run(_status(url))
