"""The topology file's nodes and links: what arrives, what is refused and how, what a link costs."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.names import HostPort
from holdfast.routing import topology as module
from holdfast.routing.topology import Topology, TopologyLink, TopologyNode, topology_of, warnings

NODES = '[[node]]\nname = "a"\n[[node]]\nname = "b"\n[[node]]\nname = "c"\n'


def of(text: str) -> Topology:
    return topology_of(tomllib.loads(text))


def link(text: str) -> str:
    return f'{NODES}[[link]]\nfrom = "a"\nto = "b"\n{text}'


def test_every_key_arrives() -> None:
    found = of(
        """
        [[node]]
        name = "hub"
        number = 7
        address = "10.0.0.1:5672"
        roles = ["super", "client"]

        [[node]]
        name = "ewr"

        [[link]]
        from = "hub"
        to = "ewr"
        cost = 2.5
        kind = "serial"
        bandwidth_bps = 9600
        distance_km = 30
        direction = "one"
        """
    )
    assert found.nodes == (
        TopologyNode(name="hub", number=7, address=HostPort("10.0.0.1", 5672), roles=("super", "client")),
        TopologyNode(name="ewr", number=2),
    )
    assert found.links == (
        TopologyLink(
            from_="hub", to="ewr", kind="serial", direction="one", bandwidth_bps=9600, distance_km=30, cost=2.5
        ),
    )
    assert found.edges() == {"hub": {"ewr": 2_500_000}, "ewr": {}}
    assert found.node("ewr") is found.nodes[1] and found.node("x") is None
    assert found.links_of("ewr") == [found.links[0]] and found.supers() == [found.nodes[0]]


def test_what_joins_two_nodes_is_their_first_link_whatever_its_direction() -> None:
    nodes = "".join(f'[[node]]\nname = "{name}"\n' for name in "abc")
    found = of(
        nodes + '[[link]]\nfrom = "b"\nto = "a"\ndirection = "one"\nkind = "serial"\n'
        '[[link]]\nfrom = "a"\nto = "b"\ndirection = "one"\n[[link]]\nfrom = "b"\nto = "c"\n'
    )
    assert found.link_between("a", "b") is found.link_between("b", "a") is found.links[0]
    assert (found.kind_between("a", "b"), found.kind_between("c", "b")) == ("serial", "tcp")
    assert found.link_between("a", "c") is None is found.kind_between("a", "x")


def test_numbers_are_places_where_none_is_given() -> None:
    found = of('[[node]]\nname = "z"\n[[node]]\nname = "a"\nnumber = 0\n[[node]]\nname = "m"\n')
    assert [node.number for node in found.nodes] == [1, 0, 3]


def test_super_nodes_stand_by_number() -> None:
    text = "".join(f'[[node]]\nname = "{name}"\nnumber = {n}\nroles = ["super"]\n' for name, n in (("a", 9), ("b", 3)))
    assert [node.name for node in of(text).supers()] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "cost_micro"),
    [
        ("", 1_081_920),  # 1 + 8,192,000 / 100 Mbit/s
        ('kind = "tls"', 1_081_920),
        ('kind = "serial"', 72_111_111),  # 1 + 8,192,000 / 115,200
        ("bandwidth_bps = 8_192_000", 2_000_000),
        ("distance_km = 200", 2_081_920),
        ('kind = "serial"\nbandwidth_bps = 8_192_000\ndistance_km = 0.5', 2_002_500),
        ("cost = 3", 3_000_000),
        ("cost = 0.1\nbandwidth_bps = 1", 100_000),
        ("cost = 0.000001", 1),
        ("cost = 1_000_000_000", 10**15),
    ],
)
def test_what_a_link_costs(text: str, cost_micro: int) -> None:
    found = of(link(text))
    assert found.links[0].cost_micro == cost_micro
    assert found.edges() == {"a": {"b": cost_micro}, "b": {"a": cost_micro}, "c": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no [[node]]; add at least one"),
        ("node = 1", "invalid value 1 for node; expected a list of tables, [[node]]"),
        ("node = [1]", "invalid value [1] for node; expected a list of tables, [[node]]"),
        ('[node]\nname = "a"', "invalid value { name = 'a' } for node; expected a list of tables, [[node]]"),
        (NODES + "[[links]]", "unknown key 'links'; expected one of [[node]], [[link]]"),
        ("[[node]]\nnumber = 1", "node number 1 has no name; expected"),
        ("[[node]]\nname = 1", "invalid value 1 for node number 1 name; expected text in quotes"),
        ('[[node]]\nname = ""', "invalid value '' for node number 1 name; expected text in quotes"),
        ('[[node]]\nname = "a@b"', "invalid name 'a@b'; expected 1 to 200 bytes"),
        (
            '[[node]]\nname = "a"\nweight = 1',
            "unknown key 'weight' in node 'a'; expected one of name, number, address, roles",
        ),
        ('[[node]]\nname = "a"\nnumber = -1', "invalid value -1 for node 'a' number; expected a whole number, 0 to"),
        ('[[node]]\nname = "a"\nnumber = 4294967296', "invalid value 4294967296 for node 'a' number"),
        ('[[node]]\nname = "a"\nnumber = true', "invalid value true for node 'a' number"),
        (
            '[[node]]\nname = "a"\nroles = ["boss"]',
            "invalid value ['boss'] for node 'a' roles; expected a list of client, root",
        ),
        (
            '[[node]]\nname = "a"\nroles = []',
            "invalid value [] for node 'a' roles; expected a list of client, root, super, at",
        ),
        ('[[node]]\nname = "a"\nroles = ["root", "root"]', "node 'a' has a role twice; list each once"),
        ('[[node]]\nname = "a"\naddress = "h"', "invalid value 'h' for node 'a' address; expected HOST:PORT"),
        ('[[node]]\nname = "a"\naddress = "h:0"', "invalid port 0 for node 'a' address; expected 1 to 65535"),
        ('[[node]]\nname = "a"\n[[node]]\nname = "a"', "node 'a' is listed twice; list it once"),
        (
            '[[node]]\nname = "a"\nnumber = 2\n[[node]]\nname = "b"',
            "node 'b' has number 2, which node 'a' has too; give each its own",
        ),
        (NODES + '[[link]]\nfrom = "a"', "link number 1 has no to; expected the name of a [[node]]"),
        (NODES + '[[link]]\nto = "a"', "link number 1 has no from; expected"),
        (
            NODES + '[[link]]\nfrom = "a"\nto = "x"',
            "invalid value 'x' for link 'a' to 'x' to; expected the name of a [[node]]",
        ),
        (
            NODES + '[[link]]\nfrom = "x"\nto = "a"',
            "invalid value 'x' for link 'x' to 'a' from; expected the name of a",
        ),
        (NODES + '[[link]]\nfrom = "a"\nto = "a"', "link 'a' to 'a' begins and ends at the same node; give it two"),
        (
            link("weight = 1"),
            "unknown key 'weight' in link 'a' to 'b'; expected one of from, to, cost, kind, bandwidth_bps",
        ),
        (link("cost = 0"), "invalid value 0 for link 'a' to 'b' cost; expected a number, 0.000001 to 1,000,000,000"),
        (link("cost = -1"), "invalid value -1 for link 'a' to 'b' cost"),
        (link("cost = 0.0000001"), "invalid value 1e-07 for link 'a' to 'b' cost"),
        (link("cost = 1_000_000_001"), "invalid value 1000000001 for link 'a' to 'b' cost"),
        (link("cost = nan"), "invalid value nan for link 'a' to 'b' cost"),
        (link("cost = inf"), "invalid value inf for link 'a' to 'b' cost"),
        (link("cost = true"), "invalid value true for link 'a' to 'b' cost"),
        (link("cost = 1" + "0" * 400), "invalid value of more than 60 digits for link 'a' to 'b' cost"),
        (link('cost = "1"'), "invalid value '1' for link 'a' to 'b' cost"),
        (link('kind = "radio"'), "invalid value 'radio' for link 'a' to 'b' kind; expected one of tcp, tls, serial"),
        (
            link("bandwidth_bps = 0"),
            "invalid value 0 for link 'a' to 'b' bandwidth_bps; expected a whole number above 0",
        ),
        (link("bandwidth_bps = 1.5"), "invalid value 1.5 for link 'a' to 'b' bandwidth_bps"),
        (
            link("distance_km = -1"),
            "invalid value -1 for link 'a' to 'b' distance_km; expected a number of kilometres, 0 to 1,000,000,000",
        ),
        (link("distance_km = nan"), "invalid value nan for link 'a' to 'b' distance_km"),
        (link('direction = "back"'), "invalid value 'back' for link 'a' to 'b' direction; expected one of both, one"),
        (link('[[link]]\nfrom = "a"\nto = "b"'), "link 'a' to 'b' is listed twice; list it once in each direction"),
        (link('[[link]]\nfrom = "b"\nto = "a"'), "link 'b' to 'a' is listed twice (as the way back of link 'a' to 'b'"),
        (link('[[link]]\nfrom = "b"\nto = "a"\ndirection = "one"'), "link 'b' to 'a' is listed twice"),
        (link('direction = "one"\n[[link]]\nfrom = "b"\nto = "a"'), "link 'b' to 'a' is listed twice"),
    ],
)
def test_a_mistake_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_one_way_links_may_make_a_pair_of_two_costs() -> None:
    both = 'direction = "one"\ncost = 1\n[[link]]\nfrom = "b"\nto = "a"\ndirection = "one"\ncost = 2'
    assert of(link(both)).edges() == {"a": {"b": 1_000_000}, "b": {"a": 2_000_000}, "c": {}}


@pytest.mark.parametrize(("what", "bound"), [("node", "NODES_MAX"), ("link", "LINKS_MAX")])
def test_bounds_of_counts(what: str, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, bound, 3)
    nodes: list[dict[str, Any]] = [{"name": f"n{number}"} for number in range(3 if what == "node" else 5)]
    links = [{"from": "n0", "to": f"n{number}"} for number in range(1, len(nodes))][:3]
    document = {"node": nodes, "link": links}
    assert len(topology_of(document).nodes) == len(nodes)
    document[what] = [*document[what], {"name": "more"} if what == "node" else {"from": "n3", "to": "n4"}]
    with pytest.raises(ConfigError, match=rf"there are 4 \[\[{what}\]\] tables; the limit is 3"):
        topology_of(document)
    full = Topology(
        tuple(TopologyNode(name=f"n{number}", number=number) for number in range(4 if what == "node" else 5)),
        tuple(TopologyLink(from_="n0", to=f"n{number}") for number in range(1, 4 if what == "node" else 5)),
    )
    with pytest.raises(ConfigError, match=rf"there are 4 \[\[{what}\]\] tables"):
        full.validate()


def test_what_toml_can_hold_is_accepted_or_refused_in_a_line() -> None:
    keys = ["name", "number", "address", "roles", "from", "to", "cost", "kind", "bandwidth_bps", "distance_km", "x"]
    plain = st.text() | st.integers() | st.floats() | st.booleans() | st.sampled_from(["a", "b", "super", "tls", 2**99])
    value = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(), plain, max_size=2)
    tables = st.lists(st.dictionaries(st.sampled_from(keys), value), max_size=3)

    @given(tables, tables)
    def check(nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> None:
        named = [{"name": "a"}, {"name": "b"}, *nodes]
        joined = [{"from": "a", "to": "b", **table} for table in links]
        try:
            topology_of({"node": named, "link": joined}).edges()
        except ConfigError as error:
            assert "\n" not in str(error)

    check()


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([("a", "b", "both"), ("b", "c", "both")], []),
        ([("a", "b", "one"), ("b", "c", "one"), ("c", "a", "one")], []),
        ([("a", "b", "both")], ["node 'c': cannot be reached from 'a'", "node 'c': cannot reach 'a'"]),
        ([("a", "b", "both"), ("a", "c", "one")], ["node 'c': cannot reach 'a'"]),
        ([("a", "b", "both"), ("c", "a", "one")], ["node 'c': cannot be reached from 'a'"]),
    ],
)
def test_warnings_say_who_is_cut_off(links: list[tuple[str, str, str]], said: list[str]) -> None:
    nodes = tuple(
        TopologyNode(name=name, number=place, roles=("super",) if name == "a" else ())
        for place, name in enumerate("cba")
    )
    topology = Topology(nodes, tuple(TopologyLink(from_=f, to=t, direction=d) for f, t, d in links))
    topology.validate()
    assert warnings(topology) == said


def test_warnings_name_a_few_and_miss_a_super_node() -> None:
    topology = Topology(tuple(TopologyNode(name=f"n{place:02}", number=place) for place in range(14)), ())
    told = warnings(topology)
    assert 'no node with the role "super"' in told[0]
    assert told[1].startswith("node 'n01', 'n02'") and "'n10' and 3 more: cannot be reached from 'n00'" in told[1]
