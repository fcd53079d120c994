"""The receiver verifies a message's path by its trace (esb-dynamic-routing §4.4)."""

from typing import Any
from uuid import UUID

import pytest

from holdfast.custody.arrival import path_check as verification
from holdfast.custody.arrival.path_check import PathCheck
from holdfast.peering.routes import ASK_S
from holdfast.routing.records import Known, Record
from holdfast.telemetry.records import Paths
from support.hops import STRICT, apart, is_empty, names, reroute, send
from support.rig import Node, Rig
from support.routing import agree, network, path


class Table:
    """A table that is told what it answers; the store of number n is the n-th of its names."""

    def __init__(self, *names: str, shortest: dict[str, tuple[str, ...]]) -> None:
        self.version = 1
        self.names = {UUID(int=number): name for number, name in enumerate(names, 1)}
        self.shortest = shortest
        self.asked: list[str] = []
        self.looked_up = 0

    def knows(self, name: str) -> bool:
        return name in self.names.values()

    def name_of_store(self, store: UUID) -> str | None:
        self.looked_up += 1
        return self.names.get(store)

    def shortest_from(self, origin: str) -> tuple[str, ...] | None:
        return self.shortest.get(origin)

    def ask_sync(self, reason: str) -> None:
        self.asked.append(reason)


def at_d(table: Table | None) -> PathCheck:
    paths = PathCheck("d")
    if table is not None:
        paths.routed_by(table)
    return paths


def passed(*numbers: int) -> bytes:
    return b"".join(UUID(int=number).bytes for number in numbers)


def counts(found: Node | PathCheck) -> list[int]:
    """Shortest, other, unknown, loops."""
    if isinstance(found, PathCheck):
        told: dict[str, Any] = dict(found.status())
    else:
        told = found.rig.client(found).manage("STATUS", "node")[1]["paths"]
    return [told[key] for key in ("paths_shortest", "paths_other", "paths_unknown", "loops")]


def test_a_trace_is_looked_at_once_for_each_version_of_the_table() -> None:
    table = Table("a", "b", shortest={"a": ("a", "b", "d"), "b": ("b", "d")})
    paths = at_d(table)
    for _ in range(50):
        paths.arrived(passed(1, 2))
        paths.arrived(passed(2))
    assert counts(paths) == [100, 0, 0, 0] and table.looked_up == 3 and not table.asked
    table.version, table.shortest["a"] = 2, ("a", "d")
    paths.arrived(passed(1, 2))
    paths.arrived(passed(1, 2))
    assert counts(paths) == [100, 2, 0, 0] and table.looked_up == 5
    assert len(table.asked) == 2  # the table itself bounds how often it asks


@pytest.mark.parametrize(
    ("trace", "verdict"),
    [
        (passed(1, 2), [1, 0, 0, 0]),
        (passed(1), [0, 1, 0, 0]),
        (passed(1, 2, 1), [0, 1, 0, 0]),
        (passed(9, 2), [0, 0, 1, 0]),
        (passed(1, 9), [0, 0, 1, 0]),
        (passed(2), [0, 0, 1, 0]),
        (b"", [0, 0, 1, 0]),
    ],
)
def test_the_shortest_path_another_and_an_unknown_one(trace: bytes, verdict: list[int]) -> None:
    table = Table("a", "b", shortest={"a": ("a", "b", "d")})
    paths = at_d(table)
    paths.arrived(trace)
    assert counts(paths) == verdict and len(table.asked) == verdict[1]


def test_verdicts_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "TRACES_MAX", 2)
    table = Table(shortest={})
    paths = at_d(table)
    for number in range(5):
        paths.arrived(passed(number))
        assert len(paths._verdicts) <= 2
    assert counts(paths) == [0, 0, 5, 0] and table.looked_up == 5


# ------------------------------------------------------------------------------------------------ between nodes


def asked(node: Node) -> list[str]:
    return [line for line in node.logs if "synchronisation asked for" in line]


def test_between_nodes_that_compute_their_tables() -> None:
    rig = Rig()
    a, _, d, _ = nodes = network(rig, "a-b", "b-d", "d-c", "c-a", supers=("b",), d=STRICT)
    rig.run(3)
    assert path(a, "d") == "abd" and path(d, "a") == "dba"
    send(rig, a, *names(1, 50))
    assert counts(d) == [50, 0, 0, 0] and not asked(d)
    reroute(rig, a, b="b", c="c", d="c")  # not what the table of any node says
    send(rig, a, *names(51, 60))
    rig.run(1)
    assert d.bodies("work") == names(1, 60) and counts(d) == [50, 10, 0, 0]
    assert 1 <= len(asked(d)) <= 3 and "another path" in asked(d)[0]
    told = [fields for kind, fields in d.records if kind == "paths"]
    assert told[-1] == {"paths_shortest": 50, "paths_other": 10, "paths_unknown": 0, "loops": 0}
    assert Paths(**told[-1]).paths_other == 10 and len(nodes) == 4


@pytest.mark.parametrize("silent", [False, True])
def test_what_is_queued_when_a_link_dies_comes_by_another_path_and_later_all_by_the_shortest(silent: bool) -> None:
    """b has the messages when its link to d dies: they go on by c, a longer way than from a by c."""
    rig = Rig()
    a, b, d, _ = nodes = network(rig, "a-b", "b-d", "b-c", "a-c", "c-d", supers=("a",), d=STRICT)
    rig.run(3)
    assert path(a, "d") == "abd" and path(d, "a") == "dba"
    send(rig, a, *names(1, 10))
    assert counts(d) == [10, 0, 0, 0] and not asked(d)
    apart(rig, "b", "d", silent=True)  # until b notices, all for d gathers there
    b.core.neighbours["d"].dial_at = None
    rig.refuse_dials = True
    send(rig, a, *names(11, 40))
    assert d.bodies("work") == names(1, 10) and b.queue("@d").messages == 30
    if not silent:
        for wire in rig.between("b", "d"):
            for end in wire.ends:
                end.lose("cut")
    began = rig.now
    rig.run(10)
    assert agree(*nodes) and path(a, "d") == "acd" and path(b, "d") == "bcd"
    assert d.bodies("work") == names(1, 40) and is_empty(*nodes)
    assert counts(d) == [10, 30, 0, 0]
    assert 1 <= len(asked(d)) <= (rig.now - began) / ASK_S + 1
    were_asked = len(asked(d))
    send(rig, a, *names(41, 60))
    rig.run(3)
    assert d.bodies("work") == names(1, 60) and counts(d) == [30, 30, 0, 0] and len(asked(d)) == were_asked
    assert [counts(node)[3] for node in nodes] == [0, 0, 0, 0]  # nothing went round
    rig.refuse_dials = False
    for neighbour in (b.core.neighbours["d"], d.core.neighbours["b"]):
        neighbour.dial_at = rig.now
        neighbour.stir()
    rig.run(10)
    assert path(a, "d") == "abd"
    send(rig, a, *names(61, 70))
    assert d.bodies("work") == names(1, 70) and counts(d) == [40, 30, 0, 0] and not a.core.losses


def test_a_path_that_the_table_does_not_have_mends_the_table() -> None:
    """A table that lost a record without anybody knowing: the first message gives it away, not the third heartbeat."""
    rig = Rig()
    a, _, d, _ = nodes = network(rig, "a-b", "b-d", "a-c", "c-d", supers=("a",), d=STRICT)
    rig.run(3)
    states = d.core.routing.states
    good = states.known["b"].record
    dear = tuple((to, 7_000_000) for to, _ in good.links)
    states.put(Known(Record("b", 1, dear, good.store)))
    d.core.routing.wake()
    d.due = True
    rig.settle()
    assert not agree(*nodes) and d.core.routing.shortest_from("a") == ("a", "c", "d")
    before = rig.now
    send(rig, a, "1")
    assert counts(d) == [0, 1, 0, 0] and len(asked(d)) == 1 and rig.now == before
    assert agree(*nodes) and states.known["b"].record == good
    send(rig, a, "2")
    assert counts(d) == [1, 1, 0, 0] and len(asked(d)) == 1


def test_a_copy_counts_once() -> None:
    rig = Rig()
    a, b, d = network(rig, "a-b", "b-d", supers=("b",), d=STRICT)
    rig.run(3)
    d.hold_commits = True
    send(rig, a, *names(1, 20))
    b.crash()
    b.start()
    d.hold_commits = False
    rig.run(5)
    assert d.bodies("work") == names(1, 20) and counts(d) == [20, 0, 0, 0]


def test_without_a_topology_nothing_is_verified() -> None:
    rig = Rig()
    a, _, d = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    send(rig, a, "1")
    assert counts(d) == [0, 0, 0, 0] and not [kind for kind, _ in d.records if kind == "paths"]


def test_what_comes_back_is_counted_and_synchronisation_asked_for() -> None:
    rig = Rig()
    a, b, d = network(rig, "a-b", "b-d", supers=("b",), d=STRICT)
    rig.run(3)
    reroute(rig, b, a="a", d="a")  # stale, as no table is
    send(rig, a, *names(1, 5))
    assert counts(a) == [0, 0, 0, 5] and len(asked(a)) == 1 and "came back by 'b'" in asked(a)[0]
    reroute(rig, b, a="a", d="d")
    rig.run(3)
    assert d.bodies("work") == names(1, 5)
