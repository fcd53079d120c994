"""Sends a file of any size as one message to the queue `files`, and saves it under another name. Memory holds a part.

python examples/big_file.py amqp://127.0.0.1:5672 FILE COPY
"""

import argparse
import asyncio
from pathlib import Path

from holdfast.client import Message, connect


async def main(url: str, file: Path, copy: Path) -> None:
    async with await connect(url) as connection:
        sender = await connection.sender("files")
        outcome = await sender.send_parts(file, message=Message(application_properties={"file-name": file.name}))
        print(type(outcome).__name__)

        receiver = await connection.parts_receiver("files", count_max=1)
        async for delivery in receiver:
            written = await delivery.save(copy)
            print(delivery.message.application_properties, written)
            await delivery.accept()  # after its end: all of it is on the disk


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("file", type=Path, help="the file to send")
parser.add_argument("copy", type=Path, help="where to save it")
args = parser.parse_args()
asyncio.run(main(args.url, args.file, args.copy))
