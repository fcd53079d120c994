"""Links between queues where a commit is under way or refused, and where they are deleted."""

import pytest

from holdfast.amqp.wire.performatives import Accepted
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill
from support.queue_links import copy, linked, links_of, move, numbers
from support.rig import Client, Node, Rig


def refused_while_moving(rig: Rig, node: Node, client: Client, name: str) -> None:
    """The commit with what the link moves is refused, once."""
    links_of(node).stop(links_of(node).by_name[name], is_stopped=False)
    for _ in range(20):
        node.end_turn()
        if links_of(node).by_name[name].moving is not None:
            break
        if node.pending is not None:
            node.finish_commit()
    assert links_of(node).by_name[name].moving is not None
    node.refuse, node.refuse_all = 1, True
    rig.settle()
    links_of(node)
    node.refuse_all = False
    rig.run(5)
    assert not node.refuse
    links_of(node)


def test_a_target_in_memory_has_the_room_back_of_what_a_refused_commit_had() -> None:
    queues = (QueueConfig(name="work", durable=False), QueueConfig(name="m", durable=False, messages_max=8))
    rig, node, client = linked(move("work", "m"), queues=queues)
    node.unwatched |= {"work", "m"}
    done(client, "STOP", "link", "work-m")
    fill(rig, client, 5)
    refused_while_moving(rig, node, client, "work-m")
    assert node.bodies("m") == numbers(1, 5) and node.queue("m").reserved == node.queue("m").reserved_bytes == 0


def test_what_a_refused_commit_was_to_move_has_failed_with_no_consumer() -> None:
    """`deliveries_max` counts what consumers failed to process."""
    rig, node, client = linked(move("work", "next"), queues=(QueueConfig(name="work", deliveries_max=1),))
    done(client, "STOP", "link", "work-next")
    fill(rig, client, 5)
    refused_while_moving(rig, node, client, "work-next")
    assert node.bodies("next") == numbers(1, 5) and "$dead-letters" not in node.core.catalog.queues


def test_next_is_behind_what_is_on_its_way_to_the_disk() -> None:
    rig, node, client = linked()
    sender = client.sender("work")
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    node.hold_commits = True
    for body in numbers(1, 5):
        client.send(sender, body)
    rig.settle()
    links = links_of(node)
    links.create(copy("work", "next", "l", start="next"))
    node.hold_commits = False
    rig.settle()
    fill(rig, client, 2, first=6)
    rig.run(1)
    assert node.bodies("next") == numbers(6, 7)
    links_of(node)


def test_one_that_waits_for_room_and_is_deleted_waits_no_more() -> None:
    rig, node, client = linked(queues=(QueueConfig(name="next", messages_max=1),))
    done(client, "CREATE", "link", "l", **{"from": "work", "to": "next"})
    fill(rig, client, 3)
    assert node.bodies("next") == ["1"]
    done(client, "DELETE", "link", "l")
    links_of(node)
    taker = client.receiver("next", credit=1)
    rig.settle()
    taker.settle(client.deliveries[0].delivery_id, client.deliveries[0].delivery_id, Accepted())
    client.flush()
    rig.run(1)
    links_of(node)
    assert node.bodies("next") == [] and node.bodies("work") == numbers(2, 3)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stop_is_stored(stopped: bool) -> None:
    rig, node, client = linked(copy("work", "next"))
    done(client, "STOP", "link", "work-next")
    if not stopped:
        done(client, "START", "link", "work-next")
    node.crash()
    node.start()
    client = rig.client(node)
    fill(rig, client, 2)
    assert node.bodies("next") == ([] if stopped else numbers(1, 2))
    links_of(node)
