"""Sends the lines of a file to the queue `lines`, each once: it may be killed and started again at any moment.

    python examples/producer.py amqp://127.0.0.1:5672 FILE

The line's place in the file is the producer's number for it, so the node knows the lines that it has.
"""

import argparse
import asyncio
from pathlib import Path

from holdfast.client import connect


async def main(url: str, file: Path) -> None:
    async with await connect(url) as connection:
        sender = await connection.sender("lines", producer=f"lines-of-{file.name}")
        print(f"the node has lines up to {sender.last_number}")
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                await sender.post(line.rstrip(b"\n"), number=number)
        await sender.drain()  # every line has its outcome
        print(f"accepted {sender.accepted}, rejected {sender.rejected}")


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("file", type=Path, help="the file whose lines are sent")
args = parser.parse_args()
asyncio.run(main(args.url, args.file))
