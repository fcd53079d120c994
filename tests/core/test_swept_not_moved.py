"""What consumers have had cannot be moved by hand, though it is on its way off the disk only (docs/management.md)."""

from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from support.one_node import done, fill, world
from support.rig import Client


def ask(client: Client, operation: str, kind: str, name: str, **arguments: Any) -> None:
    """A request whose answer is not waited for."""
    told = {"operation": operation, "type": f"holdfast:{kind}", "name": name}
    properties = Properties(message_id=operation, reply_to="replies")
    request = Message(properties=properties, application_properties=told, value=arguments)
    assert client._management is not None
    client._management[0].send(request.encode(), context=None, settled=True)


def test_a_message_that_was_accepted_is_not_moved_when_the_last_subscription_has_gone() -> None:
    """The subscription kept it on disk; until the sweep comes to it, it counts as ready, and comes a second time."""
    rig, node, client = world()
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    fill(rig, client, 3)
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.accept() == ["1", "2", "3"]
    rig.run(1)
    uuid = str(node.queue("work").uuid)
    ask(client, "DELETE", "subscription", "s", queue="work")
    ask(client, "MOVE", "entry", "work", queue_uuid=uuid, sequence=1, delivery_count=0, to="other")
    rig.run(3)
    assert node.queue("work").messages == 0
    assert "other" not in node.core.catalog.queues or node.bodies("other") == []  # type: ignore[union-attr]
