"""Queues of a configuration that is taken up while the node runs (core/reloading.py, docs/operations.md)."""

from dataclasses import replace

from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import QueueConfig
from support.reloads import lines, read
from support.rig import Rig


def test_queues_are_created_and_bounded_and_one_that_is_not_named_any_more_stays() -> None:
    node = Rig().node("hub", create_queues=False, queues=(QueueConfig(name="work"), QueueConfig(name="old")))
    client = node.rig.client(node)
    link = client.sender("work")
    node.rig.settle()
    for number in range(3):
        client.send(link, str(number))
    node.rig.settle()
    wanted = (QueueConfig(name="work", messages_max=3, when_full="refuse"), QueueConfig(name="new"))
    assert read(node, queues=wanted).accepted
    client.send(link, "3")
    node.rig.settle()
    assert type(client.outcomes[-1][1]).__name__ == "Rejected" and node.bodies("work") == ["0", "1", "2"]
    assert {"work", "old", "new"} <= set(node.core.catalog.queues)
    stays = "entry of queue 'old' removed, the queue stays (holdfast queue delete old)"
    assert lines(node)[0].endswith(f"{stays}; queue 'work' changed: messages_max 3, when_full refuse")
    node.crash()
    node.config = replace(node.config, queues=wanted)
    node.start()
    node.rig.settle()
    assert node.queue("work").config.messages_max == 3 and {"old", "new"} <= set(node.core.catalog.queues)


def test_what_a_reload_says_of_queues_is_what_becomes_of_them() -> None:
    """Some were deleted by hand, and some were created by hand before the file had them."""
    node = Rig().node("hub", queues=(QueueConfig(name="topic/news"), QueueConfig(name="gone")))
    client = node.rig.client(node)
    for name in ("topic/news", "gone"):
        assert client.manage("DELETE", "queue", name)[0] == 200
    assert client.manage("CREATE", "queue", "made")[0] == 201
    assert read(node, queues=(QueueConfig(name="topic/news"), QueueConfig(name="made"))).accepted
    told = "queue 'topic/news' added; entry of queue 'made' added; entry of queue 'gone' removed"
    assert lines(node)[-1] == told and "gone" not in node.core.catalog.queues
    assert read(node, queues=(QueueConfig(name="topic/news"), QueueConfig(name="made"))).accepted
    assert lines(node)[-1] == "nothing has changed"


def test_the_command_for_a_queue_that_stays_names_its_virtual_host() -> None:
    old = QueueConfig(name="old", vhost="acme")
    node = Rig().node("hub", vhosts=(VhostConfig(name="acme"),), queues=(old,))
    assert read(node, queues=()).accepted
    assert lines(node)[-1].endswith("removed, the queue stays (holdfast queue delete old --vhost acme)")


def test_a_bound_that_is_lifted_gives_waiting_producers_their_credit() -> None:
    node = Rig().node("hub", queues=(QueueConfig(name="work", messages_max=1),))
    client = node.rig.client(node)
    link = client.sender("work")
    node.rig.settle()
    client.send(link, "0")
    node.rig.settle()
    assert not link.sendable
    assert read(node, queues=(QueueConfig(name="work"),)).accepted
    assert link.sendable


def test_what_a_queue_cannot_change_waits_for_the_next_start_and_is_told_each_time() -> None:
    node = Rig().node("hub", queues=(QueueConfig(name="work"),))
    wanted = (QueueConfig(name="work", messages_max=5, order="strict", priorities=True),)
    for _ in range(2):
        decided = read(node, queues=wanted)
        assert decided.config.queues == (QueueConfig(name="work", messages_max=5),)
    assert node.queue("work").config.messages_max == 5 and node.queue("work").config.order == "bounded"
    assert lines(node).count("from the next start on: queue 'work' order; queue 'work' priorities") == 2
    node.crash()
    node.config = replace(node.config, queues=wanted)
    node.start()
    assert node.queue("work").config.order == "strict" and node.queue("work").config.priorities


def test_what_somebody_changed_by_hand_stays_until_the_file_says_something_else() -> None:
    node = Rig().node("hub", queues=(QueueConfig(name="work", messages_max=5),))
    client = node.rig.client(node)
    assert client.manage("UPDATE", "queue", "work", messages_max=7)[0] == 200
    assert read(node).accepted and node.queue("work").config.messages_max == 7
    assert read(node, queues=(QueueConfig(name="work", messages_max=6),)).accepted
    assert node.queue("work").config.messages_max == 6


def test_a_turn_that_is_undone_keeps_what_was_taken_up() -> None:
    node = Rig().node("hub", create_queues=False, queues=(QueueConfig(name="work"),))
    node.refuse, node.refuse_all = 1, True
    wanted = (QueueConfig(name="work", messages_max=3), QueueConfig(name="new"))
    assert read(node, queues=wanted).accepted
    node.rig.run(2)
    assert node.tries > 1 and not node.refuse
    node.crash()
    node.config = replace(node.config, queues=())
    node.start()
    assert node.queue("work").config.messages_max == 3 and "new" in node.core.catalog.queues
