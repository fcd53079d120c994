"""Messages of a virtual host that cross to another node end in that host there, and nowhere else (docs/adr/0076)."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Uint
from holdfast.broker.entries.host_names import destination_of, host_of, hosted, node_of
from holdfast.custody.hop import sender as hops
from holdfast.engine import events
from holdfast.names import DESTINATION_BYTES_MAX, HOST_BYTES_MAX, NAME_BYTES_MAX
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import LinkConfig
from support.crossing import EARLIER, HOSTS, bodies, client_of, line, queues, refusal, restart, say
from support.hops import apart, snapshot
from support.one_node import done
from support.rig import Node, Rig
from support.transactions import Controller

DEAD = "$dead-letters"


def number(count: int, host: str = "") -> list[str]:
    """Bodies that tell their host."""
    return [f"{host or 'default'}-{at}" for at in range(1, count + 1)]


def nothing_astray(*nodes: Node) -> None:
    """Each message lies in its own host, with its own host's numbers."""
    for node in nodes:
        assert node.core is not None
        node.core.validate()
        for queue in node.core.catalog.queues.values():
            found = node.bodies(queue.key)
            assert all(body.startswith(f"{queue.host or 'default'}-") or not body for body in found), (queue.key, found)


def warnings_of(node: Node) -> list[str]:
    found = client_of(node, "").manage("STATUS", "node")[1]["warnings"]
    assert isinstance(found, list)
    return found


def test_names_of_destinations() -> None:
    assert [destination_of(host, "hub") for host in ("", "acme")] == ["hub", "acme@hub"]
    assert [(host_of(name), node_of(name)) for name in ("hub", "acme@hub")] == [("", "hub"), ("acme", "hub")]
    assert len(destination_of("h" * HOST_BYTES_MAX, "n" * NAME_BYTES_MAX)) == DESTINATION_BYTES_MAX


@pytest.mark.parametrize("nodes", [("jfk", "hub"), ("jfk", "via", "hub")])
@pytest.mark.parametrize("fault", ["none", "cut", "restart", "disk"])
def test_each_message_ends_in_its_own_host_once_and_in_order(nodes: tuple[str, ...], fault: str) -> None:
    rig, found = line(*nodes, queues=queues(*HOSTS, order="strict"))
    first, last = found[0], found[-1]
    for part in range(3):
        for host in HOSTS:
            say(first, host, *number(30, host)[part * 10 : part * 10 + 10], to="work@hub")
        if fault == "cut":
            apart(rig, *nodes[-2:], silent=part == 1)
        elif fault == "restart":
            found[part % len(found)].crash()
            rig.run(1)
            found[part % len(found)].start()
        elif fault == "disk":
            last.refuse = 2
        rig.run(4)
    rig.run(60)
    for host in HOSTS:
        assert bodies(last, host) == number(30, host)
        (origin,) = last.core.catalog.ledger.by_host[host].values()
        assert (origin.mark, origin.host, origin.origin) == (30, host, first.store.uuid)
        receipt = first.core.catalog.ledger.receipts[destination_of(host, "hub")]
        assert receipt == 30 or fault == "restart"  # who brought what is in memory alone
    assert not any(queue.messages for node in found for queue in node.core.catalog.transit.values())
    nothing_astray(*found)


def test_the_longest_names_cross_and_survive_restarts() -> None:
    host, name = "h" * HOST_BYTES_MAX, "n" * NAME_BYTES_MAX
    rig = Rig()
    nodes = rig.line("jfk", name, start=False)
    for node in nodes:
        near = tuple(replace(each, hosts=(host,)) for each in node.config.neighbours)
        node.config = replace(node.config, vhosts=(VhostConfig(name=host),), neighbours=near)
        node.start()
    rig.run(2)
    for body in ("1", "2"):
        say(nodes[0], host, body, to=f"work@{name}")
        rig.run(3)
        for node in nodes:
            node.crash()
            node.start()
        rig.run(5)
    assert bodies(nodes[1], host) == ["1", "2"]
    assert nodes[0].core.catalog.ledger.receipts == {f"{host}@{name}": 2}


@pytest.mark.parametrize("place", ["destination", "hop"])
def test_a_full_queue_of_one_host_stops_no_other(place: str) -> None:
    """At each place: what waits of acme is its own, and all of the others comes through."""
    rig, (jfk, via, hub) = line("jfk", "via", "hub", queues=(*queues("acme", messages_max=1), *queues("globex")))
    if place == "hop":
        restart(via, "globex")
    rig.run(3)
    say(jfk, "acme", *number(40, "acme"), to="work@hub")
    for host in ("", "globex"):
        say(jfk, host, *number(40, host), to="work@hub")
    rig.run(30)
    for host in ("", "globex"):
        assert bodies(hub, host) == number(40, host)
    assert bodies(hub, "acme") == (["acme-1"] if place == "destination" else [])
    nothing_astray(jfk, via, hub)
    if place == "destination":
        texts = [text for text in warnings_of(hub) if "full" in text]
        assert len(texts) == 1 and texts[0].startswith("virtual host 'acme': full (1 messages") and "work" not in texts
        client = client_of(hub, "acme")
        taken = []
        for _ in range(60):
            link = client.receiver("work", credit=10)
            rig.settle()
            taken += client.accept(link=link)
            link.detach(closed=True)
            rig.run(2)
        assert taken == number(40, "acme")


def test_a_host_that_no_neighbour_lists_stays() -> None:
    rig, (jfk, hub) = line("jfk", "hub", hosts=("globex",))
    assert refusal(say(jfk, "acme", to="work@hub")) == (
        "amqp:not-allowed: work@hub: messages of virtual host 'acme' do not leave this node, since no [[neighbour]] "
        "lists it in hosts; send to a queue of this node"
    )
    assert not jfk.core.catalog.transit
    say(jfk, "globex", *number(1, "globex"), to="work@hub")
    rig.run(2)
    assert bodies(hub, "globex") == ["globex-1"]


@pytest.mark.parametrize("why", ["not listed", "earlier version", "destination"])
def test_old_transit_waits_where_a_node_does_not_take_it_and_goes_on_later(why: str) -> None:
    """What waits is shown to its own host with its reason, and is never the default host's."""
    rig, (jfk, via, hub) = line("jfk", "via", "hub")
    node, name = (hub, "hub") if why == "destination" else (via, "via")
    node.crash()
    if why == "earlier version":
        node.start()
        node.core.doors.offers = EARLIER
    else:
        restart(node, "globex")
    rig.run(3)
    say(jfk, "acme", *number(3, "acme"), to="work@hub", properties=Properties(message_id="m"))
    for host in ("", "globex") if why != "earlier version" else ("",):
        say(jfk, host, *number(3, host), to="work@hub")
    rig.run(60)
    where = via if why == "destination" else jfk
    assert bodies(where, "acme", "@acme@hub") == number(3, "acme") and not bodies(hub, "acme")
    assert bodies(hub, "") == number(3)
    nothing_astray(jfk, via, hub)
    status = client_of(where, "acme").manage("STATUS", "node")[1]
    assert [(row["destination"], row["waiting"], row["next_hop"]) for row in status["routes"]] == [("hub", 3, name)]
    rows = client_of(where, "").manage("STATUS", "node")[1]["vhosts"]
    assert {row["name"]: row["waiting"] for row in rows} == {"acme": 3, "globex": 0}
    told = [text for text in warnings_of(where) if "acme" in text]
    asked = client_of(where, "acme").manage("WHERE", "node", message_id="m")[1]
    if why == "earlier version":
        expected = "3 messages of virtual host 'acme' for 'hub' wait: its version knows no virtual hosts; upgrade it"
        assert told == [f"neighbour via: {expected}"]
        assert asked["waits_for"] == "a version of 'via' that knows virtual hosts"
    else:
        assert len(told) == 1 and f"takes nothing of virtual host 'acme' from neighbour {where.name!r}" in told[0]
        assert asked["waits_for"] == f"a link to {name!r} for 'hub'"
    assert not client_of(where, "").manage("WHERE", "node", message_id="m")[1]["found"]
    restart(node, "acme", "globex")
    rig.run(60)
    assert bodies(hub, "acme") == number(3, "acme")
    assert not [text for text in warnings_of(where) if "acme" in text]
    nothing_astray(jfk, via, hub)


def test_what_may_cross_no_more_waits_and_is_told() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    apart_now(rig, jfk)
    say(jfk, "acme", *number(3, "acme"), to="work@hub", properties=Properties(message_id="m"))
    restart(jfk, "globex")
    rig.refuse_dials = False
    rig.run(20)
    expected = "3 messages of virtual host 'acme' for 'hub' wait: add the host to hosts of its [[neighbour]]"
    assert [text for text in warnings_of(jfk) if "acme" in text] == [f"neighbour hub: {expected}"]
    asked = client_of(jfk, "acme").manage("WHERE", "node", message_id="m")[1]
    assert asked["waits_for"] == "hosts of the [[neighbour]] 'hub', which does not list its virtual host"
    assert not jfk.core.next_hops["hub"].senders.get("acme@hub")
    restart(jfk, "acme")
    rig.run(10)
    assert bodies(hub, "acme") == number(3, "acme")


def apart_now(rig: Rig, node: Node) -> None:
    rig.refuse_dials = True
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    rig.settle()


# ------------------------------------------------------------------------------------------------ at the destination


@pytest.mark.parametrize("create", [True, False])
def test_what_has_no_queue_there_is_a_dead_letter_of_its_host(create: bool) -> None:
    rig, (jfk, hub) = line("jfk", "hub", create_queues=create, queues=queues("", "globex"))
    for host in HOSTS:
        say(jfk, host, *number(2, host), to="work@hub")
    rig.run(3)
    assert bodies(hub, "acme", "work" if create else DEAD) == number(2, "acme")
    assert not bodies(hub, "", DEAD) and bodies(hub, "globex") == number(2, "globex")
    nothing_astray(jfk, hub)
    if not create:
        client = client_of(hub, "acme")
        (row, _) = done(client, "QUERY", "entry", DEAD)["entries"]
        assert row["reason"] == "no queue 'work' at 'hub'" and row["from"] == "work"


def test_what_is_ahead_waits_in_its_own_host_and_is_given_up_there() -> None:
    rig, (jfk, hub) = line("jfk", "hub", queues=queues(*HOSTS, order="strict"))
    for host in ("", "acme"):
        jfk.core.catalog.ledger.identities[destination_of(host, "hub")] = 3  # 1 and 2 are elsewhere
        say(jfk, host, *number(2, host), to="work@hub")
    say(jfk, "globex", *number(2, "globex"), to="work@hub")
    rig.run(3)
    assert [bodies(hub, host, "$waiting") for host in HOSTS] == [number(2), number(2, "acme"), []]
    assert bodies(hub, "globex") == number(2, "globex")
    hub.crash()
    hub.start()
    rig.run(3)
    hub.core.validate()
    acme = client_of(hub, "acme")
    (row,) = acme.manage("STATUS", "node")[1]["origins"]
    assert (row["mark"], row["waiting"], row["gaps"]) == (0, 2, [[1, 2]])
    told = [text for text in warnings_of(hub) if "wait for numbers" in text]
    assert len(told) == 2 and "work" not in next(text for text in told if "acme" in text)
    assert done(client_of(hub, "globex"), "SKIP", "queue", "")["lost"] == []
    lost = done(acme, "SKIP", "queue", "work")["lost"]
    assert [(row["first"], row["last"]) for row in lost] == [(1, 2)]
    losses = client_of(hub, "").manage("STATUS", "node")[1]["losses"]
    assert [loss["reason"] for loss in losses] == ["virtual host 'acme': skipped by hand"]
    rig.run(2)
    assert [bodies(hub, host) for host in HOSTS] == [[], number(2, "acme"), number(2, "globex")]
    assert done(client_of(hub, ""), "SKIP", "queue", "")["lost"] and (rig.run(2) or bodies(hub, "") == number(2))
    nothing_astray(jfk, hub)


def test_a_transaction_is_shown_together_in_its_host() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    client = client_of(jfk, "acme")
    controller = Controller(client)
    begun = controller.begin()
    links = [client.sender("work@hub"), client.sender("other@hub")]
    rig.settle()
    for at, body in enumerate(number(6, "acme")):
        controller.send(begun, links[at % 2], body)
    assert isinstance(controller.commit(begun), Accepted)
    seen = []
    for _ in range(2_000):
        seen.append((len(bodies(hub, "acme")), len(bodies(hub, "acme", "other"))))
        if not rig.move():
            break
    rig.run(3)
    assert set(seen) <= {(0, 0), (3, 3)} and bodies(hub, "acme") == number(6, "acme")[::2]
    nothing_astray(jfk, hub)


def test_a_delay_is_its_hosts_own() -> None:
    rig, (jfk, hub) = line("jfk", "hub", queues=queues(*HOSTS))
    delay = {"message_annotations": {DELIVERY_DELAY: 5_000}}
    say(jfk, "acme", *number(2, "acme"), to="work@hub", **delay)
    rig.run(2)
    assert bodies(hub, "acme", "$delayed") == number(2, "acme") and not bodies(hub, "", "$delayed")
    rig.run(5)
    assert bodies(hub, "acme") == number(2, "acme")
    nothing_astray(jfk, hub)


def test_times_to_live_end_in_custody_and_keep_nothing_waiting() -> None:
    rig, (jfk, hub) = line("jfk", "hub", queues=queues(*HOSTS, order="strict"))
    apart_now(rig, jfk)
    say(jfk, "acme", "acme-1", to="work@hub")
    say(jfk, "acme", "acme-2", to="work@hub", header=Header(ttl=Uint(3_000)))
    say(jfk, "acme", "acme-3", to="work@hub")
    rig.run(10)
    assert jfk.queue(hosted("acme", "@acme@hub")).tombstones == 1
    rig.refuse_dials = False
    rig.run(10)
    assert bodies(hub, "acme") == ["acme-1", "acme-3"]
    jfk.core.catalog.ledger.identities["acme@hub"] = 5  # 4 is elsewhere
    say(jfk, "acme", "acme-5", to="work@hub", header=Header(ttl=Uint(3_000)))
    say(jfk, "acme", "acme-6", to="work@hub")
    rig.run(2)
    assert bodies(hub, "acme", "$waiting") == ["acme-5", "acme-6"]
    rig.run(10)
    assert bodies(hub, "acme", "$waiting") == ["acme-6"]
    nothing_astray(jfk, hub)


def test_so_many_origins_of_each_host_and_no_more() -> None:
    rig, (jfk, hub) = line("jfk", "hub", limits=Limits(origins_max=1))
    for host in HOSTS:
        say(jfk, host, *number(1, host), to="work@hub")
    rig.run(2)
    for host in HOSTS:
        assert bodies(hub, host) == number(1, host)
        assert hub.core.destination._new(host, uuid4()) is None


@pytest.mark.parametrize("crash", [False, True])
def test_a_store_that_was_put_back_hears_so_of_its_hosts_numbers(crash: bool) -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    say(jfk, "acme", "acme-1", to="work@hub")
    rig.run(3)
    older = snapshot(jfk)
    say(jfk, "acme", "acme-2", to="work@hub")
    rig.run(3)
    jfk.crash()
    jfk.store = older
    jfk.start()
    if not crash:
        rig.run(3)
    say(jfk, "acme", "acme-3", to="work@hub")
    rig.run(10)
    assert jfk.core.identities.renewed and bodies(hub, "acme") == ["acme-1", "acme-2", "acme-3"]
    nothing_astray(jfk, hub)


def test_a_node_with_another_name_counts_each_host_anew() -> None:
    rig, (jfk, hub) = line("jfk", "hub", queues=queues(*HOSTS, order="strict"))
    for host in ("", "acme"):
        say(jfk, host, *number(1, host), to="work@hub")
        jfk.core.catalog.ledger.identities[destination_of(host, "hub")] += 1
    say(jfk, "acme", "acme-3", to="work@hub")
    rig.run(3)
    hub.crash()
    hub.name = "bub"
    rig.nodes["bub"] = rig.nodes.pop("hub")
    hub.config = replace(hub.config, name="bub")
    hub.start()
    names = hub.core.catalog.ledger.names
    assert names.waited == ((2, "acme@hub"),) and names.own("acme") == "acme@bub"
    (former,) = hub.core.catalog.ledger.former_origins.values()
    assert (former.suffix, former.host, former.mark, sorted(former.waiting)) == ("acme@", "acme", 1, [3])
    hub.core.validate()
    rig.run(100)
    assert bodies(hub, "acme") == ["acme-1", "acme-3"] and not hub.core.catalog.ledger.names.waited
    assert bodies(hub, "") == number(1)
    hub.crash()
    hub.config = replace(hub.config, name="hub")
    hub.start()
    assert hub.core.catalog.ledger.by_host["acme"][jfk.store.uuid].mark == 3
    assert hub.core.catalog.ledger.by_host[""][jfk.store.uuid].mark == 1


# ------------------------------------------------------------------------------------------------ ways there


def test_links_moves_topics_and_dead_letters_lead_to_their_own_host() -> None:
    link = LinkConfig(name="out", source="raw", target="work@hub", vhost="acme")
    rig, (hub, jfk) = line("hub", "jfk", links=(link,), queues=queues("acme"))
    say(jfk, "acme", *number(2, "acme"), to="raw")
    rig.run(3)
    assert bodies(hub, "acme") == number(2, "acme")
    client = say(jfk, "acme", "acme-3", to="held")
    entries = done(client, "QUERY", "entry", "held")
    done(client, "MOVE", "entry", "held", queue_uuid=entries["queue_uuid"], sequence=1, delivery_count=0, to="work@hub")
    rig.run(2)
    reader = client_of(hub, "acme")
    link_in = reader.receiver("work", credit=3)
    rig.settle()
    assert reader.accept(Rejected(), link=link_in) == number(3, "acme")
    rig.settle()
    assert bodies(hub, "acme", DEAD) == number(3, "acme")
    link_in.detach(closed=True)
    listener = reader.receiver("topic/news")
    rig.settle()
    hub.unwatched.add(hops.CUSTODY_ADDRESS)  # nobody but a listener has what comes next
    say(jfk, "acme", "acme-4", to="topic/news@hub")
    say(jfk, "", "default-1", to="topic/news@hub")
    rig.run(2)
    assert reader.bodies(listener) == ["acme-4"]
    relay = client_of(jfk, "acme")
    anonymous = relay.session.attach_sender("relay", Source(), Target(address=None))
    rig.settle()
    relay.send(anonymous, "acme-5", properties=Properties(to="work@hub"))
    rig.run(2)
    assert bodies(hub, "acme") == ["acme-5"] and [type(state) for _, state in relay.outcomes] == [Accepted]
    nothing_astray(jfk, hub)


def test_a_link_that_a_request_made_waits_where_its_host_may_cross_no_more() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    say(jfk, "acme", "acme-1", to="raw")
    done(client_of(jfk, "acme"), "CREATE", "link", "out", **{"from": "raw", "to": "work@hub"})
    rig.run(2)
    assert bodies(hub, "acme") == ["acme-1"]
    restart(jfk)
    rig.run(5)
    say(jfk, "acme", "acme-2", to="raw")
    rig.run(5)
    assert bodies(jfk, "acme", "@acme@hub") == ["acme-2"]
    restart(jfk, "acme")
    rig.run(5)
    assert bodies(hub, "acme") == ["acme-1", "acme-2"]
    restart(jfk)
    rig.run(3)
    done(client_of(jfk, "acme"), "DELETE", "link", "out")
    nothing_astray(jfk, hub)


def test_a_dead_letter_goes_back_to_the_node_that_it_was_for() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    client = say(jfk, "acme", "acme-1", to="raw")
    entries = done(client, "QUERY", "entry", "raw")
    jfk.core.dead_lettering.dead_letter(
        "acme", jfk.queue(hosted("acme", "raw")).value(entries["entries"][0]["sequence"]), "by a test", "work@hub"
    )
    jfk.due = True
    rig.settle()
    rows = done(client, "QUERY", "entry", DEAD)
    done(client, "REQUEUE", "entry", DEAD, queue_uuid=rows["queue_uuid"], sequence=1, delivery_count=0)
    rig.run(3)
    assert bodies(hub, "acme") == ["acme-1"]


@pytest.mark.parametrize("tombstones", [False, True])
def test_a_node_that_left_leaves_dead_letters_of_each_host(tombstones: bool) -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    hub.crash()
    rig.run(2)
    for host in HOSTS:
        say(jfk, host, *number(2, host), to="work@hub")
    jfk.crash()
    near = tuple(replace(each, name="other", remote=None) for each in jfk.config.neighbours)
    jfk.config = replace(jfk.config, neighbours=near)
    jfk.start()
    rig.run(11)
    left = [text for text in warnings_of(jfk) if "topology" in text]
    assert (
        "2 messages of virtual host 'acme' wait for node 'hub', in neither the configuration nor the topology: "
        "`holdfast queue delete @acme@hub --vhost acme` makes them dead letters"
    ) in left
    assert len(left) == 3
    assert client_of(jfk, "").manage("DELETE", "queue", "@acme@hub")[0] == 404
    answer = done(client_of(jfk, "acme"), "DELETE", "queue", "@acme@hub", tombstones=tombstones)
    assert answer["dead_lettered"] == 2 and bodies(jfk, "acme", DEAD) == number(2, "acme")
    assert (hosted("acme", "@acme@hub") in jfk.core.catalog.queues) is not tombstones
    assert not bodies(jfk, "", DEAD) and bodies(jfk, "globex", "@globex@hub") == number(2, "globex")
    (row, _) = done(client_of(jfk, "acme"), "QUERY", "entry", DEAD)["entries"]
    assert row["from"] == "work@hub" and row["reason"].startswith("'hub' left")
    nothing_astray(jfk)


def test_what_is_for_an_unknown_node_is_its_hosts_dead_letter_and_goes_once_the_node_is_known() -> None:
    rig, (jfk, _) = line("jfk", "hub")
    jfk.crash()
    jfk.config = replace(jfk.config, unknown_destination="dead-letter")
    jfk.start()
    rig.run(2)
    client = client_of(jfk, "acme")
    link = client.sender("work@far")
    rig.settle()
    client.send(link, "acme-1")
    rig.settle()
    assert bodies(jfk, "acme", DEAD) == ["acme-1"] and not bodies(jfk, "", DEAD)
    jfk.handle(events.ForwardingChanged(table={"far": "hub"}))
    rig.settle()
    client.send(link, "acme-2")
    rig.settle()
    assert bodies(jfk, "acme", "@acme@far") == ["acme-2"] and "far" not in jfk.core.catalog.transit
    nothing_astray(jfk)


def test_purged_on_the_way_and_large_messages() -> None:
    rig, (jfk, hub) = line("jfk", "hub", queues=queues(*HOSTS, order="strict"))
    apart_now(rig, jfk)
    say(jfk, "acme", "acme-1", to="work@hub")
    say(jfk, "", "default-1", to="work@hub")
    assert done(client_of(jfk, "acme"), "PURGE", "queue", "@acme@hub")["purged"] == 1
    rig.refuse_dials = False
    client = client_of(jfk, "acme")
    link = client.sender("work@hub")
    rig.settle()
    body = b"acme-" + bytes(3_000_000)
    link.send(Message(data=[body]).encode(), context="large")
    rig.run(10)
    assert [len(each) for each in bodies(hub, "acme")] == [len(body)] and bodies(hub, "") == ["default-1"]
    nothing_astray(jfk, hub)


def test_where_a_message_is_is_told_to_its_own_host_alone() -> None:
    rig, (jfk, via, hub) = line("jfk", "via", "hub")
    say(jfk, "acme", "acme-1", to="work@hub", properties=Properties(message_id="m"))
    rig.run(3)

    def asked(node: Node, host: str) -> dict[str, Any]:
        client = client_of(node, host)
        later = client.session.attach_receiver("answers", Source(address="$management"), Target(address="answers"))
        later.grant(10)
        link = client.sender("$management")
        rig.settle()
        told = {"operation": "WHERE", "type": "holdfast:node", "name": ""}
        properties = Properties(message_id="q", reply_to="answers")
        request = Message(properties=properties, application_properties=told, value={"message_id": "m"})
        link.send(request.encode(), context=None, settled=True)
        rig.run(3)
        (answer,) = client.messages(later)
        assert isinstance(answer.value, dict)
        return answer.value

    told = asked(jfk, "acme")
    assert told["found"] and told["state"] == "queued" and told["custody"] == "hub"
    assert [step["node"] for step in told["steps"]] == ["jfk", "via", "hub"]
    assert [row["node"] for row in told["path"]] == ["jfk", "via", "hub"]
    assert told["steps"][0]["destination"] == "hub"
    for node in (jfk, via, hub):
        for host in ("", "globex"):
            assert not asked(node, host)["found"], (node.name, host)
