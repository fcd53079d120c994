"""A topology file that is taken up while the node runs: links and nodes come and go (core/neighbour_changes.py,
peering/routes.py, docs/adr/0110)."""

from dataclasses import replace

import pytest

from holdfast.core.reloading import Reloading
from holdfast.engine import events
from holdfast.federation.settings import Entry
from holdfast.routing.topology import DRAINED_MICRO, Topology
from holdfast.settings.changes import compare
from holdfast.settings.neighbours import PROBE_S_BY_KIND, NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from support.hops import STRICT, is_empty, names, send
from support.rig import Node, Rig
from support.routing import agree, core_routes, network, path, routes, topology

RING = ("a-b", "b-c", "c-d", "d-e", "e-a")


def take_up(node: Node, *links: str, costs: dict[str, float] | None = None, **fields: object) -> list[str]:
    """The node reads a topology file with those links, of which each is dialled from its first node; what it says."""
    file = topology(*links, costs=costs)
    ends = [link.replace(">", "-").split("-") for link in links]
    neighbours = [NeighbourConfig(name=to, remote="127.0.0.1:1") for one, to in ends if one == node.name]
    neighbours += [NeighbourConfig(name=one) for one, to in ends if to == node.name]
    return read(node, topology=file, neighbours=tuple(neighbours), **fields)


def read(node: Node, **fields: object) -> list[str]:
    assert node.core is not None
    logged = len(node.logs)
    config = replace(reloading(node).config, **fields)
    node.handle(events.ConfigRead(config=config))
    node.rig.settle()
    node.core.validate()
    if node.reloading[-1].accepted:
        node.config = config
    return [line.removeprefix("reload: ") for line in node.logs[logged:] if line.startswith("reload: ")]


def reloading(node: Node) -> Reloading:
    assert node.core is not None
    return node.core.reloading


def everywhere(nodes: list[Node], *links: str, costs: dict[str, float] | None = None) -> None:
    for node in nodes:
        take_up(node, *links, costs=costs)


# ------------------------------------------------------------------------------------------------------ costs


def test_a_cost_that_changes_moves_the_ways_and_ends_no_session() -> None:
    rig = Rig()
    nodes = a, b, *_ = network(rig, *RING, supers=("a",))
    rig.run(3)
    assert path(a, "c") == "abc" and path(b, "e") == "bae"
    sessions = [a.core.neighbours["b"].peer, b.core.neighbours["a"].peer]
    costs = {"a-b": 9.0}
    said = take_up(a, *RING, costs=costs)
    rig.run(1)
    assert said == ["topology node 'a' changed; topology link 'a' to 'b' changed"], "a was a super node before"
    assert path(a, "b") == "aedcb" and path(b, "a") == "ba", "each end says what its own direction costs"
    take_up(b, *RING, costs=costs)
    rig.run(1)
    assert path(b, "a") == "bcdea" and agree(*nodes)
    assert [a.core.neighbours["b"].peer, b.core.neighbours["a"].peer] == sessions


def test_the_kind_of_a_link_changes_how_often_it_is_probed() -> None:
    rig = Rig()
    a, _ = network(rig, "a-b")
    rig.run(3)
    peer = a.core.neighbours["b"].peer
    before = a.config.topology
    assert before is not None
    tcp = Topology(before.nodes, tuple(replace(link, kind="tcp") for link in before.links))
    assert read(a, topology=tcp) == ["topology link 'a' to 'b' changed"]
    assert a.core.neighbours["b"].liveness.probe_s == PROBE_S_BY_KIND["tcp"] < PROBE_S_BY_KIND["serial"]
    assert a.core.neighbours["b"].peer is peer
    read(a, neighbours=(NeighbourConfig(name="b", remote="127.0.0.1:1", hold_time_s=7.0),))
    assert a.core.neighbours["b"].liveness.probe_s == PROBE_S_BY_KIND["tcp"], "also with its other settings"


def test_a_drained_node_says_so_of_its_new_links_too() -> None:
    rig = Rig()
    a, *_ = network(rig, *RING)
    rig.run(3)
    a.core.node_drain.begin()
    rig.run(1)
    take_up(a, *RING, costs={"a-b": 7.0})
    record = core_routes(a).states.known["a"].record
    assert dict(record.links)["b"] == DRAINED_MICRO + 7_000_000 and record.drained


# ------------------------------------------------------------------------------------------------------ links


def test_a_link_that_left_the_file_is_used_no_more_and_what_was_in_doubt_arrives_once() -> None:
    rig = Rig()
    nodes = a, b, _, d, _ = network(rig, *RING, d=STRICT)
    rig.run(3)
    assert path(a, "d") == "aed"
    rig.nodes["e"].hold_commits = True
    send(rig, a, *names(1, 5))
    left = [link for link in RING if link != "e-a"]
    said = take_up(a, *left)
    assert said == ["neighbour 'e' removed; topology link 'e' to 'a' removed"]
    assert path(a, "d") == "abcd", "in the same turn"
    assert sorted(core_routes(a).states.told) == ["b"]
    rig.nodes["e"].hold_commits = False
    take_up(rig.nodes["e"], *left)
    rig.run(5)
    send(rig, a, *names(6, 8))
    rig.run(5)
    assert d.bodies("work") == names(1, 8) and is_empty(*nodes)
    assert path(b, "e") == "bcde" and agree(*nodes)
    everywhere(nodes, *RING)
    rig.run(8)
    assert path(a, "d") == "aed" and agree(*nodes)
    send(rig, a, "9")
    rig.run(1)
    assert d.bodies("work")[-1] == "9"


def test_receipts_find_another_way_when_a_neighbour_is_removed_and_the_old_one_when_it_is_back() -> None:
    rig = Rig()
    nodes = a, _, _, d, e = network(rig, *RING, d=STRICT)
    rig.run(3)
    send(rig, a, "1")
    rig.run(3)
    for node in (d, e):
        take_up(node, *(link for link in RING if link != "d-e"))
    assert not d.core.forwarding.receipts.brought, "it came from a neighbour that is none any more"
    rig.run(3)
    send(rig, a, "2")
    rig.run(3)
    everywhere(nodes, *RING)
    rig.run(8)
    send(rig, a, "3")
    rig.run(8)
    assert path(a, "d") == "aed" and d.bodies("work") == names(1, 3)
    assert a.core.catalog.ledger.receipts["d"] == 3, "the receipt of the last one came back by e"
    assert not any("failure" in line for node in nodes for line in node.logs)


def test_one_end_that_has_the_new_file_is_enough_to_take_a_link_out_of_use() -> None:
    rig = Rig()
    nodes = a, *_, e = network(rig, *RING)
    rig.run(3)
    take_up(e, *(link for link in RING if link != "e-a"))
    rig.run(3)
    assert path(a, "e") == "abcde" and agree(*nodes), "a still has the link in its file, and dials nobody"


def test_a_session_that_is_up_gets_a_link_of_the_file() -> None:
    """The way back of a link: until then the neighbour is there for custody's answers, and no route leads over it."""
    rig = Rig()
    b, a = network(rig, "b>a", b=STRICT)
    rig.run(3)
    assert a.core.neighbours["b"].established and routes(a) == {}
    for node in (a, b):
        take_up(node, "b-a")
    assert routes(a) == {"b": "b"}
    send(rig, a, "1", to="b")
    rig.run(1)
    assert b.bodies("work") == ["1"]
    take_up(a, "b>a")
    assert routes(a) == {} and a.core.neighbours["b"].established


def test_before_a_node_has_said_anything_its_table_is_the_new_files() -> None:
    rig = Rig()
    _, a, _ = network(rig, "b-a", "b-c", start=False)
    a.start()
    assert routes(a) == {"b": "b", "c": "b"}
    take_up(a, "b-a", "c-a")
    assert not core_routes(a).registered and routes(a) == {"b": "b", "c": "c"}
    take_up(a, "c-a")
    assert routes(a) == {"c": "c"} and core_routes(a).costs == {"c": 1_000_000}


def test_routes_that_are_given_come_before_the_computed_ones() -> None:
    rig = Rig()
    a, *_ = network(rig, *RING)
    rig.run(3)
    assert read(a, forwarding=(("c", "e"),)) == ["route 'c' added"]
    assert routes(a)["c"] == "e" and routes(a)["d"] == "e" and routes(a)["b"] == "b"
    assert read(a, forwarding=()) == ["route 'c' removed"]
    assert routes(a)["c"] == "b"


# ------------------------------------------------------------------------------------------------------ nodes


def test_a_node_that_the_new_file_adds_gets_its_messages() -> None:
    rig = Rig()
    nodes = a, _, c = network(rig, "a-b", "b-c", "c-d", start=False, d=STRICT)[:3]
    for node in nodes:
        node.config = replace(node.config, topology=topology("a-b", "b-c"))
    c.config = replace(c.config, neighbours=(NeighbourConfig(name="b"),))
    for node in nodes:
        node.start()
    rig.run(3)
    client = rig.client(a)
    refused = client.sender("work@d")
    rig.settle()
    assert refused.detached, "nothing is known of d"
    everywhere([*nodes], "a-b", "b-c", "c-d")
    d = rig.nodes["d"]
    send(rig, a, *names(1, 3))
    d.start()
    rig.run(8)
    assert d.bodies("work") == names(1, 3) and path(a, "d") == "abcd"


def test_a_node_that_left_the_file_is_known_until_it_is_forgotten() -> None:
    rig = Rig()
    nodes = a, b, c = network(rig, "a-b", "b-c", c=STRICT)
    rig.run(3)
    c.handle(events.Stopping())
    rig.run(1)
    c.crash()
    send(rig, a, *names(1, 2), to="c")
    everywhere([a, b], "a-b")
    rig.run(3)
    client = rig.client(a)
    link = client.sender("work@c")
    rig.settle()
    assert not link.detached, "c has said something of itself, and may do so again"
    assert rig.client(a).manage("FORGET", "node", "c")[0] in (200, 204)
    rig.run(3)
    assert link.detached and all("c" not in core_routes(node).states.known for node in (a, b))
    assert a.core.catalog.transit["c"].messages == 2, "they stay until an operator says what becomes of them"
    assert any("2 messages wait for node 'c', in neither" in line for line in a.logs)
    everywhere([a, b], "a-b", "b-c")
    c.start()
    rig.run(8)
    assert c.bodies("work") == names(1, 2) and agree(*nodes), "it came back with a newer file"


def test_a_node_that_nobody_heard_of_leaves_with_the_file() -> None:
    rig = Rig()
    a, b = network(rig, "a-b", "b-c", start=False)[:2]
    a.start()
    b.start()
    rig.run(8)
    link = rig.client(a).sender("work@c")
    rig.settle()
    assert not link.detached
    take_up(a, "a-b")
    assert link.detached and "no route to 'c'" in str(link.error)


def test_who_is_a_super_node_is_the_new_files_to_say() -> None:
    rig = Rig()
    nodes = _, b, c = network(rig, "a-b", "b-c", supers=("b",))
    rig.run(3)
    assert [core_routes(node).acting for node in nodes] == ["b", "b", "b"]
    for node in nodes:
        role = ("super",) if node is c else ("client",)
        read(node, topology=topology("a-b", "b-c", supers=("c",)), roles=role)
    rig.run(3)
    assert [core_routes(node).acting for node in nodes] == ["c", "c", "c"] and agree(*nodes)
    assert not core_routes(b).states.known["b"].record.is_super


# ------------------------------------------------------------------------------------- what waits, what is refused


def test_a_topology_that_begins_or_ends_waits_for_a_restart_and_its_neighbours_too() -> None:
    drawn = topology("hub-jfk")
    jfk = NeighbourConfig(name="jfk")
    before = NodeConfig(name="hub", neighbours=(jfk,), topology=drawn)
    for old, new in ((before, replace(before, topology=None, neighbours=())), (replace(before, topology=None), before)):
        changes = compare(old, replace(new, roles=("root",), forwarding=(("ord", "jfk"),)))
        assert changes.config == old and not changes.changed
        waits = {"[topology]", "node roles", "[[route]]"} | ({"[[neighbour]]"} if not new.neighbours else set())
        assert set(changes.restart) == waits
    assert compare(before, replace(before, neighbours=()), routed={"jfk"}).config.neighbours == ()


def test_a_file_that_takes_away_where_topics_go_changes_nothing() -> None:
    rig = Rig()
    topics = (QueueConfig(name="topic/news"),)
    a, _ = network(rig, "a-b", a={"queues": topics, "federation": (Entry("news", "b"),)})
    rig.run(3)
    (line,) = read(a, topology=topology("a-c"), neighbours=())
    assert line.startswith("nothing has changed: ") and "'b'" in line
    assert a.core.neighbours["b"].established and path(a, "b") == "ab"
    assert read(a, topology=topology("a-c"), neighbours=(), federation=())[0].startswith("neighbour 'b' removed")
    assert not a.core.neighbours


@pytest.mark.parametrize("leaving", [False, True])
def test_a_node_that_stops_advertises_nothing_more(leaving: bool) -> None:
    rig = Rig()
    a, *_ = network(rig, *RING)
    rig.run(3)
    if leaving:
        core_routes(a).leave()
    version = core_routes(a).states.known["a"].record.version
    take_up(a, *RING, costs={"a-b": 5.0})
    assert core_routes(a).states.known["a"].record.version == version + (not leaving)


def test_an_added_neighbour_leaves_the_ways_that_topics_made() -> None:
    """A node without a topology file routes over the links of its topics: what that found is not lost."""
    rig = Rig()
    topics = (QueueConfig(name="topic/news"),)
    told = {"queues": topics}
    a, b, c = rig.graph("a-b", "b-c", a=told, b=told, c=told)
    rig.run(1)
    for node, others in ((a, "b"), (b, "ac"), (c, "b")):
        read(node, federation=tuple(Entry("news", other) for other in others))
    rig.run(5)
    assert routes(a) == {"b": "b", "c": "b"}
    read(a, neighbours=(*reloading(a).config.neighbours, NeighbourConfig(name="d")))
    assert routes(a) == {"b": "b", "c": "b"}
