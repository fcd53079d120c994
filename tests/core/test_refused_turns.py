"""Two turns that are refused together, the one under way and the one gathered behind it, never were (core/undo.py):
each is undone once, the later one first, and who waits for either hears of it once."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import LAST_NUMBER, PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.core import undo
from holdfast.endpoints.producer import ProducerLink
from holdfast.management.operations.queues import NOT_SKIPPED
from holdfast.management.requests import ReplyLink
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.hops import STRICT, names, send
from support.one_node import fill, world
from support.rig import Client, Node, Rig

NOTE = Symbol("x-opt-note")


def refuse_both(rig: Rig, node: Node) -> None:
    assert node.core is not None and node.core.turns.in_flight is not None and node.core.turns.gathered
    node.refuse = 1
    node.hold_commits = False
    rig.settle()
    assert not node.refuse
    node.core.validate()


def ask(client: Client, operation: str, name: str) -> None:
    """A request whose answer waits for a commit that does not end."""
    client.request(operation, "queue", name)
    client.rig.settle()
    assert not any(item.link.name == "replies" for item in client.deliveries)


def hear(client: Client) -> list[int]:
    """The codes of the answers that came meanwhile."""
    answers = [Message.decode(item.payload) for item in client.deliveries if item.link.name == "replies"]
    client.deliveries.clear()
    return [int((answer.application_properties or {})["statusCode"]) for answer in answers]


def notes(messages: list[Any]) -> dict[str, object]:
    return {message.body_bytes().decode(): (message.message_annotations or {}).get(NOTE) for message in messages}


def outcome(client: Client, body: str, state: object) -> None:
    """What the client says of the delivery with that body, the last that it had."""
    item = next(
        item for item, told in reversed(list(zip(client.deliveries, client.messages(), strict=True)))
        if told.body_bytes().decode() == body
    )  # fmt: skip
    item.link.settle(item.delivery_id, item.delivery_id, state)
    client.deliveries.remove(item)


def test_entries_numbers_and_annotations_are_as_they_were() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client, consumer = rig.client(hub), rig.client(hub)
    link = client.sender("work", properties={PRODUCER: "p"})
    rig.settle()
    for number, body in enumerate(names(1, 3), 1):
        client.send(link, body, number=number, context=number)
    consumer.receiver("work", credit=20)
    rig.run(1)
    client.outcomes.clear()
    queue = hub.queue("work")
    assert hub.core is not None
    before = (queue.messages, queue.bytes_held, hub.bodies("work"))
    numbers = list(next(iter(hub.core.catalog.producers.values())).stored)
    hub.hold_commits = True
    for number, note in ((4, "under way"), (5, "gathered")):
        client.send(link, str(number), number=number, context=number)
        rig.settle()
        outcome(consumer, "1", Modified(message_annotations={NOTE: note}))
        outcome(consumer, str(number - 2), Rejected())
        rig.settle()
        assert notes(consumer.messages())["1"] == note
    refuse_both(rig, hub)
    assert not any(isinstance(state, Accepted) for _, state in client.outcomes) and len(client.outcomes) == 2
    assert list(next(iter(hub.core.catalog.producers.values())).stored) == numbers
    assert (queue.messages, queue.bytes_held, hub.bodies("work")) == before
    assert not hub.core.work.rewritten
    rig.run(1)
    assert not hub.bodies("$dead-letters")
    for number in (4, 5):
        client.send(link, str(number), number=number, context=number)
        rig.run(1)
    assert hub.bodies("work") == names(1, 5)
    consumer.close_transport()
    another = rig.client(hub)
    another.receiver("work", credit=20)
    rig.run(1)
    assert notes(another.messages()) == dict.fromkeys(names(1, 5))
    another.accept()
    rig.run(1)
    assert (queue.messages, queue.bytes_held) == (0, 0)


def test_both_that_gave_up_what_is_missing_hear_that_nothing_was_given_up() -> None:
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(1)
    assert jfk.core is not None and hub.core is not None
    asking, other = rig.client(hub), rig.client(hub)
    for client in (asking, other):  # the reply links are there
        client.manage("STATUS", "node")
    rig.run(1)
    jfk.core.catalog.ledger.identities["hub"] = 3
    send(rig, jfk, "3", to="hub")
    hub.hold_commits = True
    ask(asking, "SKIP", "work")
    rig.settle()
    assert hub.core.turns.in_flight is not None and len(hub.core.turns.in_flight.decided) == 1
    jfk.core.catalog.ledger.identities["hub"] = 6
    send(rig, jfk, "6", to="hub")
    rig.settle()
    ask(other, "SKIP", "work")
    rig.settle()
    assert len(hub.core.turns.gathered.decided) == 1 and not hear(asking) and not hear(other)
    refuse_both(rig, hub)
    rig.run(1)
    assert hear(asking) == hear(other) == [NOT_SKIPPED.status]
    assert not hub.core.losses and not hub.core.losses.totals.numbers
    assert not any(kind == "loss" for kind, _ in hub.records)
    code, body, _ = rig.client(hub).manage("SKIP", "queue", "work")
    assert code == 200 and [(gap["first"], gap["last"]) for gap in body["lost"]] == [(1, 2), (4, 5)]
    rig.run(1)
    assert hub.bodies("work") == ["3", "6"]


def test_queues_made_and_deleted_in_turn_stay_as_the_later_one_left_them() -> None:
    """What an operator did needs no room, and is stored with the next batch."""
    rig = Rig()
    hub = rig.node("hub")
    first, second, sender = rig.client(hub), rig.client(hub), rig.client(hub)
    first.manage("CREATE", "queue", "old")
    second.manage("STATUS", "node")
    link = sender.sender("work")
    rig.run(1)
    hub.hold_commits = True
    sender.send(link, "1")
    ask(first, "DELETE", "old")
    ask(first, "CREATE", "new")
    sender.send(link, "2")
    ask(second, "CREATE", "old")
    ask(second, "DELETE", "new")
    refuse_both(rig, hub)
    rig.run(1)
    assert hear(first) == [200, 201] and hear(second) == [201, 200]
    for _ in range(2):
        assert hub.core is not None
        assert "old" in hub.core.catalog.queues and "new" not in hub.core.catalog.queues and not hub.bodies("work")
        hub.crash()
        hub.start()


def test_a_producer_that_attached_meanwhile_hears_of_the_numbers_that_are_stored() -> None:
    """Both attaches wait for what was brought before them, and are answered once, after the undo."""
    rig = Rig()
    hub = rig.node("hub")
    one, two, three = (rig.client(hub) for _ in range(3))
    link = one.sender("work", properties={PRODUCER: "p"})
    other = three.sender("other")
    rig.settle()
    one.send(link, "1", number=1)
    rig.run(1)
    hub.hold_commits = True
    one.send(link, "2", number=2)
    rig.settle()
    three.send(other, "x")
    rig.settle()
    newer = two.sender("work", properties={PRODUCER: "p"})
    another = three.sender("work", properties={PRODUCER: "q"})
    rig.settle()
    assert not newer.attached and not another.attached
    refuse_both(rig, hub)
    rig.run(1)
    assert newer.remote_attach.properties[LAST_NUMBER] == 1 and another.remote_attach.properties[LAST_NUMBER] == 0
    two.send(newer, "2", number=2)
    rig.run(1)
    assert hub.bodies("work") == ["1", "2"]


def test_an_answer_that_cannot_be_given_costs_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's, and the undo, go on."""
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(1)
    assert jfk.core is not None and hub.core is not None
    bad, good = rig.client(hub), rig.client(hub)
    for client in (bad, good):
        client.manage("STATUS", "node")
    rig.run(1)
    for number, client in ((3, bad), (6, good)):
        jfk.core.catalog.ledger.identities["hub"] = number
        send(rig, jfk, str(number), to="hub")
        hub.hold_commits = True
        ask(client, "SKIP", "work")
    victim = next(iter(hub.core.links.reply_links.values())).peer
    reply = ReplyLink.reply

    def fail(self: ReplyLink, payload: bytes) -> None:
        if self.peer is victim:
            raise RuntimeError("for once")
        reply(self, payload)

    with monkeypatch.context() as patch:
        patch.setattr(ReplyLink, "reply", fail)
        refuse_both(rig, hub)
        rig.run(1)
    assert bad.over and not good.over and hear(good) == [NOT_SKIPPED.status]
    assert hub.core.containment.peers_ended == 1 and not hub.core.losses


@pytest.mark.parametrize("why", ["full", "failure"])
def test_a_large_message_in_memory_that_is_not_on_disk_is_not_accepted(why: str) -> None:
    """The entry of a queue in memory would stay, and nobody could be sent what it refers to."""
    rig = Rig()
    limits = Limits(stream_bytes=100 * KIB)
    hub = rig.node("hub", limits=limits, queues=(QueueConfig(name="memory", durable=False),))
    hub.unwatched.add("memory")
    client, reader = rig.client(hub), rig.client(hub)
    other, link = client.sender("other"), client.sender("memory")
    rig.run(1)
    hub.hold_commits = True
    client.send(other, "1")
    rig.settle()
    client.send(link, "a" * 300 * KIB, context="large")
    rig.settle()
    assert hub.core is not None and hub.core.work.referred
    if why == "full":
        refuse_both(rig, hub)
    else:
        undo.take_back_gathered(hub.core, ())
        hub.hold_commits = False
    rig.run(1)
    assert not isinstance(dict(client.outcomes)["large"], Accepted)
    queue = hub.queue("memory")
    assert (queue.messages, queue.bytes_held, hub.core.memory.queues.held) == (0, 0, 0)
    client.send(link, "b" * 300 * KIB)
    reader.receiver("memory")
    rig.run(1)
    assert [body[0] for body in reader.bodies()] == ["b"] and not reader.over


@pytest.mark.parametrize("refusals", [1, 2, 3])
def test_a_failure_after_an_append_was_refused_again_and_again_costs_its_own_connection(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry, which appends nothing, still shows what was numbered, or the check after a failure ends the node."""
    rig = Rig()
    hub = rig.node("hub")
    client, bad = rig.client(hub), rig.client(hub)
    link, other = client.sender("work"), bad.sender("other")
    rig.settle()
    hub.refuse, hub.refuse_all = refusals, True
    client.send(link, "1")
    rig.run(refusals + 1)
    queue = hub.queue("work")
    assert not hub.refuse and queue.visible == queue.next_sequence == 2

    def fail(self: ProducerLink, delivery: object) -> None:
        raise RuntimeError("for once")

    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", fail)
        bad.send(other, "x")
        rig.settle()
    assert bad.over and not client.over
    client.send(link, "2")
    rig.run(1)
    for _ in range(2):
        assert hub.bodies("work") == ["2"]
        hub.crash()
        hub.start()


def test_what_the_last_life_showed_is_offered_though_its_mark_was_refused_at_first() -> None:
    rig, hub, client = world()
    fill(rig, client, 5)
    hub.crash()
    hub.start()
    client = rig.client(hub)
    hub.refuse, hub.refuse_all = 1, True
    client.receiver("work", credit=10)
    rig.run(3)
    assert not hub.refuse and client.bodies() == names(1, 5)
