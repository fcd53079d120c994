"""Sends three messages to the queue `greetings` and receives them.

python examples/send_and_receive.py amqp://127.0.0.1:5672
"""

import argparse
import asyncio

from holdfast.client import connect


async def main(url: str) -> None:
    async with await connect(url) as connection:
        async with connection.sender("greetings") as sender:
            for text in ("good morning", "good day", "good night"):
                await sender.send(text)  # returns once the node has stored it

        async with connection.receiver("greetings", count_max=3) as receiver:
            async for delivery in receiver:
                async with delivery.process():  # accepts it at the end of the block: now the node may delete it
                    print(delivery.sequence, delivery.body)


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
asyncio.run(main(parser.parse_args().url))
