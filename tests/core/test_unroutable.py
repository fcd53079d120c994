"""Addresses with a host: which mean this node, and what becomes of messages for a node of which nothing is known
(amqp-illustrations, "Global Addressing and Message Relay")."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import ConfigError
from holdfast.settings.limits import Limits
from holdfast.settings.node import NodeConfig
from support.hops import reroute
from support.rig import Client, Node, Rig

REASON = Symbol("x-opt-dead-letter-reason")
FROM = Symbol("x-opt-dead-letter-from")


def put(client: Client, address: str, body: str, *, relay: bool) -> str:
    """Sends to the address, by a link to it or by the anonymous terminus; "" for accepted, else the condition."""
    if not relay:
        link = client.sender(address)
        client.rig.settle()
        if link.refused:
            error = client.detached[-1].error
            assert error is not None
            return str(error.condition)
        client.send(link, body)
    else:
        link = client.session.attach_sender(f"anonymous {body}", Source(), Target())
        client.rig.settle()
        link.send(Message(properties=Properties(to=address), data=[body.encode()]).encode(), context=body)
    client.rig.settle()
    state = client.outcomes[-1][1]
    if isinstance(state, Rejected):
        assert state.error is not None
        return str(state.error.condition)
    assert isinstance(state, Accepted)
    return ""


def status(client: Client) -> dict[str, Any]:
    return client.manage("STATUS", "node")[1]


def reasons(node: Node) -> list[tuple[str, str]]:
    client = node.rig.client(node)
    client.receiver("$dead-letters")
    node.rig.settle()
    notes = [message.message_annotations or {} for message in client.messages()]
    return [(found[REASON], found[FROM]) for found in notes]


@pytest.mark.parametrize("relay", [False, True])
def test_blank_localhost_own_name_and_own_address_are_here(relay: bool) -> None:
    rig = Rig()
    hub = rig.node("hub", own_addresses=("10.0.0.1", "10.0.0.1:5672", "[::1]:5672"))
    client = rig.client(hub)
    hosts = ("", "@", "@localhost", "@hub", "@10.0.0.1", "@10.0.0.1:5672", "@[::1]:5672")
    for number, host in enumerate(hosts):
        assert put(client, f"work{host}", str(number), relay=relay) == ""
    assert hub.bodies("work") == [str(number) for number in range(len(hosts))]
    assert put(client, "work@10.0.0.1:5673", "x", relay=relay) == "amqp:not-found"  # another node of this host


@pytest.mark.parametrize("relay", [False, True])
def test_refused_as_long_as_nothing_says_otherwise(relay: bool) -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    assert put(client, "work@nowhere", "1", relay=relay) == "amqp:not-found"
    assert "@nowhere" not in hub.core.catalog.queues
    told = status(client)
    assert told["unroutable"] == {"refused": 1, "dead_lettered": 0} and told["routes"] == []


@pytest.mark.parametrize("relay", [False, True])
def test_kept_until_a_way_is_known(relay: bool) -> None:
    rig = Rig()
    a, _, c = rig.graph("a-b", "b-c", routes={"b": {"a": "a"}}, a={"unknown_destination": "keep"})
    rig.run(2)
    client = rig.client(a)
    assert put(client, "work@c", "1", relay=relay) == ""
    rig.run(5)
    route = status(client)["routes"][0]
    assert (route["destination"], route["next_hop"], route["waiting"]) == ("c", None, 1)
    a.crash()
    a.start()
    rig.run(2)
    reroute(rig, a, c="b")
    rig.run(2)
    assert c.bodies("work") == ["1"] and a.queue("@c").messages == 0


def test_what_is_kept_makes_no_more_queues_than_there_may_be() -> None:
    rig = Rig()
    hub = rig.node("hub", unknown_destination="keep", limits=Limits(queues_max=2))
    client = rig.client(hub)
    assert [put(client, f"work@n{number}", "1", relay=False) for number in range(3)] == [
        "", "", "amqp:resource-limit-exceeded",
    ]  # fmt: skip


def test_a_neighbour_may_bring_what_is_kept() -> None:
    rig = Rig()
    a, b = rig.graph("a-b", routes={"a": {"nowhere": "b"}}, b={"unknown_destination": "keep"})
    rig.run(2)
    assert put(rig.client(a), "work@nowhere", "1", relay=False) == ""
    rig.run(2)
    assert b.queue("@nowhere").messages == 1 and a.queue("@nowhere").messages == 0


@pytest.mark.parametrize("relay", [False, True])
@pytest.mark.parametrize("known_later", [False, True])
def test_dead_letters_until_the_node_is_known(relay: bool, known_later: bool) -> None:
    rig = Rig()
    a, _, c = rig.graph("a-b", "b-c", routes={"b": {"a": "a"}}, a={"unknown_destination": "dead-letter"})
    rig.run(2)
    client = rig.client(a)
    assert put(client, "work@c", "1", relay=relay) == ""
    link = client.sender("work@c")
    rig.settle()
    client.send(link, "2")
    rig.settle()
    assert "@c" not in a.core.catalog.queues and a.bodies("$dead-letters") == ["1", "2"]
    assert status(client)["unroutable"] == {"refused": 0, "dead_lettered": 2}
    assert reasons(a) == [("'a' has no route to 'c'", "work@c")] * 2
    if known_later:
        reroute(rig, a, c="b")
        client.send(link, "3")  # by the very link that was attached before
        rig.settle()
        assert put(client, "work@c", "4", relay=relay) == ""
        rig.run(2)
        assert c.bodies("work") == ["3", "4"]  # no number was given to what became dead letters: nothing is waited for
    assert len(a.bodies("$dead-letters")) == 2


def test_each_message_of_a_run_is_told_why_it_is_a_dead_letter() -> None:
    rig = Rig()
    a = rig.node("a", unknown_destination="dead-letter")
    client = rig.client(a)
    link = client.sender("work@c")
    rig.settle()
    for number in range(20):
        client.send(link, str(number))
    rig.settle()
    assert reasons(a) == [("'a' has no route to 'c'", "work@c")] * 20
    assert status(client)["unroutable"] == {"refused": 0, "dead_lettered": 20}


def test_a_named_producer_of_dead_letters_is_counted_under_its_address() -> None:
    rig = Rig()
    a = rig.node("a", unknown_destination="dead-letter")
    client = rig.client(a)
    link = client.sender("work@c", properties={Symbol("holdfast:producer"): "p"})
    rig.settle()
    for number in (1, 1, 2):
        client.send(link, str(number), number=number)
    rig.settle()
    assert a.bodies("$dead-letters") == ["1", "2"]
    assert [producer.address for producer in a.core.catalog.producers.values()] == ["work@c"]


def test_a_neighbour_brings_no_dead_letters() -> None:
    rig = Rig()
    a, b = rig.graph("a-b", routes={"a": {"nowhere": "b"}}, b={"unknown_destination": "dead-letter"})
    rig.run(2)
    put(rig.client(a), "work@nowhere", "1", relay=False)
    rig.run(5)
    assert a.queue("@nowhere").messages == 1 and "$dead-letters" not in b.core.catalog.queues


@pytest.mark.parametrize("unknown", ["refuse", "keep", "dead-letter"])
def test_nobody_receives_from_afar(unknown: str) -> None:
    rig = Rig()
    hub = rig.node("hub", unknown_destination=unknown)
    client = rig.client(hub)
    link = client.receiver("work@nowhere")
    rig.settle()
    assert link.refused and not hub.core.catalog.queues


def test_nobody_receives_from_a_transmission_queue() -> None:
    """Whether it is there or not; and who sends names a queue."""
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    client = rig.client(jfk)
    for address in ("@hub", "@nowhere"):
        client.receiver(address)
        rig.settle()
        error = client.detached[-1].error
        assert error is not None and error.condition == "amqp:not-allowed"
        assert f"{address}: clients cannot receive from a transmission queue" in str(error.description)
    client.sender("@hub")
    rig.settle()
    error = client.detached[-1].error
    assert error is not None and "invalid address '@hub'; expected QUEUE@NODE" in str(error.description)


def test_the_choice_is_checked() -> None:
    with pytest.raises(
        ConfigError, match="invalid value 'drop' for node unknown_destination; expected one of refuse, keep"
    ):
        NodeConfig(name="hub", unknown_destination="drop").validate()
