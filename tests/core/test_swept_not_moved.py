"""What consumers have had cannot be moved by hand, though it is on its way off the disk only (docs/management.md)."""

from support.one_node import done, fill, world


def test_a_message_that_was_accepted_is_not_moved_when_the_last_subscription_has_gone() -> None:
    """The subscription kept it on disk; until the sweep comes to it, it counts as ready, and comes a second time."""
    rig, node, client = world()
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    fill(rig, client, 3)
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.accept() == ["1", "2", "3"]
    rig.run(1)
    uuid = str(node.queue("work").uuid)
    client.request("DELETE", "subscription", "s", queue="work")
    client.request("MOVE", "entry", "work", queue_uuid=uuid, sequence=1, delivery_count=0, to="other")
    rig.run(3)
    assert node.queue("work").messages == 0
    assert "other" not in node.core.catalog.queues or node.bodies("other") == []  # type: ignore[union-attr]
