"""A receiver may give an outcome in a transaction first, and settle with the same outcome later (AMQP 1.0 §2.6.12)."""

from holdfast.amqp.wire.performatives import Accepted, TransactionalState
from holdfast.settings.queues import QueueConfig
from support.transactions import started


def test_the_same_word_settled_does_not_take_the_room_from_what_was_brought() -> None:
    """The delivery is given back for a moment, in which what replaces it at the full queue finds no room."""
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=1))
    link = client.sender("work")
    rig.settle()
    client.send(link, "x")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    item = client.deliveries[0]
    controller.say(item, TransactionalState(mine, Accepted()), settled=False)
    rig.settle()
    assert controller.send(mine, link, "y") == Accepted()
    controller.say(item, TransactionalState(mine, Accepted()), settled=True)
    rig.settle()
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["y"]
