"""Attaches that wait for a confirmation, and what ends the wait (endpoints/topic_bindings.py)."""

from typing import Any

import pytest

from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.federation.settings import Entry
from holdfast.settings.neighbours import NeighbourConfig
from support.federated import DURABLE, confirmation
from support.rig import Client, Node, Rig

ASKS: Any = {Symbol("holdfast:confirm"): Ulong(600_000)}


def waiting() -> tuple[Rig, Node, Node, Client]:
    """jfk forwards the topic to hub, and stores nothing that hub tells it: confirmations wait."""
    rig = Rig()
    jfk, hub = rig.pair(jfk={"federation": (Entry("flights", "hub"),)})
    rig.run(3)
    client = rig.client(hub)
    client.receiver("topic/flights/first")
    rig.run(3)
    jfk.hold_commits = True
    return rig, jfk, hub, client


def waits(node: Node) -> int:
    assert node.core is not None
    federation = node.core.bindings.federation
    assert federation is not None
    node.core.validate()
    assert len(federation.confirming.binds) == len(node.core.topic_bindings.waiting)
    return len(federation.confirming.binds)


@pytest.mark.parametrize("source", [{}, DURABLE], ids=["in memory", "durable"])
def test_a_receiver_that_detaches_before_it_is_confirmed_is_waited_for_no_longer(source: dict[str, Any]) -> None:
    rig, jfk, hub, client = waiting()
    links = [
        client.receiver(f"topic/flights/a{number}", name=f"n{number}", properties=ASKS, source=source)
        for number in range(20)
    ]
    rig.run(1)
    assert waits(hub) == 20
    for link in links[1:]:
        link.detach(closed=True)
    rig.run(1)
    assert waits(hub) == 1 and all(link.over for link in links[1:]) and not links[0].attached
    jfk.hold_commits = False
    rig.run(3)
    assert confirmation(links[0]) == (["jfk"], []) and waits(hub) == 0


def test_a_receiver_whose_subscription_another_takes_is_waited_for_no_longer() -> None:
    rig, _, hub, client = waiting()
    client.receiver("topic/flights/a", name="mine", properties=ASKS, source=DURABLE)
    rig.run(1)
    other = rig.client(hub)
    other.receiver("topic/flights/a", name="mine", source=DURABLE)
    rig.run(1)
    assert waits(hub) == 0 and len(client.detached) == 1


def test_a_receiver_whose_connection_ends_is_waited_for_no_longer() -> None:
    rig, _, hub, client = waiting()
    client.receiver("topic/flights/a", properties=ASKS)
    rig.run(1)
    client.close_transport()
    rig.run(1)
    assert waits(hub) == 0


def test_one_attach_that_cannot_be_asked_for_keeps_no_other_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    node = rig.node("jfk", neighbours=(NeighbourConfig(name="hub"),), federation=(Entry("flights", "hub"),))
    clients = [rig.client(node) for _ in range(3)]
    rig.settle()
    assert node.core is not None
    confirm, fails = node.core.bindings.confirm, True

    def fails_once(*given: Any) -> int | None:
        nonlocal fails
        if fails:
            fails = False
            raise ValueError("a defect")
        return confirm(*given)

    monkeypatch.setattr(node.core.bindings, "confirm", fails_once)
    links = [client.receiver("topic/flights/a", properties=ASKS) for client in clients]
    rig._let_clients_write()
    for end in node.ends.values():  # in one turn
        rig._deliver(end)
    rig.run(2)
    assert [link.attached for link in links] == [False, True, True]
