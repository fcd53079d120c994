"""Who listens to a topic is told what is published once it is stored, where a durable subscription wants it too."""

import pytest

from holdfast.amqp.wire.performatives import Accepted, Properties
from holdfast.amqp.wire.types import Symbol
from support.one_node import world
from support.transactions import Controller


@pytest.mark.parametrize("within", [True, False])
def test_what_a_full_disk_refused_is_told_once_when_it_is_sent_again(within: bool) -> None:
    """As in a transaction, where it is so (discharge.py), and over a link between queues (handing.py)."""
    rig, node, client = world()
    listener = rig.client(node)
    listener.receiver("topic/news", name="listens")
    listener.receiver("topic/news", name="lasts", credit=0, source={"durable": 2, "expiry_policy": Symbol("never")})
    link = client.sender("topic/news")
    controller = Controller(client)
    for refused in (1, 0):
        node.refuse = refused
        if within:
            mine = controller.begin()
            controller.send(mine, link, "1")
            outcome = controller.commit(mine)
        else:
            client.send(link, "1")
            rig.settle()
            outcome = client.outcomes[-1][1]
        assert (outcome == Accepted()) is not bool(refused)
        rig.run(3)
    assert node.bodies("topic/news") == ["1"]
    assert listener.bodies() == ["1"]


def test_what_is_stored_for_nobody_is_told_behind_what_is_not_stored_yet() -> None:
    """A listener that wants both is given them in the order in which they were published."""
    rig, node, client = world()
    listener = rig.client(node)
    listener.receiver("topic/news", name="listens")
    durable = {"durable": 2, "expiry_policy": Symbol("never")}
    listener.receiver("topic/news/kept", name="lasts", credit=0, source=durable)
    link = client.sender("topic/news")
    rig.settle()
    for number, subject in enumerate(("kept", "other", "kept", "other"), 1):
        client.send(link, str(number), properties=Properties(subject=subject))
    rig.run(1)
    assert listener.bodies() == ["1", "2", "3", "4"]
    assert node.bodies("topic/news") == ["1", "3"]
