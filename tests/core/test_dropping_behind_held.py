"""`drop-oldest` while consumers hold many of the first messages: it drops what is behind them, and them once they are
given back."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Header, Released
from holdfast.broker import dropping
from holdfast.settings.queues import QueueConfig
from support.federated import DURABLE
from support.rig import Client, Node, Rig


def held(count: int, *, messages_max: int, address: str = "topic/news") -> tuple[Rig, Node, Client, Client, Any]:
    """A queue or topic with a bound, of which a durable subscription holds the first messages; it is full."""
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name=address, messages_max=messages_max, when_full="drop-oldest"),))
    reader = rig.client(node, container_id="reader")
    reader.receiver(address, name="d", source=dict(DURABLE) | {"distribution_mode": "copy"}, credit=count)
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    send(rig, client, link, 0, messages_max)
    assert len(reader.deliveries) == count and node.queue(address).messages == messages_max
    return rig, node, reader, client, link


def send(rig: Rig, client: Client, link: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        client.send(link, str(number), header=Header(durable=True))
    rig.run(3)


def numbers(*ranges: tuple[int, int]) -> list[str]:
    return [str(number) for first, end in ranges for number in range(first, end)]


@pytest.mark.parametrize("address", ["topic/news", "work"])
def test_it_drops_behind_more_messages_than_one_look_reads(address: str) -> None:
    rig, node, _, client, link = held(300, messages_max=600, address=address)
    send(rig, client, link, 600, 100)
    assert len(client.outcomes) == 700 and all(outcome == Accepted() for _, outcome in client.outcomes)
    assert node.bodies(address) == numbers((0, 300), (400, 700))
    assert node.queue(address).dropped_total == 100


@pytest.mark.parametrize("address", ["topic/news", "work"])
def test_what_is_given_back_is_the_oldest_again(address: str) -> None:
    rig, node, reader, client, link = held(20, messages_max=30, address=address)
    send(rig, client, link, 30, 5)
    assert node.bodies(address) == numbers((0, 20), (25, 35))
    reader.deliveries[0].link.grant(0)
    rig.settle()
    reader.accept(Released())
    rig.run(2)
    send(rig, client, link, 35, 5)
    assert node.bodies(address) == numbers((5, 20), (25, 40))


def test_of_a_topic_whose_messages_are_all_held_a_publisher_waits_until_one_is_not() -> None:
    rig, node, reader, client, link = held(10, messages_max=10)
    send(rig, client, link, 10, 3)
    assert len(client.outcomes) == 10 and node.queue("topic/news").dropped_total == 0
    reader.deliveries[0].link.grant(0)
    rig.settle()
    reader.accept(Released(), count=1)
    rig.run(0.1)  # at once
    assert len(client.outcomes) == 13
    assert node.bodies("topic/news") == numbers((1, 10), (12, 13))


def test_a_subscription_that_lags_does_not_stop_it_in_a_queue_that_others_have_read() -> None:
    """What ordinary consumers have finished is the oldest that is left."""
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", messages_max=20, when_full="drop-oldest"),))
    reader, takes, client = rig.client(node, container_id="reader"), rig.client(node), rig.client(node)
    reader.receiver("work", name="d", source=dict(DURABLE) | {"distribution_mode": "copy"}, credit=0)
    takes.receiver("work", credit=1_000)
    link = client.sender("work")
    rig.settle()
    send(rig, client, link, 0, 20)
    takes.accept()
    rig.run(1)
    send(rig, client, link, 20, 5)
    assert len(client.outcomes) == 25 and node.bodies("work") == numbers((5, 25))


def test_a_call_reads_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other message is held: the search goes on where it ended."""
    monkeypatch.setattr(dropping, "DROPS_MAX", 4)
    monkeypatch.setattr(dropping, "HELD_MAX", 8)
    rig, node, _, client, link = held(150, messages_max=200)
    send(rig, client, link, 200, 10)
    assert len(client.outcomes) == 210
    assert node.bodies("topic/news") == numbers((0, 150), (160, 210))
