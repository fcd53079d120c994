"""Asks for the sum of some numbers, and answers such requests: with numbers it asks, without it answers.

python examples/ask.py amqp://127.0.0.1:5672 &
python examples/ask.py amqp://127.0.0.1:5672 1 2 3
"""

import argparse
import asyncio

from holdfast.client import NoReply, connect


async def main(url: str, numbers: list[int]) -> None:
    async with await connect(url) as connection:
        if numbers:
            try:
                reply = await connection.request("sums", numbers, limit_s=10)
            except NoReply as error:
                raise SystemExit(str(error)) from None
            print(reply.body)
            return
        async with connection.receiver("sums") as receiver:
            async for asked in receiver:
                async with asked.process(on_error="reject"):
                    await connection.reply(asked, sum(asked.body))


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("numbers", type=int, nargs="*", help="what to add up; without any, requests are answered")
args = parser.parse_args()
asyncio.run(main(args.url, args.numbers))
