"""A queue's `bytes_max` holds for what transactions bring, whatever they take back of what they took."""

import pytest

from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected, TransactionalState
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import FULL, condition, quiet, started


def test_a_delivery_that_is_taken_back_gives_no_room_for_good() -> None:
    """What the transaction brought found room in place of what it took. `messages_max` is looked at again, this not."""
    rig, node, client, controller = started(QueueConfig(name="work", bytes_max=20_000))
    link = client.sender("work")
    rig.settle()
    client.send(link, "x" * 15_000)
    client.receiver("work")
    rig.settle()
    for _ in range(5):
        if not client.deliveries:
            break
        item = client.deliveries.pop(0)
        mine = controller.begin()
        controller.say(item, TransactionalState(mine, Accepted()), settled=False)
        rig.settle()
        assert controller.send(mine, link, "y" * 15_000) == Accepted()
        controller.say(item, Modified(undeliverable_here=True), settled=True)  # it is not taken, after all
        rig.settle()
        controller.commit(mine)
    assert node.queue("work").bytes_held <= 20_000 and quiet(node)


def test_an_empty_queue_takes_one_message_of_any_size_and_no_second() -> None:
    """Also where it is empty because the transaction takes all that it has."""
    rig, node, client, controller = started(QueueConfig(name="work", bytes_max=1_000))
    link = client.sender("work")
    rig.settle()
    client.send(link, "x")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine)
    assert controller.send(mine, link, "y" * 2_000) == Accepted()
    assert condition(controller.send(mine, link, "z" * 2_000)) == FULL
    controller.abort(mine)
    assert quiet(node) and node.queue("work").messages == 1


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_link_holds_no_bytes_of_what_a_transaction_took(has_failed: bool) -> None:
    """Nor where the transaction has failed: then it is shown again, and counts once."""
    full = QueueConfig(name="full", messages_max=1, when_full="refuse")
    rig, node, client, controller = started(QueueConfig(name="work"), full)
    fill(rig, client, 1, "full")
    link = client.sender("work")
    rig.settle()
    client.send(link, "x" * 100)
    client.send(link, "y" * 50)
    client.receiver("work")
    to_full = client.sender("full")
    rig.settle()
    (consumer,) = node.queue("work").shared.consumers
    mine = controller.begin()
    if has_failed:
        assert isinstance(controller.send(mine, to_full, "z"), Rejected)
    sizes = {sequence: item.size for sequence, item in node.queue("work").shared.acquired.items()}
    assert consumer.held_bytes == sizes[1] + sizes[2]
    controller.take(mine)
    assert consumer.held_bytes == sizes[2] + (sizes[1] if has_failed else 0)
    controller.abort(mine)
    assert consumer.held_bytes == sizes[1] + sizes[2]
