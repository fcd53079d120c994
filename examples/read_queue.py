"""Prints what is in a queue, without an event loop, and takes nothing.

python examples/read_queue.py amqp://127.0.0.1:5672 QUEUE
"""

import argparse

from holdfast.client.blocking import BlockingConnection

parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("queue", help="the queue's name")
args = parser.parse_args()
url, queue = args.url, args.queue
with BlockingConnection(url) as connection:
    end = connection.manage("READ", "holdfast:queue", queue)["next_sequence"]
    for entries in connection.read_range(queue, 1, end):
        for sequence, enqueued_ms, message in entries:
            print(sequence, enqueued_ms, message.body_bytes())
