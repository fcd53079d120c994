"""What is in a queue of a running node, without taking it."""

from holdfast.client import Connection, connect
from holdfast.entity_types import QUEUE


async def stored_bodies(url: str, queue: str = "q") -> list[bytes]:
    """The bodies, in the queue's order."""
    async with await connect(url) as connection:
        return await bodies_in(connection, queue)


async def bodies_in(connection: Connection, queue: str = "q") -> list[bytes]:
    end = (await connection.manage("READ", QUEUE, queue))["next_sequence"]
    if end == 1:
        return []
    receiver = await connection.receiver(queue, start_sequence=1, end_sequence=end)
    found = [delivery.message.body_bytes() async for delivery in receiver]
    await receiver.close()
    return found
