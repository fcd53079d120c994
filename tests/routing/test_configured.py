"""What a topology file says to one node, and what becomes of the table when it changes (routing/configured.py)."""

from holdfast.routing.configured import Configured, configured, file_changed, links_changed
from holdfast.routing.cost import MeasuredCost
from holdfast.routing.linkstate import LinkStates
from holdfast.routing.records import Known, Record
from holdfast.routing.topology import BANDWIDTH_BPS_DEFAULT, Topology, TopologyLink, TopologyNode
from support.routing import topology

ALL = frozenset("abcdx")


def of(told: Topology, name: str = "a", roles: tuple[str, ...] = ("client",)) -> Configured:
    return configured(name, roles, told, ALL)


def table(file: Configured, name: str = "a") -> LinkStates:
    return LinkStates(name, file.edges, supers=file.supers, records_max=3, neighbours_max=2)


def links(states: LinkStates) -> dict[str, dict[str, int | None]]:
    return {name: dict(known.record.links) for name, known in states.known.items()}


def test_a_node_has_the_links_that_lead_to_its_neighbours() -> None:
    told = topology("a-b", "a-c", "d>a", supers=("b",), costs={"a-b": 2.5})
    file = configured("a", ("client",), told, {"b", "d"})
    assert file.costs == file.edges["a"] == {"b": 2_500_000}, "c is no neighbour, and d's link leads only here"
    assert file.edges["c"] == {"a": 1_000_000} and file.numbers == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert file.bandwidths == {"b": BANDWIDTH_BPS_DEFAULT["serial"]}
    assert (file.supers, file.is_super) == (("b",), False)
    own = configured("a", ("super",), told, {"b"})
    assert (own.supers, own.is_super) == (("b", "a"), True), "its own file may say so where this one says nothing"


def test_the_new_file_speaks_for_who_has_said_nothing() -> None:
    states = table(of(topology("a-b", "b-c", "c-d")))
    states.put(Known(Record("c", 7, (("b", 9),))))
    after = of(topology("a-b", "b-x", "x-c", supers=("x",)))
    states.changed = False
    file_changed(states, after)
    assert links(states) == {
        "a": {"b": 1_000_000}, "b": {"a": 1_000_000, "x": 1_000_000}, "c": {"b": 9},
        "x": {"b": 1_000_000, "c": 1_000_000},
    }  # fmt: skip
    assert states.changed and states.known["x"].record.is_super
    assert states.digest == states.known["c"].digest, "nothing of the file is ever compared with a neighbour's table"


def test_who_has_spoken_stays_though_the_file_does_not_name_it() -> None:
    states = table(of(topology("a-b", "b-c")))
    states.put(Known(Record("c", 7, (("b", 1),))))
    file_changed(states, of(topology("a-b")))
    assert sorted(states.known) == ["a", "b", "c"]
    assert states.drop("c") is not None and "c" in states.dropped
    file_changed(states, of(topology("a-b", "b-c")))
    assert "c" not in states.dropped, "a node that the file names is never one that was forgotten"
    assert states.known["c"].record.version == 0


def test_a_record_whose_versions_were_reset_is_what_its_node_said_last() -> None:
    states = table(of(topology("a-b", "b-c")))
    states.put(Known(Record("b", 2**63 - 5, (("c", 9),))))
    assert states.void("b") and states.known["b"].record.version == 0
    file_changed(states, of(topology("a-b", "b-x")))
    assert links(states)["b"] == {"c": 9}
    file_changed(states, of(topology("a-x")))
    assert "b" in states.known


def test_a_larger_file_raises_the_bounds_and_a_smaller_one_leaves_them() -> None:
    states = table(of(topology("a-b")))
    file_changed(states, of(topology("a-b", "a-c", "a-d", "a-x")))
    assert (states.records_max, states.neighbours_max) == (5, 4)
    file_changed(states, of(topology("a-b")))
    assert (states.records_max, states.neighbours_max) == (5, 4), "records of others may be as large"


def test_a_measured_cost_stays_while_the_file_says_the_same_of_the_link() -> None:
    def file(**links: TopologyLink) -> Configured:
        nodes = tuple(TopologyNode(name=name, number=number) for number, name in enumerate("abcd"))
        return of(Topology(nodes, tuple(links.values())))

    ab = TopologyLink(from_="a", to="b", cost=1.0)
    ac = TopologyLink(from_="a", to="c", cost=2.0)
    ad = TopologyLink(from_="a", to="d", cost=3.0, bandwidth_bps=1_000)
    before = file(b=ab, c=ac, d=ad)
    costs = {"b": 5_000_000, "c": 6_000_000, "d": 7_000_000}
    measured = {name: MeasuredCost(1) for name in costs}
    wider = TopologyLink(from_="a", to="d", cost=3.0, bandwidth_bps=2_000)
    dearer = TopologyLink(from_="a", to="c", cost=4.0)
    links_changed(costs, measured, before, file(b=ab, c=dearer, d=wider))
    assert costs == {"b": 5_000_000, "c": 4_000_000, "d": 3_000_000} and list(measured) == ["b"]
    links_changed(costs, measured, file(b=ab, c=dearer, d=wider), file(c=dearer))
    assert costs == {"c": 4_000_000} and not measured
    links_changed(costs, measured, file(c=dearer), file(b=ab, c=dearer))
    assert costs == {"c": 4_000_000, "b": 1_000_000}
