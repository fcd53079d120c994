"""Routing on joined nodes: who learns of what, and which way messages go. esb-dynamic-routing §4."""

from typing import Any

import pytest

from holdfast.engine import events
from holdfast.peering.route_status import status
from holdfast.peering.routes import ASK_S
from holdfast.routing.records import Known, Record
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.storage.memory import MemoryStore
from support import today
from support.hops import STRICT, apart, cut_any, is_empty, names, send, toggle
from support.rig import Node, Rig
from support.routing import agree, core_routes, marks, network, path, routes, topology

RING = ("a-b", "b-c", "c-d", "d-e", "e-f", "f-a")


def test_before_any_contact_the_file_says_the_way() -> None:
    """esb-dynamic-routing §4.1: the initial table."""
    rig = Rig()
    a, *_ = network(rig, "a-b", "b-c", start=False)
    a.start()
    assert routes(a) == {"b": "b", "c": "b"} and path(a, "c") == "abc"


def test_a_network_comes_together() -> None:
    rig = Rig()
    nodes = network(rig, *RING, supers=("a",))
    rig.run(3)
    assert agree(*nodes)
    assert [path(nodes[0], name) for name in "bcdef"] == ["ab", "abc", "abcd", "afe", "af"]


def test_a_cut_changes_the_way_everywhere() -> None:
    rig = Rig()
    nodes = a, b, _, d, _, _ = network(rig, *RING, supers=("a",), d=STRICT)
    rig.run(3)
    assert path(a, "d") == "abcd"
    rig.refuse_dials = True
    apart(rig, "b", "c")
    rig.settle()
    assert path(a, "d") == "afed" and path(b, "c") == "bafedc" and agree(*nodes)
    send(rig, b, *names(1, 5))
    assert d.bodies("work") == names(1, 5) and is_empty(*nodes)


def test_status_says_how_long_ago_a_next_hop_changed() -> None:
    """To time convergence by, afterwards. A table computed anew in which no next hop changed does not count."""
    rig = Rig()
    a, b, *_ = network(rig, *RING, supers=("a",))
    rig.run(3)
    rig.refuse_dials = True
    apart(rig, "b", "c")
    rig.run(2)
    version, since_s = core_routes(a).version, status(core_routes(a))["changed_s"]
    assert 1.9 <= since_s <= 2.0
    core_routes(b).set_cost("c", 2_000_000)
    core_routes(b).set_cost("a", 1_500_000)
    rig.run(1)
    assert core_routes(a).version > version and status(core_routes(a))["changed_s"] == pytest.approx(since_s + 1, 0.01)


def known(node: Node, name: str) -> Known:
    return core_routes(node).states.known[name]


def state(node: Node, name: str) -> str:
    return next(row["state"] for row in status(core_routes(node))["nodes"] if row["name"] == name)


def stop(rig: Rig, node: Node) -> None:
    node.handle(events.Stopping())
    rig.run(1)
    assert node.stopped
    node.crash()


def kept_apart(rig: Rig, one: Node, two: Node, *, silent: bool = False) -> None:
    """They do not come together again until `dial_at` is set."""
    assert one.core is not None
    apart(rig, one.name, two.name, silent=silent)
    one.core.neighbours[two.name].dial_at = None


def together(rig: Rig, one: Node, two: Node) -> None:
    assert one.core is not None
    one.core.neighbours[two.name].dial_at = rig.now
    one.core.neighbours[two.name].stir()


def test_a_node_registers_with_what_its_links_are() -> None:
    """esb-dynamic-routing §4.2: its first word says its links' probed states, not the file's."""
    rig = Rig()
    a, b, c = network(rig, "a-b", "c-b", start=False, supers=("b",))
    a.start()
    b.start()
    rig.run(0.5)
    assert not core_routes(b).registered  # of c it knows nothing yet: c would dial
    assert core_routes(a).registered and marks(a)["a"][0] > 0
    rig.run(1)
    assert known(a, "b").record.links == (("a", 1_000_000), ("c", None))
    assert state(a, "c") == "unreachable" and path(a, "c") == ""
    c.start()
    rig.run(6)
    assert path(a, "c") == "abc" and agree(a, b, c)


def test_one_turn_is_one_record_and_one_table() -> None:
    rig = Rig()
    hub, *leaves = network(rig, "h-a", "h-b", "h-c", "h-d", supers=("h",))
    rig.run(3)
    assert agree(hub, *leaves)
    version, tables = marks(hub)["h"][0], core_routes(hub).version
    rig.refuse_dials = True
    for name in "abcd":
        for wire in rig.between("h", name):
            for end in wire.ends:
                end.alive = False
            end = next(end for end in wire.ends if end.node is hub)
            hub.ends.pop(end.number)
            hub.handle(events.ConnectionLost(connection=end.number, reason="cut"))
    rig.settle()
    assert marks(hub)["h"][0] == version + 1 and core_routes(hub).version == tables + 1
    assert routes(hub) == {}


def test_messages_wait_for_who_cannot_be_reached() -> None:
    """It is known, so what is for it is taken; it goes once a way is there."""
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c", supers=("a",), c=STRICT)
    rig.run(3)
    c.crash()
    rig.run(5)
    assert state(a, "c") == "unreachable"
    send(rig, a, *names(1, 9), to="c")
    assert a.queue("@c").messages == 9 and not b.queue("@c").messages if "@c" in b.core.catalog.queues else True
    c.start()
    rig.run(10)
    assert c.bodies("work") == names(1, 9) and is_empty(a, b, c)


def test_logout_takes_a_node_out_of_all_tables_at_once() -> None:
    """esb-dynamic-routing §4.2: the node says so itself, on its orderly stop."""
    rig = Rig()
    nodes = a, b, _, d, _, _ = network(rig, *RING, supers=("a",))
    rig.run(3)
    version = marks(a)["b"][0]
    rig.refuse_dials = True
    b.handle(events.Stopping())
    rig.settle()
    assert b.stopped and all(state(node, "b") == "left" for node in nodes if node is not b)
    assert path(a, "d") == "afed" and marks(a)["b"][0] == version + 1
    b.crash()
    rig.refuse_dials = False
    rig.wall_ms -= 3_600_000  # though its clock went back an hour meanwhile
    b.start()
    rig.run(6)
    assert agree(*nodes) and state(d, "b") == "up" and marks(d)["b"][0] > version + 1 and path(a, "d") == "abcd"


def test_the_lowest_number_in_reach_acts_and_others_stand_by() -> None:
    rig = Rig()
    nodes = a, b, c, d = network(rig, "a-b", "b-c", "c-d", supers=("a", "d"))
    rig.run(3)
    assert [core_routes(node).acting for node in nodes] == ["a"] * 4
    assert not core_routes(d).supers.seen and set(core_routes(a).supers.seen) == {"b", "c", "d"}
    kept_apart(rig, b, c)
    rig.settle()
    assert [core_routes(node).acting for node in nodes] == ["a", "a", "d", "d"]  # each part has one
    assert all(known(node, "b").stamp for node in (a, b)) and all(known(node, "c").stamp for node in (c, d))
    rig.run(10)
    assert state(a, "d") == "unreachable"  # cut off is not lost
    together(rig, b, c)
    rig.run(8)
    assert [core_routes(node).acting for node in nodes] == ["a"] * 4 and agree(*nodes)


def test_the_super_node_goes_while_it_is_told() -> None:
    """What it had not passed on goes by the next one, or by itself where there is none."""
    rig = Rig()
    s, a, b, c, d = network(rig, "s-a", "s-b", "a-c", "b-d", "c-d", supers=("s",))
    rig.run(3)
    assert agree(s, a, b, c, d)
    s.hold_commits = True
    for one, two in (("s", "a"), ("s", "b")):  # dark, and nobody knows yet
        for wire in rig.between(one, two):
            wire.silent = True
    kept_apart(rig, c, d)
    rig.settle()
    assert not known(a, "c").stamp and dict(known(b, "c").record.links)["d"] is not None
    rig.refuse_dials = True
    rig.run(6)  # the hold time ends those sessions too
    assert [core_routes(node).acting for node in (a, b)] == [None, None]
    assert path(a, "c") == "ac" and path(b, "d") == "bd" and path(a, "d") == "" and path(d, "b") == "db"
    assert agree(a, c) and agree(b, d)


def test_a_silent_node_is_lost_until_it_speaks() -> None:
    """Heartbeats that stop, though its links are said to be up: the super node's verdict. esb-dynamic-routing §4.2."""
    rig = Rig()
    nodes = a, b, c = network(rig, "a-b", "b-c", supers=("a",))
    rig.run(3)
    routing = core_routes(c)
    routing.config = RoutingConfig(heartbeat_s=3_600)
    rig.run(3.5)
    assert state(b, "c") == "up"
    version = marks(b)["c"][0]
    lost = []
    for _ in range(40):
        rig.run(0.1)
        lost.append(state(a, "c"))
    assert any("c is lost" in line for line in a.logs)
    assert marks(b)["c"][0] > version and agree(*nodes)  # it heard of it, and said that it lives


def test_the_super_node_sees_by_which_way_all_live() -> None:
    """esb-dynamic-routing §5.3, step 7."""
    rig = Rig()
    a, *_ = network(rig, *RING, supers=("a",))
    rig.run(5)
    seen = {row["node"]: row for row in status(core_routes(a))["heartbeats"]}
    assert sorted(seen) == list("bcdef")
    assert all(row["shortest"] and row["last_heard_s"] <= 1.0 for row in seen.values())
    assert seen["d"]["path"] == list("dcba") and seen["e"]["path"] == list("efa")


def test_who_stays_different_is_sent_everything() -> None:
    """A table that lost a record without anybody knowing: its digest gives it away."""
    rig = Rig()
    nodes = *_, d = network(rig, "a-b", "b-c", "c-d", supers=("a",))
    rig.run(3)
    states = core_routes(d).states
    good = states.known["b"].record
    wrong = Record("b", 1, tuple((to, 7) for to, _ in good.links))
    states.put(Known(wrong))
    assert not agree(*nodes)
    rig.run(6)
    assert agree(*nodes) and known(d, "b").record == good
    states.put(Known(wrong))
    core_routes(d).ask_sync("a message came by another way")
    d.due = True
    rig.settle()
    assert agree(*nodes)


def test_several_that_differ_behind_one_neighbour_have_all_told_once() -> None:
    """Each of them is answered; what goes over the link they share goes once in a while."""
    rig = Rig()
    a, *_ = nodes = network(rig, "a-b", "b-c", "b-d", "b-e", supers=("a",))
    rig.run(3)
    rows: list[str] = []
    speak = a.core.neighbours["b"].send

    def heard(fields: dict[str, Any], **how: Any) -> bool:
        if fields["kind"] == "links":
            rows.extend(row[0] for row in fields["rows"])
        return speak(fields, **how)

    a.core.neighbours["b"].send = heard
    for name in "cde":
        core_routes(a)._resync(name, [])
    rig.settle()
    assert sorted(rows) == list("abcde") and agree(*nodes)


def test_who_is_called_lost_compares_tables() -> None:
    """Its table led its heartbeats nowhere: that is why."""
    rig = Rig()
    nodes = *_, d = network(rig, "a-b", "b-c", "c-d", supers=("a",))
    rig.run(3)
    core_routes(d).states.put(Known(Record("b", 1, ())))
    core_routes(d).wake()
    rig.settle()
    assert path(d, "a") == ""
    rig.run(6)
    assert agree(*nodes) and path(d, "a") == "dcba"


def test_asking_is_bounded() -> None:
    rig = Rig()
    _, b = network(rig, "a-b", supers=("a",))
    rig.run(3)
    sent = []
    b.core.neighbours["a"].send = lambda fields: bool(sent.append(fields)) or True
    routes, began = core_routes(b), rig.now
    for later_s, count in ((0.0, 1), (0.9 * ASK_S, 1), (ASK_S, 2), (1.9 * ASK_S, 2)):
        routes.clock.now = began + later_s
        for _ in range(50):
            routes.ask_sync("again")
        assert len(sent) == count and sent[-1]["kind"] == "heartbeat" and sent[-1]["sync"] is True


def test_a_restart_with_an_old_table_learns_what_was_meanwhile() -> None:
    rig = Rig()
    nodes = _, b, _, d, _, _ = network(rig, *RING, supers=("a",))
    rig.run(3)
    b.crash()
    rig.refuse_dials = True
    apart(rig, "d", "e")
    rig.run(3)
    rig.refuse_dials = False
    d.core.neighbours["e"].dial_at = None
    b.start()
    assert path(b, "e") == "bafe" and path(b, "d") == "bcd"
    rig.run(8)
    assert agree(*nodes) and path(b, "e") == "bafe" and path(d, "e") == "dcbafe"


def test_a_replaced_disk_is_a_new_word_of_its_node() -> None:
    rig = Rig()
    nodes = a, _, c = network(rig, "a-b", "b-c", supers=("a",))
    rig.run(3)
    old = c.store.uuid
    assert core_routes(a).name_of_store(old) == "c" and core_routes(a).name_of_store(a.store.uuid) == "a"
    c.crash()
    c.store = MemoryStore(mint_from=rig.uuid)
    c.start()
    rig.run(6)
    assert agree(*nodes)
    assert core_routes(a).name_of_store(c.store.uuid) == "c" and core_routes(a).name_of_store(old) is None
    c.core.identities.store_uuid = new = c.store.mint()  # and so is a store that found itself rolled back
    rig.run(3)
    assert core_routes(a).name_of_store(new) == "c"


def test_a_way_given_by_hand_wins() -> None:
    rig = Rig()
    a, *_ = network(rig, "a-b", "a-c", "b-d", "c-d", supers=("a",), a={})
    assert routes(a)["d"] == "b"
    rig = Rig()
    whole = topology("a-b", "a-c", "b-d", "c-d")
    neighbours = (NeighbourConfig(name="b"), NeighbourConfig(name="c"))
    a = rig.node("a", topology=whole, neighbours=neighbours, forwarding=(("d", "c"),))
    assert routes(a) == {"b": "b", "c": "c", "d": "c"}


def test_links_of_one_direction_carry_that_way_alone() -> None:
    rig = Rig()
    nodes = a, b, c = network(rig, "a>b", "b>c", "c>a", supers=("a",))
    rig.run(3)
    assert agree(*nodes) and path(a, "c") == "abc" and path(c, "b") == "cab" and path(b, "a") == "bca"


def test_what_a_link_has_no_credit_for_is_told_later() -> None:
    rig = Rig()
    nodes = a, b, c = network(rig, "a-b", "b-c", supers=("a",))
    rig.run(3)
    neighbour = b.core.neighbours["a"]
    speak, neighbour.send = neighbour.send, lambda fields: False
    kept_apart(rig, b, c)
    rig.run(0.5)
    assert not core_routes(b).synchronised and dict(known(a, "b").record.links)["c"] is not None
    neighbour.send = speak
    rig.run(0.2)
    assert dict(known(a, "b").record.links)["c"] is None and core_routes(b).synchronised
    del nodes


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "links"},
        {"kind": "links", "rows": 7},
        {"kind": "links", "rows": [7, ["b"]]},
        {"kind": "known", "rows": "x"},
        {"kind": "known", "rows": [[1, 2, 3]], "last": True},
        {"kind": "heartbeat"},
        {"kind": "heartbeat", "from": "b", "to": "a", "trace": ["b"] * 65, "digest": 1},
        {"kind": "heartbeat", "from": "b", "to": "a", "trace": ["c"], "digest": 1},
        {"kind": "heartbeat", "from": "b", "to": "a", "trace": ["b"], "digest": -1},
        {"kind": "resync"},
        {"kind": "resync", "node": "a", "trace": []},
    ],
)
def test_what_makes_no_sense_costs_one_line(bad: dict[str, object]) -> None:
    rig = Rig()
    a, b = network(rig, "a-b", supers=("a",))
    rig.run(3)
    for _ in range(5):
        a.core.neighbours["b"].hear(bad)
    rig.run(1)
    assert sum("dropped an invalid routing message" in line for line in a.logs) == 1 and agree(a, b)


def test_unknown_kinds_are_passed_over_and_others_may_be_added() -> None:
    rig = Rig()
    a, b = network(rig, "a-b", supers=("a",))
    rig.run(3)
    heard = []
    a.core.control_kinds["weather"] = lambda neighbour, fields: heard.append((neighbour.name, fields["x"]))
    for kind in ("weather", "something else"):
        assert b.core.neighbours["a"].send({"kind": kind, "x": 5})
    rig.run(1.5)
    assert heard == [("b", 5)]


def test_a_flood_without_a_super_node() -> None:
    """No node has the role: all is told to all."""
    rig = Rig()
    nodes = network(rig, *RING)
    rig.run(3)
    kept_apart(rig, nodes[0], nodes[1])
    rig.settle()
    assert agree(*nodes) and path(nodes[0], "b") == "afedcb" and core_routes(nodes[0]).acting is None


def test_a_node_that_no_file_but_its_neighbours_names_joins() -> None:
    """esb-dynamic-routing §4.2: it registers itself; who has the older file learns of it."""
    rig = Rig()
    old, new = topology("a-b", "b-c", supers=("a",)), topology("a-b", "b-c", "c-x", supers=("a",))
    dial = {name: NeighbourConfig(name=name, remote="127.0.0.1:1") for name in "bcx"}
    a = rig.node("a", topology=old, neighbours=(dial["b"],))
    b = rig.node("b", topology=old, neighbours=(NeighbourConfig(name="a"), dial["c"]))
    c = rig.node("c", topology=new, neighbours=(NeighbourConfig(name="b"), dial["x"]))
    x = rig.node("x", topology=new, neighbours=(NeighbourConfig(name="c"),), queues=STRICT["queues"])
    rig.run(4)
    assert agree(a, b, c, x) and path(a, "x") == "abcx"
    send(rig, a, "1", "2", to="x")
    assert x.bodies("work") == ["1", "2"] and is_empty(a, b, c, x)


def test_status_tells_of_routes_and_routing() -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c", supers=("a",), costs={"b-c": 2.5})
    rig.run(5)
    kept_apart(rig, b, c)
    send(rig, a, "1", to="c")
    rig.run(1)
    code, told, _ = rig.client(a).manage("STATUS", "node")
    assert code == 200
    rows = {row["destination"]: row for row in told["routes"]}
    assert rows["b"] == {
        "destination": "b", "next_hop": "b", "waiting": 0, "held": 0, "cost": 1.0, "path": ["a", "b"],
    }  # fmt: skip
    assert rows["c"]["next_hop"] is None and rows["c"]["path"] is None
    routing = told["routing"]
    assert (routing["acting_super"], routing["records"]) == ("a", 3)
    assert routing["synchronised"] is True and [row["state"] for row in routing["nodes"]] == ["up", "up", "unreachable"]


@pytest.mark.parametrize("seed", today.some(range(6), 1))
def test_at_random_links_and_nodes_come_and_go(seed: int) -> None:
    """Whatever happened: once it is over all agree, and messages pass by the shortest ways."""
    rig = Rig(seed)
    links = RING if seed else (*RING, "b-e")
    nodes = network(rig, *links, supers=(("a", "d"), ("c",), ())[seed % 3], d=STRICT)
    rig.run(2)
    for _ in range(25):
        act = rig.random.random()
        if act < 0.5:
            cut_any(rig)
        elif act < 0.7:
            toggle(rig.random.choice(nodes))
        rig.run(rig.random.uniform(0.0, 3.0))
    for node in nodes:
        if node.core is None:
            node.start()
    rig.run(40)
    assert agree(*nodes), seed
    assert path(nodes[0], "c") == "abc" and path(nodes[3], "f") == "def"
    send(rig, nodes[0], *names(1, 20))
    rig.run(2)
    assert nodes[3].bodies("work") == names(1, 20) and is_empty(*nodes)
