"""Routing on joined nodes: who learns of what, and which way messages go. esb-dynamic-routing §4."""

from support.hops import STRICT, apart, is_empty, names, send
from support.rig import Rig
from support.routing import agree, network, path, routes

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
