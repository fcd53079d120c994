"""Messages for brokers that are no nodes (endpoints/remotes/)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries.host_names import hosted
from holdfast.broker.entries.kinds import QueueKind
from holdfast.custody.returns import Returns
from holdfast.endpoints.remotes.kept_link import WAIT_S
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.settings.remotes import ADDRESSES_MAX, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker, rejection
from support.one_node import fill
from support.plain_party import bodies
from support.remotes import only, world


def test_messages_for_an_address_at_a_remote_are_sent_there_in_order() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 50, "flights@mq")
    assert bodies(broker.came["flights"]) == [str(number) for number in range(1, 51)]
    assert client.outcomes == [(str(number), Accepted()) for number in range(1, 51)]
    assert node.queue("flights@mq").messages == 0


def test_nothing_is_lost_while_the_remote_is_away() -> None:
    rig, node, client, broker = world()
    rig.refuse_dials = True
    fill(rig, client, 3, "flights@mq")
    node.crash()
    node.start()
    rig.run(5)
    assert node.bodies("flights@mq") == ["1", "2", "3"] and not broker.came
    rig.refuse_dials = False
    rig.run(6)
    assert bodies(broker.came["flights"]) == ["1", "2", "3"]


def test_a_queue_with_the_name_of_a_remote_stays_a_queue_over_restarts() -> None:
    """Also one of a virtual host: neither is a transmission queue."""
    rig, node, client, _ = world(vhosts=(VhostConfig(name="acme"),))
    guest = rig.client(node, hostname="acme")
    fill(rig, client, 2, "mq")
    fill(rig, guest, 1, "mq", first=5)
    for number in range(3, 5):
        node.crash()
        node.start()
        fill(rig, rig.client(node), 1, "mq", first=number)
    assert node.core is not None
    assert sorted(node.core.catalog.queues) == sorted(["mq", hosted("acme", "mq")])
    assert node.bodies("mq") == ["1", "2", "3", "4"] and node.queue("mq").kind is QueueKind.ORDINARY
    assert node.core.catalog.queues[hosted("acme", "mq")].messages == 1


def test_what_was_not_answered_when_the_connection_ended_is_sent_again() -> None:
    broker = PlainBroker(decide=lambda address, payload: None)
    rig, node, client, _ = world(broker=broker)
    fill(rig, client, 3, "flights@mq")
    assert bodies([bytes(item.payload) for item in rig.plain["mq"].connection.open]) == ["1", "2", "3"]
    broker.decide = lambda address, payload: Accepted()
    rig.plain["mq"].cut()
    rig.run(2)
    assert bodies(broker.came["flights"]) == ["1", "2", "3"]
    first = Message.decode(broker.came["flights"][0]).header
    assert first is not None and first.delivery_count == 1 and not first.first_acquirer
    assert node.queue("flights@mq").messages == 0


def test_nothing_new_is_sent_before_all_that_the_last_link_held_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of links that ended are requeued a share in each turn; later ones would come before them."""
    broker = PlainBroker(decide=lambda address, payload: None)
    rig, _, client, _ = world(broker=broker)
    fill(rig, client, 3, "flights@mq")

    requeue = Returns.requeue

    def later(self: Returns, *given: Any, **options: Any) -> None:
        self._left = 0
        requeue(self, *given, **options)

    with monkeypatch.context() as slow:
        slow.setattr(Returns, "step", lambda self: None)
        slow.setattr(Returns, "pending", False)
        slow.setattr(Returns, "requeue", later)
        rig.plain["mq"].cut()
        broker.decide = lambda address, payload: Accepted()
        fill(rig, client, 2, "flights@mq", first=4)
        rig.run(2)
        assert not broker.came
    rig.run(2)
    assert bodies(broker.came["flights"]) == ["1", "2", "3", "4", "5"]


def test_our_copy_leaves_only_with_the_answer() -> None:
    broker = PlainBroker(decide=lambda address, payload: None)
    rig, node, client, _ = world(broker=broker)
    fill(rig, client, 1, "flights@mq")
    rig.run(1)
    assert node.bodies("flights@mq") == ["1"]
    connection = rig.plain["mq"].connection
    connection.settle(connection.open[0], Accepted())
    rig.run(1)
    assert node.bodies("flights@mq") == []


@pytest.mark.parametrize("outcome", [Released(), Modified(True, False)])
def test_what_the_remote_returns_is_tried_again_later_and_later(outcome: object) -> None:
    broker = PlainBroker(decide=lambda address, payload: outcome)
    rig, node, client, _ = world(broker=broker)
    fill(rig, client, 1, "flights@mq")
    assert len(broker.returned) == 1
    rig.run(WAIT_S[0] - 0.01)
    assert len(broker.returned) == 1, "it waits"
    rig.run(0.02)
    assert len(broker.returned) == 2
    rig.run(2 * WAIT_S[0] - 0.02)
    assert len(broker.returned) == 2, "for longer"
    assert only(node)["waiting"] == ["flights@mq: it returns messages"]
    broker.decide = lambda address, payload: Accepted()
    rig.run(1)
    assert bodies(broker.came["flights"]) == ["1"]
    header = Message.decode(broker.came["flights"][0]).header
    assert header is not None and header.delivery_count == (2 if isinstance(outcome, Modified) else 0)
    assert only(node)["waiting"] == []


def test_the_longest_wait_is_bounded() -> None:
    broker = PlainBroker(decide=lambda address, payload: Released())
    rig, _, client, _ = world(broker=broker)
    fill(rig, client, 1, "flights@mq")
    rig.run(600)
    before = len(broker.returned)
    rig.run(2 * WAIT_S[1])
    assert len(broker.returned) - before == 2


def test_a_wait_at_one_address_delays_no_other() -> None:
    broker = PlainBroker(decide=lambda address, payload: Released() if address == "slow" else Accepted())
    rig, _, client, _ = world(broker=broker)
    fill(rig, client, 2, "slow@mq")
    fill(rig, client, 2, "fast@mq")
    assert bodies(broker.came["fast"]) == ["1", "2"] and "slow" not in broker.came


def test_what_the_remote_rejects_becomes_a_dead_letter_with_its_reason() -> None:
    rig, node, client, _ = world(broker=PlainBroker(decide=lambda address, payload: rejection("no such flight")))
    fill(rig, client, 1, "flights@mq")
    rig.run(1)
    assert node.bodies("$dead-letters") == ["1"] and node.bodies("flights@mq") == []
    dead = client.receiver("$dead-letters")
    rig.settle()
    (message,) = client.messages(dead)
    assert message.message_annotations is not None
    told = {str(key): value for key, value in message.message_annotations.items()}
    assert "amqp:not-allowed no such flight" in str(told)
    assert "flights@mq" in told.values()


def test_what_is_undeliverable_there_becomes_a_dead_letter() -> None:
    rig, node, client, _ = world(broker=PlainBroker(decide=lambda address, payload: Modified(False, True)))
    fill(rig, client, 1, "flights@mq")
    rig.run(1)
    assert node.bodies("$dead-letters") == ["1"] and node.bodies("flights@mq") == []


def test_what_is_too_large_for_the_remote_becomes_a_dead_letter() -> None:
    rig, node, client, broker = world(broker=PlainBroker(message_bytes_max=1_000))
    link = client.sender("flights@mq")
    rig.settle()
    for body in ("1", "x" * 2_000, "3"):
        client.send(link, body)
    rig.settle()
    assert bodies(broker.came["flights"]) == ["1", "3"]
    assert node.bodies("$dead-letters") == ["x" * 2_000]


def test_no_more_is_sent_than_the_remote_has_credit_for() -> None:
    broker = PlainBroker(decide=lambda address, payload: None, credit=5)
    rig, node, client, _ = world(broker=broker)
    fill(rig, client, 30, "flights@mq")
    assert len(rig.plain["mq"].connection.open) == 5
    assert node.queue("flights@mq").messages == 30


def test_a_refused_address_is_tried_again() -> None:
    broker = PlainBroker(refuses={"flights"})
    rig, node, client, _ = world(broker=broker)
    fill(rig, client, 1, "flights@mq")
    assert only(node)["waiting"] == ["flights@mq: amqp:not-found: no address flights"]
    assert any("remote mq: flights@mq: amqp:not-found" in line for line in node.logs)
    broker.refuses.clear()
    rig.run(1.1)
    assert bodies(broker.came["flights"]) == ["1"]


def test_the_remote_gets_no_annotation_of_nodes() -> None:
    out = LinkConfig(name="out", source="out", target="flights@mq")
    rig, _, client, broker = world(links=(out,), queues=(QueueConfig(name="out"),))
    link = client.sender("out")
    rig.settle()
    notes = {Symbol("x-opt-mine"): 7}
    client.send(link, "1", message_annotations=notes, header=Header(durable=True, priority=7))
    client.send(link, "2")
    rig.settle()
    first, second = (Message.decode(payload) for payload in broker.came["flights"])
    assert first.message_annotations == notes and second.message_annotations is None
    assert first.header is not None and first.header.durable and first.header.priority == 7


def test_an_address_may_have_another_name_at_the_remote() -> None:
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", addresses=(("flights", "/queues/flights"),))
    rig, _, client, broker = world(remote)
    fill(rig, client, 1, "flights@mq")
    assert bodies(broker.came["/queues/flights"]) == ["1"]


def test_a_large_message_is_streamed() -> None:
    rig, node, client, broker = world()
    body = "x" * 3_000_000
    link = client.sender("flights@mq")
    rig.settle()
    client.send(link, body)
    rig.settle()
    assert bodies(broker.came["flights"]) == [body] and node.queue("flights@mq").messages == 0


def test_the_number_of_addresses_is_bounded() -> None:
    rig, node, client, _ = world()
    for number in range(ADDRESSES_MAX + 1):
        client.sender(f"a{number}@mq")
    rig.settle()
    (refused,) = client.detached
    assert refused.error is not None and "the most there may be" in str(refused.error.description)
    assert node.core is not None and f"a{ADDRESSES_MAX}@mq" not in node.core.catalog.queues


def test_bounds_are_those_of_the_remote() -> None:
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", messages_max=2, when_full="refuse")
    rig, node, client, _ = world(remote, PlainBroker(decide=lambda address, payload: None))
    fill(rig, client, 3, "flights@mq")
    assert node.bodies("flights@mq") == ["1", "2"]
    assert [type(state).__name__ for _, state in client.outcomes] == ["Rejected", "Accepted", "Accepted"]
