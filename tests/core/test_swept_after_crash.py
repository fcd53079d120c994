"""What a topic stored for a subscription that is gone leaves over a crash, too."""

from holdfast.amqp.wire.performatives import Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.queue import RECLAIM_COUNT
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.rig import Rig


def test_what_was_stored_for_a_subscription_that_ended_leaves_after_a_crash() -> None:
    rig = Rig()
    hub = rig.node("hub", queues=(QueueConfig(name="topic/t", messages_max=2 * RECLAIM_COUNT + 10),))
    client = rig.client(hub)
    source = {"durable": 2, "expiry_policy": Symbol("never")}
    link = client.receiver("topic/t", name="s", credit=0, source=source)
    rig.settle()
    link.detach(closed=False)
    rig.settle()
    for _ in range(2 * RECLAIM_COUNT // 500):
        fill(rig, client, 500, "topic/t")
    gone = client.session.attach_receiver("s", None, Target("here"))
    rig.settle()
    gone.detach(closed=True)  # unsubscribes
    while hub.queue("topic/t").named or hub.pending is None:
        assert rig.move()
    hub.finish_commit()  # the first turn's share has left; a crash before the rest
    hub.crash()
    hub.start()
    for _ in range(10):
        rig.run(1)
    other = rig.client(hub)
    other.receiver("topic/t", name="t", credit=0, source=source)
    sender = other.sender("topic/t")
    for _ in range(10):
        rig.run(1)
    assert hub.queue("topic/t").messages == 0, "nobody is owed these, and they count towards messages_max for good"
    assert sender.credit >= 1_000
