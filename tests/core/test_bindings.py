"""Federation on joined nodes: who learns what is wanted of a topic, and what is left of it after a crash, a full disk
and a hostile neighbour (docs/adr/0079, docs/adr/0081)."""

from collections.abc import Iterable

from holdfast.federation.sets import Key
from holdfast.federation.settings import Entry
from holdfast.peering.binding_control import BindingControl
from support.rig import Node, Rig
from support.routing import network

TOPIC = "prices"


def control(node: Node) -> BindingControl:
    assert node.core is not None
    return node.core.bindings


def federate(rig: Rig, node: Node, *neighbours: str) -> None:
    for neighbour in neighbours:
        control(node).add(Entry(TOPIC, neighbour))
    rig.settle()


def bind(rig: Rig, node: Node, *patterns: str) -> None:
    """A client subscribes to these patterns, and ends what an earlier one of that node had."""
    whose = f"subscriber of {node.name}"
    formers = [one for one in rig.clients if one.amqp.settings.container_id == whose and not one.over]
    client = rig.client(node, container_id=whose)
    for pattern in patterns:
        client.receiver(f"topic/{TOPIC}/{pattern}")
    rig.settle()
    for former in formers:
        former.close_transport()
    rig.settle()


def known(node: Node, origin: str) -> set[str] | None:
    """What this node has stored of what that one wants; None where it has nothing."""
    federation = control(node).federation
    held = None if federation is None else federation.sets.committed(Key(origin, TOPIC))
    return None if held is None else {row.pattern for row in held.rows}


def wanting(node: Node, subject: str) -> Iterable[str]:
    return control(node).choose(TOPIC, subject).branches


def test_what_is_wanted_at_one_node_is_known_at_the_other() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#", "eu.*")
    assert known(a, "b") == {"us.#", "eu.*"} and known(b, "a") is None
    assert wanting(a, "us.ibm") == ("b",) and wanting(a, "asia.x") == ()
    bind(rig, b, "eu.*")
    assert known(a, "b") == {"eu.*"} and wanting(a, "us.ibm") == ()


def test_a_node_without_federation_holds_nothing() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    assert control(a).federation is None and control(b).federation is None
    bind(rig, b, "us.#")
    federate(rig, a, "b")
    assert control(b).federation is not None


def test_what_is_known_survives_a_crash() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    a.crash()
    a.start()
    assert known(a, "b") == {"us.#"} and wanting(a, "us.ibm") == ("b",)
    b.crash()
    rig.run(3)
    assert known(a, "b") == {"us.#"}
    b.start()
    bind(rig, b, "eu.#")
    rig.run(3)
    assert known(a, "b") == {"eu.#"}
