"""What a transaction had is free for others once it fails or is rolled back, and what it left has failed."""

from holdfast.amqp.wire.extensions import DELIVERY_DELAY, PRODUCER
from holdfast.amqp.wire.performatives import Accepted, TransactionalState
from holdfast.amqp.wire.types import Ulong
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import FULL, condition, quiet, started


def test_one_that_fails_brings_nothing_more() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=2, when_full="refuse"))
    link = client.sender("work", properties={PRODUCER: "plane"})
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1", number=1) == Accepted()
    assert controller.send(mine, link, "2", number=2) == Accepted()
    assert condition(controller.send(mine, link, "3", number=3)) == FULL
    node.core.validate()
    controller.abort(mine)
    assert quiet(node)


def test_a_producer_that_waits_is_given_credit_when_one_is_rolled_back() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=1, when_full="block"))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1") == Accepted()
    other = rig.client(node)
    waits = other.sender("work")
    rig.run(1)
    assert waits.credit == 0
    controller.abort(mine)
    assert waits.credit == 1
    assert quiet(node)


def test_what_a_transaction_left_when_its_link_ended_has_failed() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", deliveries_max=2))
    fill(rig, client, 1)
    held = client.receiver("work", credit=1)
    rig.settle()
    mine = controller.begin()
    (item,) = client.deliveries
    controller.say(item, TransactionalState(mine, Accepted()), settled=False)
    rig.settle()
    held.detach()
    rig.settle()
    controller.abort(mine)
    rig.run(1)
    again = rig.client(node)
    again.receiver("work", credit=1)
    rig.settle()
    (shown,) = again.messages()
    assert shown.header is not None and shown.header.delivery_count == 1
    assert quiet(node)


def test_one_that_delays_messages_has_its_own_room_among_the_delayed() -> None:
    rig, node, client, controller = started(limits=Limits(delayed_max=2))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    later = {DELIVERY_DELAY: Ulong(60_000)}
    for body in ("1", "2"):
        assert controller.send(mine, link, body, message_annotations=dict(later)) == Accepted()
    assert controller.commit(mine) == Accepted()
    assert node.queue("$delayed").messages == 2
    assert quiet(node)
