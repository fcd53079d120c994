"""Passes the messages of a topic on to an address at another AMQP 1.0 broker, at least once.

python examples/bridge.py amqp://127.0.0.1:5672 'topic/flights/delayed.#' amqp://127.0.0.1:5673 flights
"""

import argparse
import asyncio

from holdfast.client import NotAccepted, Rejected, connect


async def main(url: str, topic: str, broker: str, address: str) -> None:
    # The subscription stays while this program does not run: what is published meanwhile waits for it.
    name = f"bridge to {address}"
    async with await connect(broker) as there, await connect(url) as here:
        sender = await there.sender(address)
        receiver = await here.receiver(topic, subscription=name)
        async for delivery in receiver:
            try:
                await sender.send(delivery.message)
            except NotAccepted as error:
                if isinstance(error.outcome, Rejected):
                    delivery.reject(error.condition, str(error))
                else:
                    delivery.release()
            else:
                delivery.accept()  # the other broker has it: if this answer is lost, it gets it once more


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("topic", help="what to pass on, topic/flights/delayed.# say")
parser.add_argument("broker", help="the other broker, amqp://127.0.0.1:5673 say")
parser.add_argument("address", help="where the messages go there")
arguments = parser.parse_args()
asyncio.run(main(arguments.url, arguments.topic, arguments.broker, arguments.address))
