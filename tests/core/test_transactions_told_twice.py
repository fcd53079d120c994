"""A named producer's number is told once to who listens to a topic, whichever way it came first."""

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted
from support.transactions import started


def test_a_number_that_was_stored_meanwhile_is_not_told_again_at_the_commit() -> None:
    """The commit leaves the message out of the store, as a duplicate, and gives it to the listeners all the same."""
    rig, node, client, controller = started()
    listener = rig.client(node)
    listener.receiver("topic/news")
    link = client.sender("topic/news", properties={PRODUCER: "p"})
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1", number=1) == Accepted()
    client.send(link, "1", number=1)
    rig.settle()
    assert controller.commit(mine) == Accepted()
    assert listener.bodies() == ["1"]
