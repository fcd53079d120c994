"""Prints what is in a queue, without an event loop, and takes nothing.

python examples/read_queue.py amqp://127.0.0.1:5672 QUEUE
"""

import sys

from holdfast.client.blocking import BlockingConnection

_, url, queue = sys.argv
with BlockingConnection(url) as connection:
    end = connection.manage("READ", "holdfast:queue", queue)["next_sequence"]
    for entries in connection.read_range(queue, 1, end):
        for sequence, enqueued_ms, message in entries:
            print(sequence, enqueued_ms, message.body_bytes())
