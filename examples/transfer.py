"""Answers each message of the queue `greetings` in the queue `answers`, both in one transaction.

python examples/transfer.py amqp://127.0.0.1:5672
"""

import argparse
import asyncio

from holdfast.client import TransactionRolledBack, connect


async def main(url: str) -> None:
    async with await connect(url) as connection:
        answers = await connection.sender("answers")
        greetings = await connection.receiver("greetings", count_max=3)
        async for greeting in greetings:
            text = greeting.body
            try:
                async with connection.transaction() as transaction:
                    await transaction.send(answers, f"{text} to you")
                    transaction.accept(greeting)  # it leaves its queue as the answer enters the other
            except TransactionRolledBack as error:  # then neither has happened
                print(f"{text}: {error}")
            else:
                print(f"answered {text}")


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
asyncio.run(main(parser.parse_args().url))
