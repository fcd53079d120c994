"""A device that speaks no AMQP gives five readings to `holdfast feed`, as lines of JSON over TCP; shows them arrive.

holdfast feed readings --producer mill-1 --journal mill-1.feed --listen 127.0.0.1:7000 --format json
python examples/device.py amqp://127.0.0.1:5672 127.0.0.1:7000
"""

import argparse
import json
import socket

from holdfast.client.blocking import BlockingConnection


def give(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as feed:
        for reading in range(5):
            feed.sendall(json.dumps({"device": "mill-1", "kg": reading}).encode() + b"\n")


def main(url: str, address: str) -> None:
    with BlockingConnection(url) as connection:
        receiver = connection.receiver("readings", count_max=5)
        give(address)
        for delivery in receiver:
            print(delivery.sequence, delivery.message.body_bytes().decode())
            delivery.accept()
        receiver.close()


parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("address", help="where the feed listens, 127.0.0.1:7000 say")
args = parser.parse_args()
main(args.url, args.address)
