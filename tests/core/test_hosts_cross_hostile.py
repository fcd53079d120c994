"""A neighbour, or a client, that names virtual hosts whose messages may not cross (docs/adr/0076)."""

from typing import Any
from uuid import uuid4

import pytest

from holdfast.amqp.connection import LinkDetached, Sender
from holdfast.amqp.wire.performatives import Properties, Source, Target
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries.host_names import host_of
from holdfast.custody.hop import sender as hops
from holdfast.management.where.questions import ASK
from holdfast.peers.neighbours import features
from support.crossing import EARLIER, bodies, client_of, line, refusal, say
from support.rig import Client, Node

NAMES = (
    "acme@hub@hub", "acme@@hub", "globex@hub", "nobody@hub", "acme\0@hub", "acme@hub\0", "acme@", "@", "a" * 300,
    "@hub", "acme@" + "n" * 300, "acme@$waiting", "\0@hub", "acme@far", "a" * 60_000 + "@hub",
)  # fmt: skip


class Stranger(Client):
    """Speaks as the neighbour jfk, and leaves what the node attaches unanswered."""

    def receive(self, data: bytes) -> None:
        for event in self.amqp.receive(data, self.rig.now):
            if isinstance(event, LinkDetached):
                self.detached.append(event)


def stranger(hub: Node, *, offered: tuple[str, ...] = features.ALL) -> Stranger:
    client = Stranger(hub.rig, container_id="jfk", offered_capabilities=tuple(map(Symbol, offered)))
    hub.rig.clients.append(client)
    client.end = hub.rig.attach(client, hub)
    hub.rig.settle()
    return client


def attach(client: Stranger, destination: str) -> Sender:
    properties = {hops.EPOCH: uuid4(), hops.CONTINUES: None, hops.DESTINATION: destination}
    link = client.session.attach_sender(
        f"l{len(client.detached)}", Source(), Target(address=hops.CUSTODY_ADDRESS), properties=properties
    )
    client.rig.settle()
    assert isinstance(link, Sender)
    return link


@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_that_names_what_may_not_cross_is_refused_and_all_others_go_on(name: str) -> None:
    _, (jfk, hub) = line("jfk", "hub", hosts=("acme",))
    jfk.crash()
    client = stranger(hub)
    before = set(hub.core.catalog.queues)
    link = attach(client, name)
    assert link.detached or client.over, "the link stands"
    assert set(hub.core.catalog.queues) == before and not hub.core.catalog.transit
    assert hub.core.containment.peers_ended == 0
    hub.core.validate()
    if not client.over:
        good = attach(client, "acme@hub")
        assert good.attached and not good.detached
    say(hub, "acme", "acme-1", to="work")
    assert bodies(hub, "acme") == ["acme-1"]


def test_a_neighbour_without_the_feature_brings_nothing_of_a_host() -> None:
    _, (jfk, hub) = line("jfk", "hub", hosts=("acme",))
    jfk.crash()
    client = stranger(hub, offered=EARLIER)
    assert attach(client, "acme@hub").detached
    assert "takes nothing of virtual host 'acme' from neighbour 'jfk'" in refusal(client)
    assert attach(client, "hub").attached


@pytest.mark.parametrize("name", [*(name for name in NAMES if host_of(name) not in ("", "acme")), "acme@hub"])
def test_marks_of_what_may_not_cross_are_passed_over(name: str) -> None:
    """Nor does a mark for numbers of its own make this node believe that its store was put back."""
    rig, (jfk, hub) = line("jfk", "hub", hosts=("acme",))
    hop, ours = hub.core.next_hops["jfk"], hub.core.identities.store_uuid
    passing = dict(hub.core.catalog.ledger.passing)
    hop.hear_marks([[name, ours, Ulong(7)], [name, uuid4(), Ulong(7)]])
    rig.run(2)
    assert not hub.core.identities.renewed and hub.core.catalog.ledger.passing == passing
    assert jfk.core.neighbours["hub"].established


def test_questions_of_what_may_not_cross_find_nothing() -> None:
    rig, (jfk, hub) = line("jfk", "hub", hosts=("acme",))
    say(hub, "globex", "globex-1", to="work", properties=Properties(message_id="m"))
    told: list[Any] = []
    session = jfk.core.neighbours["hub"]
    hears = jfk.core.control_kinds
    hears["there"] = lambda neighbour, fields: told.append(fields["steps"])
    for name in ("globex@hub", "nobody@hub", "acme@hub"):
        fields = {
            "kind": ASK, "ask": Ulong(1), "ids": ["m"], "destination": name, "origin": uuid4(), "number": Ulong(1),
            "to": "work", "asked": ["jfk"], "limit": Ulong(5_000),
        }  # fmt: skip
        assert session.send(fields)
        rig.run(1)
    assert [steps[0]["state"] for steps in told] == ["not here", "not here", "expected"]
    assert all("work" not in str(steps[0]) or at == 2 for at, steps in enumerate(told))


def test_what_a_client_writes_leads_into_no_other_host() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    client = client_of(jfk, "acme")
    bad = ("work@globex@hub", "globex\0work@hub", "work@globex\0hub", "@globex@hub", "$waiting@hub", "@acme@hub")
    for address in bad:
        link = client.sender(address)
        rig.settle()
        assert link.detached, address
    assert client.manage("READ", "queue", "@globex@hub")[0] == 404
    assert client_of(jfk, "").manage("READ", "queue", "@acme@hub")[0] == 404
    assert not jfk.core.catalog.transit and not bodies(hub, "globex")
