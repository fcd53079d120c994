"""A federated topic on joined nodes: entries, publishers, subscriptions, and what one node has sent to another.

Rules of this file: no assertions about behaviour.
"""

from typing import Any, Final

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.federation.settings import Entry
from support.rig import Client, Node, Rig

DURABLE: Final = {"durable": 2, "expiry_policy": Symbol("never")}
SELECTOR: Final = Symbol("apache.org:selector-filter:string")


def federate(rig: Rig, *pairs: str) -> None:
    """`a-b`: a forwards the topic to b, and b to a."""
    for pair in pairs:
        one, other = pair.split("-")
        for here, there in ((one, other), (other, one)):
            core = rig.nodes[here].core
            assert core is not None
            core.bindings.add(Entry("flights", there))
    rig.settle()


def publish(rig: Rig, sender: tuple[Client, Sender], *subjects: str, **header: Any) -> None:
    client, link = sender
    for subject in subjects:
        client.send(
            link, subject, properties=Properties(subject=subject), header=Header(durable=True, **header),
            application_properties={"length": len(subject)},
        )  # fmt: skip
    rig.run(1)


def publisher(rig: Rig, node: Node, address: str = "topic/flights") -> tuple[Client, Sender]:
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    return client, link


def subscribe(
    rig: Rig, node: Node, pattern: str = "", *, selector: str = "", **options: Any
) -> tuple[Client, Receiver]:
    client = rig.client(node)
    source = dict(options.pop("source", {}))
    if selector:
        source["filter"] = {Symbol("s"): Described(SELECTOR, selector)}
    link = client.receiver(f"topic/flights/{pattern}" if pattern else "topic/flights", source=source, **options)
    rig.run(1)
    return client, link


def sent_to(node: Node, destination: str) -> int:
    """How many messages this node has numbered for that one."""
    assert node.core is not None
    return node.core.catalog.ledger.identities.get(destination, 1) - 1


def confirmation(link: Receiver) -> tuple[list[str], list[str]]:
    attach = link.remote_attach
    assert attach is not None and attach.properties is not None
    return attach.properties[Symbol("holdfast:confirmed")], attach.properties[Symbol("holdfast:waiting")]


def relay(rig: Rig, *ways: str, mode: str = "push", patterns: tuple[str, ...] = ()) -> None:
    """`a>b`: a forwards the topic to b by a static entry."""
    for way in ways:
        here, there = way.split(">")
        core = rig.nodes[here].core
        assert core is not None
        core.bindings.add(Entry("flights", there, mode, patterns))
    rig.run(2)
