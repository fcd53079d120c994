"""A node that is drained: new messages are refused or go round it, what it holds is delivered, and it stays so over
restarts (docs/operations.md, "Draining a node"; ADR 0104)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.broker.stored.records import DRAIN
from holdfast.routing.topology import DRAINED_MICRO
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import QueueConfig
from support.hops import apart, is_empty, names, send
from support.resuming import Producer
from support.rig import Client, Node, Rig
from support.routing import agree, core_routes, network, path

RING = ("a-b", "b-c", "c-d", "d-a")


def ask(rig: Rig, node: Node, operation: str, status: int = 200) -> dict[str, Any]:
    code, body, text = rig.client(node).manage(operation, "node")
    assert code == status, text
    return body


def refused(client: Client) -> tuple[str, str]:
    """Of the last link that the node ended."""
    error = client.detached[-1].error
    assert error is not None
    return str(error.condition), str(error.description)


def test_clients_links_end_and_new_ones_are_refused() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link, relay = client.sender("work"), client.session.attach_sender("relay", Source(), Target())
    rig.settle()
    client.send(link, "before")
    rig.settle()
    told = ask(rig, hub, "DRAIN")
    assert told["changed"] and told["drain"]["messages"] == 1 and told["node"] == "hub"
    assert link.detached and refused(client)[0] == conditions.DETACH_FORCED
    assert "'hub' is being drained" in refused(client)[1]
    again = client.sender("other")
    rig.settle()
    assert again.detached and refused(client)[0] == conditions.DETACH_FORCED
    relay.send(Message(properties=Properties(to="work"), data=[b"x"]).encode(), context="x")
    rig.settle()
    outcome = dict(client.outcomes)["x"]
    assert isinstance(outcome, Rejected) and outcome.error is not None and "drained" in str(outcome.error.description)
    assert hub.bodies("work") == ["before"]


@pytest.mark.parametrize("commits_later", [False, True])
def test_what_is_being_stored_is_answered_before_its_link_ends(commits_later: bool) -> None:
    """Else its client sends it again: `commits_later` says whether the turn that has it is still gathered."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    hub.hold_commits = True
    if commits_later:
        client.send(link, "earlier")
        rig.settle()
    client.send(link, "1")
    rig.settle()
    assert hub.core is not None
    assert hub.core.node_drain.begin()
    hub.due = True
    rig.settle()
    assert not link.detached and link.credit == 0
    hub.core.validate()
    hub.core.node_drain._end_links([hub.queue("work")], "again")  # as each news of other nodes does
    turns = hub.core.turns
    pending = [*turns.gathered.then, *(turns.in_flight.then if turns.in_flight is not None else ())]
    assert len(pending) == 1
    hub.hold_commits = False
    rig.run(1)
    outcomes = dict(client.outcomes)
    assert link.detached and refused(client)[0] == conditions.DETACH_FORCED
    assert [type(outcomes[body]) for body in outcomes] == [Accepted] * len(outcomes) and "1" in outcomes
    assert hub.bodies("work") == [*(["earlier"] if commits_later else []), "1"]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_sender_whose_link_the_drain_ended_learns_when_it_resumes_what_was_stored(
    answered: bool, killed: bool
) -> None:
    """It asks with the map that it has kept, for it has not heard the outcome: its connection broke first, and its next
    attach was refused (not `answered`), or the outcome and the end of its link were lost on the way."""
    rig = Rig()
    hub = rig.node("hub", queues=(QueueConfig(name="work"),))
    producer = Producer(rig, hub, durable=2)
    hub.hold_commits = True
    producer.send("a")
    rig.settle()
    if not answered:
        producer.lose()
        producer.client = rig.client(hub)
        producer.attach(dict.fromkeys(producer.doubt))
        assert producer.link.remote_attach is None, "its answer waits for the disk"
    client = producer.client
    if answered:
        client.receive = lambda data: None  # type: ignore[method-assign]  # what is said to it from here on is lost
    assert hub.core is not None and hub.core.node_drain.begin()
    hub.due = True
    rig.settle()
    assert answered or (producer.link.refused and refused(client)[0] == conditions.DETACH_FORCED)
    hub.hold_commits = False
    rig.run(1)
    assert not hub.core.links.producers_of(hub.queue("work")) and hub.bodies("work") == ["a"]
    producer.lose()
    if killed:
        hub.crash()
        hub.start()
    rig.settle()
    assert ask(rig, hub, "RESUME")["changed"]
    assert producer.come_back() == {bytes(4): Accepted()}


def test_a_relay_that_knows_the_address_is_refused_too() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    relay = client.session.attach_sender("relay", Source(), Target())
    for body in ("1", "2"):
        rig.settle()
        relay.send(Message(properties=Properties(to="work"), data=[body.encode()]).encode(), context=body)
        rig.settle()
        if body == "1":
            ask(rig, hub, "DRAIN")
    found = dict(client.outcomes)
    assert isinstance(found["1"], Accepted) and isinstance(found["2"], Rejected)


def test_what_it_holds_is_consumed_and_answered() -> None:
    """Over a dynamic node those are answered who wait for that."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    ask(rig, hub, "DRAIN")
    asker = rig.client(hub)
    replies = asker.session.attach_receiver("answers", Source(dynamic=True), Target())
    replies.grant(10)
    taker = rig.client(hub)
    work = taker.receiver("work")
    rig.settle()
    assert taker.accept(link=work) == ["1"]
    assert replies.remote_attach is not None and replies.remote_attach.source is not None
    answer = taker.sender(str(replies.remote_attach.source.address))
    rig.settle()
    taker.send(answer, "answer")
    rig.settle()
    assert asker.bodies(replies) == ["answer"]
    assert rig.client(hub).manage("STATUS", "node")[1]["drain"]["messages"] == 0


def test_it_stays_drained_over_a_crash_until_it_is_resumed() -> None:
    rig = Rig()
    hub = rig.node("hub")
    assert ask(rig, hub, "DRAIN")["changed"] and not ask(rig, hub, "DRAIN")["changed"]
    hub.crash()
    hub.start()
    assert any("drained" in text for text in hub.logs)
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    assert link.detached
    assert ask(rig, hub, "RESUME") == {"node": "hub", "changed": True, "drain": None}
    assert not ask(rig, hub, "RESUME")["changed"]
    hub.crash()
    hub.start()
    send(rig, hub, "1", to="hub")
    assert hub.bodies("work") == ["1"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_full_disk_does_not_forget_that_it_is_drained(ended: bool) -> None:
    rig = Rig()
    hub = rig.node("hub")
    if ended:
        ask(rig, hub, "DRAIN")
    assert hub.core is not None
    hub.refuse, hub.refuse_all = 2, True
    assert hub.core.node_drain.end() if ended else hub.core.node_drain.begin()
    hub.due = True
    rig.run(5)
    assert not hub.refuse
    hub.crash()
    hub.start()
    assert hub.core is not None and hub.core.node_drain.active is not ended
    assert (DRAIN in dict(hub.store.table("node"))) is not ended


def test_ways_lead_round_it_and_back_again() -> None:
    rig = Rig()
    nodes = a, b, c, _ = network(rig, *RING, supers=("a",))
    rig.run(3)
    assert path(a, "c") == "abc"
    ask(rig, b, "DRAIN")
    rig.run(1)
    assert path(a, "c") == "adc" and path(c, "a") == "cda"
    assert path(a, "b") == "ab" and path(b, "c") == "bc" and agree(*nodes)
    assert core_routes(a).drained == {"b"} and min(core_routes(b).states.edges()["b"].values()) > DRAINED_MICRO
    ask(rig, b, "RESUME")
    rig.run(1)
    assert path(a, "c") == "abc" and not core_routes(a).drained and agree(*nodes)


def test_it_is_the_last_resort_where_no_other_way_leads() -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c", supers=("a",))
    rig.run(3)
    ask(rig, b, "DRAIN")
    rig.run(1)
    send(rig, a, *names(1, 3), to="c")
    rig.run(3)
    assert c.bodies("work") == names(1, 3) and is_empty(a, b, c)


def test_others_refuse_new_messages_for_it_and_bring_what_they_have() -> None:
    rig = Rig()
    a, b, c, _ = network(rig, *RING, supers=("a",))
    rig.run(3)
    rig.refuse_dials = True
    client = rig.client(a)
    link, relay = client.sender("work@b"), client.session.attach_sender("relay", Source(), Target())
    rig.settle()
    for one, two in (("a", "b"), ("b", "c")):
        apart(rig, one, two)
    client.send(link, "1")
    relay.send(Message(properties=Properties(to="work@b"), data=[b"2"]).encode(), context="2")
    rig.settle()
    ask(rig, b, "DRAIN")
    rig.refuse_dials = False
    rig.run(10)
    assert b.bodies("work") == ["1", "2"] and is_empty(a, b)
    assert link.detached and refused(client) == (
        conditions.DETACH_FORCED,
        "node 'b' is being drained: it takes no new messages",
    )
    relay.send(Message(properties=Properties(to="work@b"), data=[b"3"]).encode(), context="3")
    again = client.sender("work@b")
    rig.settle()
    assert isinstance(dict(client.outcomes)["3"], Rejected) and again.detached
    send(rig, c, "4", to="a")
    rig.run(2)
    assert a.bodies("work") == ["4"]


def test_only_the_default_host_drains_its_node() -> None:
    rig = Rig()
    hub = rig.node("hub", vhosts=(VhostConfig(name="acme"),))
    client = rig.client(hub, hostname="vhost:acme")
    for operation in ("DRAIN", "RESUME", "NETWORK"):
        assert client.manage(operation, "node")[0] == 403
    assert hub.core is not None and not hub.core.node_drain.active
