"""No node relays for who was not named: whatever a user without `relay` says at the first of three nodes, nothing of it
leaves that node; what a named user says arrives under the account of the neighbour that brings it."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from core.test_access import login, no, outcome, refused, rule
from holdfast.access.rules import AccessConfig
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, PRODUCER
from holdfast.amqp.wire.performatives import Coordinator, Declare, Discharge, Properties, Source, TransactionalState
from holdfast.amqp.wire.types import Ulong
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig

ALL_BUT: Final = ("send", "receive", "browse", "create", "delete", "link-from", "link-to")
WAYS: Final = (
    "out@c", "out@b", "/queues/out@c", "amqp://b/out@c", "/queues/out%40c", "topic/news@c", "topic/news/world@c",
    "out@b@c", "out@c@b", "out@c@a", "out@nowhere", "@c", "@b", "$dead-letters@c", "out@ c", "out@C",
)  # fmt: skip
"""Addresses by which a message could get to another node."""


def three(**first: Any) -> tuple[Rig, Node, Node, Node]:
    """a, b and c in a line, each with users and rules. `ann` may do all but relay at a, `bob` relays to two queues."""
    rig = Rig()
    users = {"a": "ann bob root", "b": "at-b", "c": "at-c root"}
    rules = {
        "a": (rule("ann", "*", *ALL_BUT), rule("ann", "*@*", *ALL_BUT), rule("bob", "work@c", "relay"),
              rule("bob", "other@c", "relay"), rule("root", "*", "administer")),
        "b": (rule("at-b", "*", *ALL_BUT),),
        "c": (rule("at-c", "work", "send"), rule("root", "*", "administer")),
    }  # fmt: skip
    neighbours = {
        "a": (NeighbourConfig(name="b", remote="127.0.0.1:1", user="at-b", password="x"),),
        "b": (
            NeighbourConfig(name="a", user="at-b"),
            NeighbourConfig(name="c", remote="127.0.0.1:2", user="at-c", password="x"),
        ),
        "c": (NeighbourConfig(name="b", user="at-c"),),
    }
    routes = {"a": (("c", "b"),), "b": (), "c": (("a", "b"),)}
    queues = tuple(QueueConfig(name=name) for name in ("work", "out", "other", "topic/news"))
    a, b, c = (
        rig.node(
            name, users=tuple(UserConfig(name=user, password="x") for user in users[name].split()),
            access=AccessConfig(rules=rules[name]), neighbours=neighbours[name], queues=queues, create_queues=False,
            forwarding=routes[name], **(first if name == "a" else {}),
        )
        for name in "abc"
    )  # fmt: skip
    rig.run(2)
    assert b.core.neighbours["a"].established and c.core.neighbours["b"].established
    return rig, a, b, c


def by_a_link(client: Client, to: str) -> None:
    link = client.sender(to)
    client.rig.settle()
    if not link.detached and not link.refused:
        client.send(link, "1")


def as_a_named_producer(client: Client, to: str) -> None:
    link = client.sender(to, properties={PRODUCER: "p"})
    client.rig.settle()
    if not link.detached and not link.refused:
        client.send(link, "1", number=1)


def without_an_address(client: Client, to: str) -> None:
    link = client.session.attach_sender("anonymous", Source(), None)
    outcome(client, link, to)


def later(client: Client, to: str) -> None:
    link = client.session.attach_sender("anonymous", Source(), None)
    client.rig.settle()
    told = Message(properties=Properties(to=to), message_annotations={DELIVERY_DELAY: Ulong(10)}, data=[b"1"])
    link.send(told.encode(), context=to)


def in_large_pieces(client: Client, to: str) -> None:
    link = client.session.attach_sender("anonymous", Source(), None)
    client.rig.settle()
    link.send(Message(properties=Properties(to=to), data=[b"1" * 3_000_000]).encode(), context=to)


def in_a_transaction(client: Client, to: str) -> None:
    link = client.session.attach_sender("anonymous", Source(), None)
    coordinator = client.session.attach_sender("coordinator", Source(), Coordinator())
    client.rig.settle()
    coordinator.send(Message(value=Declare()).encode(), context="declare")
    client.rig.settle()
    (declared,) = [state for context, state in client.outcomes if context == "declare"]
    outcome(client, link, to, state=TransactionalState(declared.txn_id))
    coordinator.send(Message(value=Discharge(declared.txn_id, False)).encode(), context="discharge")


def by_a_link_between_queues(client: Client, to: str) -> None:
    by_a_link(client, "out")
    for mode in ("move", "copy"):
        client.manage("CREATE", "link", f"away {mode}", **{"from": "out", "to": to, "mode": mode})


def by_hand(client: Client, to: str) -> None:
    by_a_link(client, "out")
    client.rig.settle()
    _, body, _ = client.manage("QUERY", "entry", "out")
    told = {"queue_uuid": body["queue_uuid"], "sequence": Ulong(1), "delivery_count": Ulong(0), "to": to}
    for operation in ("COPY", "MOVE"):
        client.manage(operation, "entry", "out", **told)


def as_an_answer(client: Client, to: str) -> None:
    """The node's answer to a request, for an address elsewhere."""
    link = client.sender("$management")
    client.rig.settle()
    told = {"operation": "GET-TYPES", "type": "org.amqp.management", "name": "self"}
    request = Message(properties=Properties(message_id="m", reply_to=to), application_properties=told, value={})
    link.send(request.encode(), context="asked")


def in_a_queue_of_that_name(client: Client, to: str) -> None:
    client.manage("CREATE", "queue", to)
    client.manage("OPEN", "subscription", "s", queue=to)
    by_a_link(client, to)


@pytest.mark.parametrize(
    "way",
    [by_a_link, as_a_named_producer, without_an_address, later, in_large_pieces, in_a_transaction,
     by_a_link_between_queues, by_hand, as_an_answer, in_a_queue_of_that_name],
)  # fmt: skip
@pytest.mark.parametrize("unknown", ["refuse", "keep", "dead-letter"])
def test_nothing_leaves_the_first_node_for_who_may_not_relay(way: Callable[[Client, str], None], unknown: str) -> None:
    rig, a, b, c = three(unknown_destination=unknown)
    queues = set(a.core.catalog.queues)
    for to in WAYS:
        client = login(a, "ann")
        try:
            way(client, to)
            rig.settle()
        finally:
            client.close_transport()
            rig.settle()
    rig.run(2)
    for node in (b, c):
        assert sum(queue.messages for queue in node.core.catalog.queues.values()) == 0
    far = [queue for queue in a.core.catalog.queues.values() if queue.name.startswith("@")]
    assert not [queue.name for queue in far if queue.next_sequence > 1], "nothing was ever on its way"
    assert not a.bodies("$dead-letters") if "$dead-letters" in a.core.catalog.queues else True
    assert {name for name in a.core.catalog.queues if "@" in name} <= queues | {"@b", "@c"}
    a.core.validate()


def test_what_a_named_user_relays_over_three_nodes_is_published_under_the_last_neighbours_account() -> None:
    """Whatever the user may do at the last node, or says of himself."""
    rig, a, b, c = three()
    bob = login(a, "bob")
    for to in ("work@c", "other@c"):
        link = bob.sender(to)
        rig.settle()
        bob.send(link, to, properties=Properties(user_id=b"root"))
    rig.run(3)
    assert refused(bob) == []
    assert c.bodies("work") == ["work@c"] and c.bodies("other") == [] and c.bodies("$dead-letters") == ["other@c"]
    _, body, _ = login(c, "root").manage("QUERY", "entry", "$dead-letters")
    (entry,) = body["entries"]
    assert entry["reason"] == "neighbour 'b' has no permission to send to 'other' as user 'at-c'"
    assert sum(queue.messages for queue in b.core.catalog.queues.values()) == 0
    bob.sender("out@c")
    assert refused(bob) == [no("relay")]
