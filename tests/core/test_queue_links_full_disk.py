"""A link whose message would be a dead letter, for which the disk has no room, waits for that room."""

from holdfast.settings.queues import LinkConfig, QueueConfig
from support.one_node import world


def test_a_dead_letter_without_room_does_not_keep_the_node_busy() -> None:
    """From memory to memory nothing else asks for room, so the link takes the message again in each turn."""
    queues = (QueueConfig(name="work", durable=False), QueueConfig(name="m", durable=False))
    rig, node, client = world(*queues, links=(LinkConfig(name="l", source="work", target="m"),))
    node.unwatched |= {"work", "m"}
    assert node.core is not None
    sender = client.sender("work")
    rig.settle()
    node.store.missing = "removed"
    node.store.on_disk = True
    node.core.disk.look()  # as it does once a second
    turns = node.turns
    client.send(sender, "1", message_annotations={f"x-opt-{number}": number for number in range(1_000)})
    rig.run(5)
    assert node.turns - turns < 100
