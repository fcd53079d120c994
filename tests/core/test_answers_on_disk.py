"""What an answer of `$management` says is on disk, also where it says that something is gone (management/requests)."""

import pytest

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.message.message import Message
from support.one_node import world
from support.rig import Client, Rig


def links(client: Client) -> tuple[Sender, Receiver]:
    assert client._management is not None
    return client._management


def ask(rig: Rig, client: Client, operation: str, kind: str, name: str, **arguments: str) -> None:
    """Requests it, and waits for nothing."""
    client.request(operation, kind, name, **arguments)
    rig.settle()


def answers(client: Client) -> list[int]:
    """The codes that came since the last call."""
    _, replies = links(client)
    found = [Message.decode(item.payload) for item in client.deliveries if item.link is replies]
    client.deliveries = [item for item in client.deliveries if item.link is not replies]
    return [int((message.application_properties or {})["statusCode"]) for message in found]


@pytest.mark.parametrize("operation", ["DELETE", "READ"])
def test_that_something_is_gone_is_said_once_that_is_stored(operation: str) -> None:
    """A client whose connection broke asks again. If it heard that the name is gone, and the node crashed before that
    was on disk, the name would be there again."""
    rig, node, client = world()
    assert client.manage("CREATE", "queue", "made")[0] == 201
    node.hold_commits = True
    ask(rig, client, "DELETE", "queue", "made")
    ask(rig, client, operation, "queue", "made")
    assert answers(client) == []
    node.hold_commits = False
    rig.run(1)
    assert answers(client) == [200, 404]


def test_that_a_name_is_taken_is_said_once_that_is_stored() -> None:
    rig, node, client = world()
    assert client.manage("CREATE", "queue", "work")[0] == 201
    node.hold_commits = True
    for other in ("work", "other"):
        ask(rig, client, "CREATE", "service", "print", address=other)
    assert answers(client) == []
    node.hold_commits = False
    rig.run(1)
    assert answers(client) == [201, 409]


def test_where_nothing_waits_for_the_disk_an_error_is_said_at_once() -> None:
    rig, _, client = world()
    assert client.manage("CREATE", "queue", "made")[0] == 201
    ask(rig, client, "DELETE", "queue", "nothing")
    assert answers(client) == [404]
