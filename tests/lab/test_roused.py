"""A node that waits is roused, and does nothing (holdfast_lab/judge/roused.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import Symbol
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.federation.confirming import Answer
from holdfast.peers.link_tables import links_of
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import Violation
from holdfast_lab.judge.roused import check_punctual, check_roused, is_at_rest
from support.one_node import world
from support.rig import Rig
from support.standing import Standing, apart, committing, federating, linking, publishing, selecting, serving, waiting


def roused(core: Any, check: Callable[..., None] = check_roused) -> None:
    check(core, core.clock.now, core.clock.wall_ms, 0)


@pytest.mark.parametrize("make", (apart, federating, linking, publishing, selecting, serving, waiting))
def test_a_node_that_is_at_rest_has_nothing_to_do(make: Callable[[], Standing]) -> None:
    core = make().core
    if is_at_rest(core, core.clock.now):
        first = [queue.offered_first for queue in core.catalog.queues.values()]
        roused(core, check_punctual)
        roused(core)
        assert [queue.offered_first for queue in core.catalog.queues.values()] == first, "its readers stay in turn"


def test_a_consumer_that_nobody_woke_is_found() -> None:
    core = selecting().core
    assert is_at_rest(core, core.clock.now)
    (link,) = (link for peer in core.connections.values() for link in links_of(peer) if isinstance(link, ConsumerLink))
    link.link.credit += 1  # a third message matches its selector
    with pytest.raises(Violation, match="hub was not woken for what it does"):
        roused(core)


def test_what_has_no_time_is_found() -> None:
    core = serving().core
    peer = next(iter(core.connections.values()))
    peer.amqp.close()
    peer.touch()
    with pytest.raises(Violation, match="hub named no time for what it does"):
        roused(core, check_punctual)


def test_a_node_whose_disk_works_is_not_asked() -> None:
    core = committing().core
    assert not is_at_rest(core, core.clock.now)


def test_an_answer_of_federation_goes_out_at_once() -> None:
    core = federating().core
    core.topic_bindings._answered(Answer(99, "prices", (), (), True))
    assert core.next_deadline() == core.clock.now


def test_what_federation_has_to_store_is_stored_at_once() -> None:
    core = federating().core
    federation = core.bindings.federation
    key = next(iter(federation.sets.everything()))
    federation.sets.put(key, federation.sets.current(key))
    assert core.bindings.is_due
    assert core.next_deadline() == core.clock.now


def test_a_node_in_the_middle_of_a_message_is_not_roused() -> None:
    """Its first frame uses credit, which is renewed with the last one."""
    rig, hub, client = world(QueueConfig(name="work", messages_max=1, when_full="block"))
    assert hub.core is not None and client.end is not None
    link = client.sender("work")
    rig.settle()
    (receiver,) = (link.link for links in hub.core.links.producers.values() for link in links)
    link.send(Message(data=[bytes(3 * client.amqp.settings.max_frame_size)]).encode(), context=None)
    data = b"".join(client.amqp.take_output(rig.now))
    client.end.wire.write(client.end, data[: client.amqp.settings.max_frame_size + 100])
    rig.settle()
    assert receiver.partial is not None
    assert receiver.credit == 0
    roused(hub.core)
    receiver.partial = None
    with pytest.raises(Violation, match="was not woken"):
        roused(hub.core)


def test_a_subscription_that_passes_unused_numbers_is_done_with_them_at_once() -> None:
    """The numbers of messages that the disk refused are passed when the queue is offered next; what is finished up to
    there leaves in the turn after that."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    client.receiver("topic/prices", name="d", source={"durable": 2, "expiry_policy": Symbol("never")})
    link = client.sender("topic/prices")
    rig.settle()
    node.refuse = 1
    client.send(link, "x")
    rig.run(5)
    core: Any = node.core
    topic = core.catalog.find("", "topic/prices")
    assert topic.next_sequence == 2 and topic.messages == 0
    assert is_at_rest(core, core.clock.now)
    roused(core)
