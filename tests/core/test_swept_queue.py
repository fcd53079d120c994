"""What a queue's consumers have finished leaves it when its last subscription is deleted, however often it is."""

from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world


def test_a_subscription_that_is_deleted_and_made_anew_and_deleted_leaves_nothing_behind() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=1_000))
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    fill(rig, client, 900)
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert len(other.accept()) == 900
    rig.run(1)
    assert node.queue("work").messages == 900, "the subscription has them to come"
    assert client._management is not None

    def ask(operation: str, number: int, **arguments: Any) -> None:
        told = {"operation": operation, "type": "holdfast:subscription", "name": "s"}
        properties = Properties(message_id=f"x{number}", reply_to="replies")
        request = Message(properties=properties, application_properties=told, value=arguments)
        assert client._management is not None
        client._management[0].send(request.encode(), context=None, settled=True)

    ask("DELETE", 1, queue="work")
    ask("OPEN", 2, queue="work", mode="copy")
    ask("DELETE", 3, queue="work")
    for _ in range(10):
        rig.run(1)
    assert not node.queue("work").named
    assert node.queue("work").messages == 0 and node.bodies("work") == []
