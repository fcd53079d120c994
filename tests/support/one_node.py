"""One node with a client, and a queue filled with numbers.

Rules of this file: a body is its number, so that a test can say which came.
"""

from typing import Any

from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig


def world(*queues: QueueConfig, **fields: Any) -> tuple[Rig, Node, Client]:
    rig = Rig()
    node = rig.node("hub", queues=queues, **fields)
    return rig, node, rig.client(node)


def fill(rig: Rig, client: Client, count: int, address: str = "work", first: int = 1) -> None:
    send(rig, client, *map(str, range(first, first + count)), address=address)


def send(rig: Rig, client: Client, *texts: str, address: str = "work") -> None:
    link = client.sender(address)
    rig.settle()
    for text in texts:
        client.send(link, text)
    rig.settle()


def done(client: Client, operation: str, kind: str, name: str, **arguments: Any) -> dict[str, Any]:
    """What `$management` answers to a request that it carries out."""
    status, body, text = client.manage(operation, kind, name, **arguments)
    assert status in (200, 201), text
    return body
