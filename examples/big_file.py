"""Sends a file of any size as one message to the queue `files`, and saves it under another name. Memory holds a part.

python examples/big_file.py amqp://127.0.0.1:5672 FILE COPY
"""

import asyncio
import sys
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


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
