"""Sends three messages to the queue `greetings` and receives them.

python examples/send_and_receive.py amqp://127.0.0.1:5672
"""

import argparse
import asyncio

from holdfast.client import Accepted, connect


async def main(url: str) -> None:
    async with await connect(url) as connection:
        sender = await connection.sender("greetings")
        for text in ("good morning", "good day", "good night"):
            outcome = await sender.send(text)
            assert isinstance(outcome, Accepted), outcome  # the node has stored it

        receiver = await connection.receiver("greetings", count_max=3)
        async for delivery in receiver:
            print(delivery.sequence, delivery.message.body_bytes().decode())
            await delivery.accept()  # now the node may delete it


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
asyncio.run(main(parser.parse_args().url))
