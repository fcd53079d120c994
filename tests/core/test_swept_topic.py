"""What all subscriptions of a topic have finished leaves it, though the last of them ends before that is done."""

import pytest

from holdfast.amqp.wire.performatives import Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker import queue as queues
from holdfast.broker.queue import RECLAIM_COUNT
from holdfast.core import turn_end
from holdfast.engine.port import Batch
from support.one_node import fill
from support.rig import Rig


def test_what_is_being_swept_goes_on_leaving_when_the_last_subscription_ends() -> None:
    """Of 4,000 messages one turn takes 2,000 off the disk; the end of the last subscription forgets the rest."""
    rig = Rig()
    hub = rig.node("hub")
    client, other = rig.client(hub), rig.client(hub)
    source = {"durable": 2, "expiry_policy": Symbol("never")}
    done, slow = (client.receiver("topic/t", name=name, credit=5_000, source=source) for name in ("done", "slow"))
    rig.settle()
    slow.detach(closed=False)
    for _ in range(2 * RECLAIM_COUNT // 500):
        fill(rig, other, 500, "topic/t")
    topic = hub.queue("topic/t")
    client.accept(link=done)
    done.detach(closed=False)
    rig.run(2)
    assert topic.messages == 2 * RECLAIM_COUNT, "the slow subscription has them all to come"
    ending = {name: other.session.attach_receiver(name, None, Target("here")) for name in ("done", "slow")}
    rig.settle()
    ending["slow"].detach(closed=True)  # unsubscribes
    while not topic.sweeping:
        assert rig.move()
    assert topic.messages == RECLAIM_COUNT and list(topic.named) == ["done"]
    ending["done"].detach(closed=True)
    for _ in range(10):
        rig.run(1)
    assert not topic.named and topic.messages == 0 and not hub.bodies("topic/t")


def test_what_leaves_a_topic_deletes_no_row_of_a_reader_that_it_never_had(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    source = {"durable": 2, "expiry_policy": Symbol("never")}
    client.receiver("topic/t", name="s", credit=10, source=source)
    rig.settle()
    stored: list[Batch] = []
    monkeypatch.setattr(hub, "remember", stored.append)
    fill(rig, client, 3, "topic/t")
    client.accept(count=1)
    rig.run(3)
    assert hub.queue("topic/t").messages == 2
    assert stored and not [batch.deletes for batch in stored if batch.deletes]


def test_what_is_finished_while_earlier_messages_are_swept_leaves_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node looks for it once it has swept those, though nothing comes any more."""
    monkeypatch.setattr(queues, "RECLAIM_COUNT", 2)
    monkeypatch.setattr(turn_end, "RETIRE_COUNT", 1)  # each turn that sweeps has its commit, as with thousands
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    client.receiver("topic/t", name="s", credit=50, source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    fill(rig, client, 20, "topic/t")
    topic = hub.queue("topic/t")
    client.accept(count=10)
    while not topic.sweeping:
        assert rig.move()
    client.accept(count=5)
    rig.run(5)
    assert not topic.sweeping and topic.messages == 5
