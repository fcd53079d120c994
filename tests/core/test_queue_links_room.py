"""When a link between queues takes entries: while the node goes on, and where the disk has room for the next one."""

import pytest

from holdfast.queue_links.handing import ENTRY_OVERHEAD
from holdfast.settings.queues import QueueConfig
from support.queue_links import linked, links_of, move

SIZE = 1_000


@pytest.mark.parametrize("stops", [False, True])
def test_a_node_that_stops_takes_nothing(stops: bool) -> None:
    _, node, _ = linked(move("work", "next"), queues=(QueueConfig(name="work"), QueueConfig(name="next")))
    links = links_of(node)
    assert node.core is not None
    node.core.stopping = stops
    assert (links.by_name["work-next"].wants() > 0) is not stops


@pytest.mark.parametrize(("room", "takes"), [(SIZE + ENTRY_OVERHEAD - 1, False), (SIZE + ENTRY_OVERHEAD, True)])
def test_it_waits_for_room_for_the_entry_with_all_that_stands_beside_it(room: int, takes: bool) -> None:
    _, node, _ = linked(move("work", "next"), queues=(QueueConfig(name="work"), QueueConfig(name="next")))
    link = links_of(node).by_name["work-next"]
    assert node.core is not None
    node.core.room.bytes, link.disk_needs = room, SIZE
    assert (link.wants() > 0) is takes
    assert (link in node.core.links.waiting_for_space) is not takes
