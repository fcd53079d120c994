"""What a refused commit leaves in its queue stays there, though others began to read the queue meanwhile."""

import pytest

from holdfast.amqp.wire.performatives import Error, Rejected
from holdfast.amqp.wire.types import Symbol
from support.one_node import done, fill, world


@pytest.mark.parametrize("how", ["rejected", "moved by hand"])
def test_a_subscription_made_while_a_message_moves_does_not_lose_it(how: str) -> None:
    """The commit with the copy is refused. The message is back, but below the floor of what all have finished."""
    rig, node, client = world()
    other = rig.client(node)
    done(other, "QUERY", "subscription", "")
    fill(rig, client, 1)
    uuid = str(node.queue("work").uuid)
    if how == "rejected":
        link = client.receiver("work", credit=1)
        rig.settle()
    node.hold_commits = True
    if how == "rejected":
        client.accept(Rejected(Error(Symbol("a:b"), "why")))
    else:
        other.request("MOVE", "entry", "work", queue_uuid=uuid, sequence=1, delivery_count=0, to="other")
    rig.settle()
    assert node.pending is not None and node.pending.batch.appends, "the copy is on its way"
    other.request("OPEN", "subscription", "s", queue="work", mode="copy", start="next")
    rig.settle()
    if how == "rejected":
        link.detach(closed=True)
    node.refuse = 1
    node.hold_commits = False
    rig.run(3)
    there = "$dead-letters" if how == "rejected" else "other"
    assert node.bodies("work") == ["1"] and (there not in node.core.catalog.queues or not node.bodies(there))  # type: ignore[union-attr]
    fill(rig, client, 1, first=2)
    epoch = node.queue("work").named["s"].lease_epoch
    done(other, "ADVANCE", "subscription", "s", queue="work", queue_uuid=uuid, lease_epoch=epoch, sequence=3)
    rig.run(3)
    assert node.bodies("work") == ["1", "2"], "nobody has had them"
    node.crash()
    node.start()
    rig.run(3)
    assert node.bodies("work") == ["1", "2"], "nobody has had them before the crash, either"
