"""What a transaction sends to one other node finds room there as a whole, or not at all."""

from dataclasses import replace

from holdfast.amqp.wire.performatives import Accepted, Header, Rejected
from holdfast.federation.settings import Entry
from support.federated import DURABLE, relay
from support.rig import Rig
from support.routing import network
from support.standing import core_of
from support.transactions import Controller

BOUND = 3


def test_copies_of_all_topics_count_against_one_queue() -> None:
    """Of one topic that node passes messages on, of the other one it does not."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    relay(rig, "a>b")
    core_of(a).bindings.add(Entry("news", "b"))
    core_of(b).bindings.add(Entry("news", "a"))
    rig.client(b).receiver("topic/news", name="e", source=DURABLE)
    rig.run(3)
    b.crash()
    queue = core_of(a).catalog.transmission("b")
    queue.config = replace(queue.config, messages_max=BOUND)
    client = rig.client(a)
    links = [client.sender(f"topic/{name}") for name in ("flights", "news")]
    controller = Controller(client)
    rig.settle()
    for count, outcome, held in ((2, Rejected, 0), (1, Accepted, 2)):
        txn_id = controller.begin()
        for link in links * count:
            controller.send(txn_id, link, "x", header=Header(durable=True))
        assert isinstance(controller.commit(txn_id), outcome)
        assert queue.messages == held
