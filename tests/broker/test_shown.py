"""What a cursor has shown, as far as the disk knows it (broker/cursors/shown.py)."""

from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world


def test_a_mark_that_a_delivery_waits_for_is_not_put_off_until_something_else_is_stored() -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=3))
    fill(rig, client, 5)
    cursor, work = node.queue("work").shared, node.core.work
    assert cursor.is_counted and not work.urgent
    cursor.mark_shown([4])
    assert work.urgent
    work.urgent = False
    cursor.mark_shown([4])
    assert work.urgent, "it is marked already, and its row is still to be written"
    rig.run(1)
    cursor.mark_shown([4])
    assert not work.urgent, "its row is on disk"
