"""Makes a queue that holds at most a thousand messages, and lists the node's queues.

python examples/manage.py amqp://127.0.0.1:5672 QUEUE
"""

import argparse
import sys

from holdfast.client import ManagementError
from holdfast.client.blocking import BlockingConnection

parser = argparse.ArgumentParser()
parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
parser.add_argument("queue", help="the name of the new queue")
args = parser.parse_args()
url, queue = args.url, args.queue
with BlockingConnection(url) as connection:
    try:
        connection.admin.create_queue(queue, messages_max=1_000)
    except ManagementError as error:
        sys.exit(str(error))
    for found in connection.admin.queues():
        print(found["name"], found["messages"])
