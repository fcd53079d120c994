"""Routing tables that a fault made wrong become right; nodes that are gone are forgotten; nobody else is."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire.types import Ulong
from holdfast.custody.departed import Departures
from holdfast.routing.paths import shortest_paths
from holdfast.routing.records import VERSION_END, Known, Record
from holdfast.settings.neighbours import NeighbourConfig
from holdfast_lab.runs.wrong_tables import spoil
from support import today
from support.rig import Node, Rig
from support.routing import agree, core_routes, network, topology

RING = ("a-b", "b-c", "c-d", "d-a", "c-e")
EXCHANGES = 3
"""Tables are right within so many comparisons of all neighbours: one that finds what is wrong, one for what is found
wrong only once its node has begun its versions anew, one for what crossed."""
REFRESH_S = 5.0


@today.examples(5)
@given(st.integers(0, 2**32), st.sampled_from([(), ("a",), ("a", "e")]), st.sampled_from([0.2, 0.5, 1.0]))
def test_spoilt_tables_become_right_within_three_exchanges(seed: int, supers: tuple[str, ...], share: float) -> None:
    rig, random = Rig(seed), Random(seed)
    nodes = network(rig, *RING, supers=supers, routing={"refresh_s": REFRESH_S})
    rig.run(3)
    assert agree(*nodes)
    wanted = topology(*RING, supers=supers).edges()
    for node in nodes:
        if random.random() < 0.7:
            spoil(core_routes(node).states, random, share=share)
    rig.run(EXCHANGES * REFRESH_S)
    for node in nodes:
        found = {to: path.nodes for to, path in core_routes(node).paths.items()}
        assert found == {to: path.nodes for to, path in shortest_paths(wanted, node.name).items()}, node.name
    assert agree(*nodes)


def test_a_node_whose_own_record_has_the_highest_version_gets_past_it() -> None:
    """As a fault left it, at the node itself and at all others: today's news is told within one exchange."""
    rig = Rig()
    nodes = network(rig, *RING, supers=("a",), routing={"refresh_s": REFRESH_S})
    rig.run(3)
    for node in nodes:
        states = core_routes(node).states
        old = states.known["c"]
        states.known["c"] = Known(Record("c", VERSION_END - 1, (("b", None),)), old.stamp)
        states.recount()
    rig.run(REFRESH_S)
    core_routes(nodes[2]).set_cost("b", 7_000_000)
    rig.run(1)
    for node in nodes:
        record = core_routes(node).states.known["c"].record
        assert dict(record.links)["b"] == 7_000_000 and record.version < 2**48
    assert agree(*nodes)


def stranger(rig: Rig, **routing: float) -> list[Node]:
    """a-b-c, whose files do not have x, which joined at c and is gone again."""
    whole = topology("a-b", "b-c", supers=("b",))
    nodes = network(rig, "a-b", "b-c", supers=("b",), routing=routing)
    rig.run(3)
    states = core_routes(nodes[2]).states
    states.put(Known(Record("x", 1_000, (("c", 1_000_000),)), ("b", 1)))
    core_routes(nodes[2]).wake()
    rig.run(1)
    assert whole.node("x") is None
    assert all("x" in core_routes(node).states.known for node in nodes)
    return nodes


def test_a_node_that_is_gone_is_forgotten_after_forget_s() -> None:
    rig = Rig()
    nodes = stranger(rig, refresh_s=1.0, forget_s=20.0)
    rig.run(17)
    assert all("x" in core_routes(node).states.known for node in nodes)
    rig.run(6)
    assert not any("x" in core_routes(node).states.known for node in nodes)
    assert agree(*nodes)
    assert all(any("node x is forgotten" in line for line in node.logs) for node in nodes)
    assert not core_routes(nodes[0]).knows("x")


def test_when_many_are_forgotten_at_once_what_is_queued_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes through all transmission queues and all links for them."""
    rig = Rig()
    (a,) = network(rig, "a-b", supers=("a",), routing={"refresh_s": 1.0, "forget_s": 3.0})[:1]
    rig.run(3)
    routes = core_routes(a)
    names = [f"x{number}" for number in range(100)]
    for name in names:
        routes.states.put(Known(Record(name, 1, ())))
    looks = 0
    look = Departures.look

    def counted(departures: Departures) -> None:
        nonlocal looks
        looks += 1
        look(departures)

    monkeypatch.setattr(Departures, "look", counted)
    rig.run(10)
    assert not set(names) & set(routes.states.known)
    assert 1 <= looks <= 4


def test_the_file_s_nodes_are_never_forgotten() -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c", supers=("b",), routing={"refresh_s": 1.0, "forget_s": 3.0})
    rig.run(3)
    c.crash()
    rig.run(20)
    assert "c" in core_routes(a).states.known and "c" in core_routes(b).states.known


def test_topology_forget() -> None:
    rig = Rig()
    nodes = stranger(rig)
    client = rig.client(nodes[0])
    assert client.manage("FORGET", "node", "c")[0] == 409
    assert client.manage("FORGET", "node", "nobody")[0] == 404
    assert client.manage("FORGET", "node", "x")[:2] == (200, {"node": "x", "waiting": 0})
    rig.run(1)
    assert not any("x" in core_routes(node).states.known for node in nodes)
    assert agree(*nodes)
    plain = rig.node("plain")
    assert rig.client(plain).manage("FORGET", "node", "x")[0] == 409


def test_what_waits_for_a_forgotten_node_stays() -> None:
    rig = Rig()
    nodes = stranger(rig)
    client = rig.client(nodes[2])
    link = client.sender("work@x")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    status, body, _ = client.manage("FORGET", "node", "x")
    assert (status, body) == (200, {"node": "x", "waiting": 1})
    assert nodes[2].bodies("@x") == ["1"]


@pytest.mark.parametrize("fields", [
    {}, {"node": 5}, {"node": "x" * 300}, {"node": "c", "version": -1}, {"node": "c", "version": Ulong(2**63)},
    {"node": "c", "version": 2**62}, {"node": "a", "version": 2**62}, {"node": "nobody", "version": 1}, {"digest": "x"},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["forget", "reset", "digest"])
def test_a_lying_neighbour_forgets_and_resets_nothing(kind: str, fields: dict[str, object]) -> None:
    rig = Rig()
    nodes = network(rig, "a-b", "b-c", supers=("b",))
    rig.run(3)
    assert nodes[1].core is not None
    for _ in range(50):
        nodes[1].core.neighbours["a"].send({"kind": kind, **fields})
        nodes[1].due = True
        rig.run(0.1)
    assert agree(*nodes) and nodes[0].core.neighbours["b"].flaps == 0
    assert set(core_routes(nodes[0]).states.known) == {"a", "b", "c"}
    assert len([line for line in nodes[0].logs if "routing:" in line]) <= 3


def test_neighbours_of_another_file_are_named() -> None:
    """A neighbour that the topology does not have is configured all the same."""
    rig = Rig()
    a = rig.node("a", topology=topology("a-b"), neighbours=(NeighbourConfig(name="b"), NeighbourConfig(name="y")))
    assert core_routes(a).upkeep.why_kept("y") is not None and core_routes(a).upkeep.why_kept("z") is None


def slow_line() -> tuple[Rig, Any, Any, Any]:
    """a - b - c, where c gives b no credit for what is not a probe: rig, a's neighbour b, b's routes, the switch."""
    rig = Rig()
    a, b, _ = network(rig, "a-b", "b-c")
    rig.run(3)
    assert a.core is not None and b.core is not None
    control = b.core.neighbours["c"].control
    tries: list[bytes] = []

    def refuse(payload: bytes, *, reserve: int = 0) -> bool:
        if b"probe" in payload or b"echo" in payload:
            return type(control).send(control, payload, reserve=reserve)
        tries.append(payload)
        return False

    control.send = refuse
    return rig, a, b, tries


def test_resets_of_nodes_that_nobody_knows_are_not_passed_on() -> None:
    rig, a, b, _ = slow_line()
    for number in range(100):
        a.core.neighbours["b"].send({"kind": "reset", "node": f"made-up-{number}"}, reserve=0)
    a.due = True
    rig.settle()
    assert core_routes(b).upkeep._to_send == {}
    a.core.neighbours["b"].send({"kind": "reset", "node": "a"}, reserve=0)
    a.due = True
    rig.settle()
    assert list(core_routes(b).upkeep._to_send["c"]) == ["reset a"]


def test_what_waits_for_a_slow_neighbour_is_bounded_and_a_tick_looks_at_its_first() -> None:
    rig, _, b, tries = slow_line()
    upkeep = core_routes(b).upkeep
    most = upkeep.states.records_max
    for number in range(most):
        upkeep._pass_on({"kind": "forget", "node": f"n-{number}", "version": Ulong(1)}, "a")
    assert len(upkeep._to_send["c"]) == most
    upkeep._pass_on({"kind": "forget", "node": "one-past-it", "version": Ulong(1)}, "a")
    assert len(upkeep._to_send["c"]) == most and list(upkeep._to_send["c"])[-1] == "forget one-past-it"
    assert next(iter(upkeep._to_send["c"])) == "forget n-1"
    tries.clear()
    assert not upkeep.tick(rig.now)
    assert len(tries) == 1
    del b.core.neighbours["c"].control.send
    waiting = upkeep._to_send["c"]
    link = b.core.neighbours["c"].control.link
    assert link.credit < most
    upkeep.tick(rig.now)
    b.due = True
    assert 0 < len(waiting) < most, "as many as there is credit for"


def test_a_fault_makes_no_record_that_names_itself() -> None:
    """Nobody takes such a row, so it could never be told; a fault that strikes twice finds the ghost of the first."""
    for seed in today.some(range(60), 10):
        rig, random = Rig(seed), Random(seed)
        (node, *_) = network(rig, *RING, supers=("a",))
        states = core_routes(node).states
        for _ in range(4):
            spoil(states, random, share=1.0)
            assert not [name for name, known in states.known.items() if name in dict(known.record.links)], seed
