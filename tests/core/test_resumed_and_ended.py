"""A consumer's link that is resumed and ends in the middle of it: what it held goes to others (core/resumable.py)."""

from typing import Any

import pytest

from holdfast.amqp.performatives import Accepted, Modified, Rejected
from holdfast.core.config import Limits
from support.one_node import fill, world
from support.rig import Client, Node, Rig

NOT_HERE = Modified(undeliverable_here=True)
TIMED = {"timeout": 60}


def suspended(rig: Rig, node: Node, count: int) -> list[bytes]:
    """The tags of what a consumer held whose connection was lost."""
    client = rig.client(node)
    client.receiver("work", name="r", source=TIMED, unsettled={}, credit=count)
    rig.run(1)
    tags = [item.tag for item in client.deliveries]
    assert len(tags) == count and node.core is not None and len(node.core.resume.outgoing) == 1
    client.close_transport()
    rig.settle()
    return tags


def resume(rig: Rig, node: Node, unsettled: dict[bytes, Any], **settings: Any) -> Client:
    client = rig.client(node, **settings)
    client.receiver("work", name="r", source=TIMED, unsettled=unsettled)
    rig.settle()
    return client


@pytest.mark.parametrize("rest", ["kept", "accepted", "rejected", "sent again", "not told of"])
def test_more_that_is_undeliverable_than_may_be_ends_it_and_the_rest_goes_to_others(rest: str) -> None:
    """Whatever its map says of the rest."""
    rig, node, client = world(limits=Limits(excluded_max=2))
    count = 200 if rest == "not told of" else 9
    fill(rig, client, count)
    tags = suspended(rig, node, count)
    state = {"accepted": Accepted(), "rejected": Rejected()}.get(rest)
    told = {} if rest == "sent again" else dict.fromkeys(tags, state)
    settings = {"max_frame_size": 512} if rest == "not told of" else {}  # the map is cut
    ended = resume(rig, node, told | dict.fromkeys(tags[2:5], NOT_HERE), **settings)
    assert [str(event.error.condition) for event in ended.detached if event.error] == ["amqp:resource-limit-exceeded"]
    core, queue = node.core, node.queue("work")
    assert core is not None and not core.resume.outgoing and not queue.shared.shown and not queue.shared.takers
    core.validate()
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    left = range(3, 6) if rest in ("accepted", "rejected") else range(1, count + 1)  # what was settled stays so
    assert other.accept() == [str(number) for number in left]
    rig.run(1)
    assert queue.messages == core.users.anonymous.unsettled_bytes == 0


def test_as_many_as_may_be_leave_it_resumed() -> None:
    rig, node, client = world(limits=Limits(excluded_max=3))
    fill(rig, client, 6)
    tags = suspended(rig, node, 6)
    resumed = resume(rig, node, dict.fromkeys(tags[:3], NOT_HERE) | dict.fromkeys(tags[3:]))
    assert resumed.detached == [] and node.core is not None and len(node.core.resume.outgoing) == 1
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.bodies() == ["1", "2", "3"]
