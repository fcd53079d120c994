"""A link that is deleted while it waits for memory is waited with no more."""

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.one_node import done, world


def test_a_link_that_waits_for_memory_may_be_deleted() -> None:
    """Its target, a queue in memory, is full; once there is room, the node ends for a failed assertion."""
    queues = (QueueConfig(name="work", durable=False), QueueConfig(name="m", durable=False))
    rig, node, client = world(*queues, limits=Limits(memory_queue_bytes_max=300 * KIB))
    node.unwatched |= {"work", "m"}
    done(client, "CREATE", "link", "l", **{"from": "work", "to": "m"})
    sender = client.sender("work")
    rig.settle()
    number = 0
    while sender.credit:
        client.send(sender, "x" * 10_000)
        number += 1
        rig.settle()
    assert node.core is not None and node.core.memory.waiting
    assert node.queue("m").messages
    done(client, "DELETE", "link", "l")
    rig.run(1)
    link = client.receiver("m")
    rig.settle()
    client.accept(link=link)
    rig.run(1)
    assert node.queue("m").messages == 0
