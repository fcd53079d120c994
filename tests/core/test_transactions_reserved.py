"""What a transaction has reserved is free again when one of several deliveries is one too many for it."""

from holdfast.amqp.wire.performatives import Accepted, Rejected, TransactionalState
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import quiet, started


def test_a_take_past_the_bound_leaves_nothing_reserved() -> None:
    limits = Limits(transaction_operations_max=4)
    queue = QueueConfig(name="work", messages_max=5, when_full="refuse")
    rig, node, client, controller = started(queue, limits=limits)
    node.checks = False  # else the invariants end it before the bound is passed
    fill(rig, client, 3)
    client.receiver("work")
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "x") == Accepted()
    assert controller.send(mine, link, "y") == Accepted()
    first, last = client.deliveries[0], client.deliveries[2]
    state = TransactionalState(mine, Accepted())  # one disposition, of which the third is one too many
    first.link.settle(first.delivery_id, last.delivery_id, state)
    rig.settle()
    controller.abort(mine)
    for number in range(10):
        client.send(link, str(number))
    rig.settle()
    assert node.queue("work").messages == 5, "messages_max is passed by what counts as reserved, below nothing"
    assert quiet(node)


def test_a_take_in_a_transaction_that_has_failed_leaves_nothing_of_its_queue() -> None:
    other = QueueConfig(name="full", messages_max=1, when_full="refuse")
    rig, node, client, controller = started(QueueConfig(name="work"), other)
    fill(rig, client, 1)
    fill(rig, client, 1, "full")
    client.receiver("work")
    link = client.sender("full")
    rig.settle()
    mine = controller.begin()
    assert isinstance(controller.send(mine, link, "x"), Rejected)
    controller.take(mine)
    assert node.core is not None
    node.core.validate()
    controller.abort(mine)
    assert node.bodies("work") == ["1"] and quiet(node)


def test_a_producer_at_a_full_queue_has_credit_once_its_connection_declares() -> None:
    """What it sends may take the place of what the transaction takes: it must not wait for that."""
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=1))
    fill(rig, client, 1)
    link = client.sender("work")
    rig.settle()
    assert link.credit == 0
    mine = controller.begin()
    assert link.credit > 0
    other = rig.client(node).sender("work")
    rig.settle()
    assert other.credit == 0, "of another connection"
    client.receiver("work", credit=1)
    rig.settle()
    controller.take(mine)
    assert controller.send(mine, link, "2") == Accepted() == controller.commit(mine)
    assert node.bodies("work") == ["2"]
