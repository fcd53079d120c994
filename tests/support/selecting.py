"""Consumers with selectors of one queue, which has numbered messages.

Rules of this file: a body is its number, so that a test can say which came.
"""

from typing import Any

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Accepted, Header, Properties
from holdfast.amqp.wire.types import Described, Symbol
from support.rig import Client, Node, Rig

NAME = Symbol("apache.org:selector-filter:string")
THIRDS = "JMSType = 'third'"
OTHERS = "JMSType <> 'third'"


def fill(rig: Rig, node: Node, count: int, first: int = 0, size: int = 1) -> list[int]:
    """Messages numbered from `first`; every third has the subject `third`, and its last digit is its priority. Returns
    those that were accepted."""
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(first, first + count):
        properties = Properties(subject="third" if number % 3 == 0 else "other")
        header = Header(durable=True, priority=number % 10)
        if not link.credit:
            break
        client.send(link, f"{number}".ljust(size), properties=properties, header=header)
        if number % 100 == 99:
            rig.settle()
    rig.settle()
    return [int(body) for body, state in client.outcomes if isinstance(state, Accepted)]


def consume(rig: Rig, client: Client, selector: str | None, credit: int = 1_000, **options: Any) -> Receiver:
    source = options.pop("source", {})
    if selector is not None:
        source["filter"] = {Symbol("selector"): Described(NAME, selector)}
    link = client.receiver("work", credit=credit, source=source, **options)
    rig.settle()
    return link


def numbers(client: Client, link: Receiver | None = None) -> list[int]:
    return [int(body) for body in client.bodies(link)]


def thirds(count: int) -> list[int]:
    return [number for number in range(count) if number % 3 == 0]


def others(count: int) -> list[int]:
    return [number for number in range(count) if number % 3]
