"""Takes five readings for the queue `readings`. Without a node they wait in a file, and the next run sends them first.

python examples/sensor.py amqp://127.0.0.1:5672 FILE
"""

import argparse
import asyncio
import time

from holdfast.client import Message, Spool, connect

WAIT_S = 1.0


async def main(url: str, file: str) -> None:
    connection = await connect(url, wait=False)
    sender = await connection.sender("readings", producer="sensor-1", when_full=Spool(file))
    for reading in range(5):
        message = Message(application_properties={"reading": reading, "taken_s": int(time.time())}, data=[b""])
        await sender.post(message)  # returns once the message is in the file
    try:
        await asyncio.wait_for(sender.drain(), WAIT_S)
    except TimeoutError:
        pass  # no node: the file keeps them
    print(f"accepted {sender.accepted}, waiting {sender.spooled}")
    await sender.close()
    await connection.abort()


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("file", help="the file in which messages wait")
args = parser.parse_args()
asyncio.run(main(args.url, args.file))
