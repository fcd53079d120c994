"""What one connection brings in one read is taken over several turns, where it costs much: all of it, in order."""

from typing import Any

import pytest

from holdfast.amqp.effort import ADDRESSED, HEAD_BYTES_FREE, LOOKED_UP, MADE, MESSAGE, OUTCOME, OUTCOME_ALIKE, TAKEN
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Modified, Properties, Rejected, Released, Source, Target
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.rig import Client, Node, Rig

CUT_SHORT = b"\x00\x53\x75\xb0\x00\x00\x10\x00xx"
"""A data section that is longer by its own word than what comes."""

OVER = 32
"""What is understood before it counts."""


def alone(**fields: Any) -> tuple[Rig, Node, Client]:
    rig = Rig()
    hub = rig.node("hub", **fields)
    client = rig.client(hub)
    rig.settle()
    return rig, hub, client


def read(client: Client, node: Node) -> None:
    """All that the client has to say comes to the node in one read."""
    assert client.end is not None
    number = client.end.wire.other(client.end).number
    data = b"".join(client.amqp.take_output(client.rig.now))
    node.handle(events.BytesReceived(connection=number, data=data))


def producer(client: Client, target: Target | None) -> Any:
    link = client.session.attach_sender("producer", Source(), target)
    client.rig.settle()
    return link


@pytest.mark.parametrize("settled", [True, False])
def test_one_read_makes_a_few_queues_in_a_turn_and_all_in_the_end(settled: bool) -> None:
    """Those that the link ended behind, too."""
    rig, hub, client = alone(create_queues=True, limits=Limits(attaches_burst=1_000_000))
    assert hub.core is not None
    link = producer(client, None)
    names = [f"q{number}" for number in range(1_000)]
    for name in names:
        payload = Message(properties=Properties(to=name), data=[name.encode()]).encode()
        link.send(payload, context=name, settled=settled)
    if settled:
        link.detach()
    read(client, hub)
    made = [len(hub.core.catalog.queues)]
    assert 0 < made[0] <= TAKEN // (MESSAGE + ADDRESSED + LOOKED_UP + MADE) + OVER
    hub.end_turn()
    assert len(hub.core.catalog.queues) == made[0], "the turn's share is used up for its end, too"
    assert hub.not_read, "nothing more is read meanwhile"
    rig.settle()
    assert not hub.not_read and [hub.bodies(name) for name in names] == [[name] for name in names]
    assert settled or [context for context, _ in client.outcomes] == names


def test_who_comes_meanwhile_is_served() -> None:
    rig, hub, client = alone(create_queues=True, limits=Limits(attaches_burst=1_000_000))
    link = producer(client, None)
    other = rig.client(hub)
    theirs = producer(other, Target(address="work"))
    for number in range(1_000):
        link.send(Message(properties=Properties(to=f"q{number}"), data=[b"x"]).encode(), context=number)
    read(client, hub)
    other.send(theirs, "quick")
    read(other, hub)
    hub.end_turn()
    assert hub.core is not None and len(hub.core.catalog.queues) < 1_000
    hub.finish_commit()
    assert hub.bodies("work") == ["quick"]
    rig.settle()


def test_a_known_address_costs_less_than_a_queue() -> None:
    rig, hub, client = alone(queues=(QueueConfig(name="work"),))
    link = producer(client, None)
    for number in range(1_000):
        link.send(Message(properties=Properties(to="work"), data=[b"%d" % number]).encode(), context=number)
    read(client, hub)
    hub.end_turn()
    taken = hub.queue("work").next_sequence - 1
    assert TAKEN // (MESSAGE + ADDRESSED) - OVER <= taken <= TAKEN // (MESSAGE + ADDRESSED) + OVER
    rig.settle()
    assert hub.bodies("work") == [str(number) for number in range(1_000)]


@pytest.mark.parametrize("which", ["delivery_annotations", "message_annotations"])
def test_annotations_count_by_their_bytes(which: str) -> None:
    rig, hub, client = alone(queues=(QueueConfig(name="work"),))
    link = producer(client, Target(address="work"))
    notes: dict[str, Any] = {which: {f"k{number}": number for number in range(200)}}
    parts = [Message(**notes, data=[b"%d" % number]).encode() for number in range(40)]
    for number, payload in enumerate(parts):
        link.send(payload, context=number)
    read(client, hub)
    hub.end_turn()
    assert len(parts[0]) > HEAD_BYTES_FREE
    assert 0 < hub.queue("work").next_sequence - 1 <= TAKEN // (len(parts[0]) - 16) + 1
    rig.settle()
    assert hub.bodies("work") == [str(number) for number in range(40)]


def test_what_is_put_off_is_looked_at_later() -> None:
    """Something that is no message among the rest of a run is refused, and what comes behind it is taken."""
    rig, hub, client = alone(queues=(QueueConfig(name="work"),))
    link = producer(client, Target(address="work"))
    notes = {f"k{number}": number for number in range(100)}
    good = Message(message_annotations=notes, data=[b"x"]).encode()
    for number in range(60):
        payload = bytes(len(good)) if number % 7 == 6 else good
        link.send(payload, context=number)
    read(client, hub)
    rig.settle()
    refused = [context for context, state in client.outcomes if isinstance(state, Rejected)]
    assert refused == [number for number in range(60) if number % 7 == 6]
    assert len(hub.bodies("work")) == 60 - len(refused) and link.attached


def test_a_large_one_behind_what_is_put_off_lets_nothing_through_unseen() -> None:
    """It waits in the same place, and is one of those that nobody has looked at."""
    full = QueueConfig(name="work", messages_max=1_500, when_full="block")
    rig, hub, client = alone(limits=Limits(stream_bytes=16 * KIB), queues=(full,))
    link = producer(client, Target(address="work"))
    other = rig.client(hub)
    theirs = producer(other, Target(address="work"))
    while hub.queue("work").messages < 1_500:
        for _ in range(min(theirs.credit, 1_500 - hub.queue("work").messages)):
            other.send(theirs, "first")
        rig.settle()
    count = link.credit - 2
    assert count > 600
    for number in range(count):
        link.send(Message(data=[b"good"]).encode() if number < 500 else CUT_SHORT, context=number)
    read(client, hub)
    rig.settle()
    link.send(Message(data=[b"L" * 64 * KIB]).encode(), context="large")
    consumer = rig.client(hub)
    consumer.receiver("work", credit=10_000)
    taken = []
    while rig.settle() or consumer.deliveries:
        taken += [item.payload for item in consumer.deliveries]
        for item in consumer.deliveries:
            item.link.settle(item.delivery_id, item.delivery_id, Accepted())
        consumer.deliveries.clear()
    assert len(taken) == 1_500 + 500 + 1 and not [payload for payload in taken if payload.endswith(CUT_SHORT)]
    rejected = [context for context, state in client.outcomes if isinstance(state, Rejected)]
    assert rejected == list(range(500, count))


def test_a_plain_run_is_taken_at_once() -> None:
    _, hub, client = alone(queues=(QueueConfig(name="work"),))
    link = producer(client, Target(address="work"))
    for number in range(2_000):
        link.send(Message(data=[b"x"]).encode(), context=number)
    read(client, hub)
    assert hub.queue("work").next_sequence == 2_001 and not hub.not_read


@pytest.mark.parametrize(
    ("outcome", "units"),
    [(Accepted(), OUTCOME_ALIKE), (Released(), OUTCOME_ALIKE), (Rejected(), OUTCOME), (Modified(True), OUTCOME)],
)
def test_many_small_dispositions_in_one_read(outcome: Any, units: int) -> None:
    rig, hub, client = alone(queues=(QueueConfig(name="work"),))
    link = producer(client, Target(address="work"))
    for number in range(1_000):
        client.send(link, str(number))
    rig.settle()
    receiver = client.receiver("work")
    rig.settle()
    held = hub.queue("work").shared.acquired
    assert len(held) == 1_000
    client.amqp.take_output(rig.now)
    receiver.grant(0)
    consumer = next(iter(hub.queue("work").shared.consumers))
    for item in client.deliveries:
        receiver.settle(item.delivery_id, item.delivery_id, outcome)
    read(client, hub)
    assert 0 < 1_000 - consumer.held <= TAKEN // (units + 1) + OVER
    rig.settle()
    assert consumer.held == 0
