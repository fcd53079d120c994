"""Static entries, and who has delivered a message."""

from holdfast.broker.entries.annotate import TAGS_MAX
from holdfast.federation.federation import Federation
from holdfast.federation.parents import Routes, parents, reached
from holdfast.federation.relaying import tagged
from holdfast.federation.rows import RELAY, WIDE, Row, Stamp
from holdfast.federation.sets import Key, changed, make, substitute
from holdfast.federation.settings import Entry


def test_tags_are_bounded() -> None:
    tags: tuple[str, ...] = ()
    for number in range(TAGS_MAX + 1):
        tags = tagged(tags, f"n{number}")
    assert len(tags) == TAGS_MAX
    assert "n0" not in tags
    assert tagged(tags, "n1") == tags


def test_patterns_of_static_entries_are_rows_of_the_nodes_own() -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry("t", "b", "static", ("x.*",)), Entry("t", "c", "push"), Entry("t", "d")], 0.0)
    held = node.sets.current(Key("a", "t"))
    assert held is not None
    assert held.rows == {Row("x.*", None, RELAY), Row("#", None, RELAY)}
    assert held.edges == {"d"}
    assert node.choose("t", "x.y").relays == ("b", "c")
    assert node.choose("t", "z").relays == ("c",)
    assert node.choose("t", "z", tags=("c",)).relays == ()
    assert node.choose("t", "z", tags=("q",)).tags == ("q", "a")


def test_who_has_delivered_a_message_is_not_chosen_for_it_again() -> None:
    node = Federation("a", 1, 0.0)
    for origin in "bc":
        node.sets.put(Key(origin, "t"), make(Stamp(1, 1), [Row("#")], ()))
    assert node.choose("t", "x").branches == ("b", "c")
    assert node.choose("t", "x", tags=("c", "q")).branches == ("b",)
    assert node.choose("t", "x", anew=False).branches == ()


def test_a_message_is_passed_on_where_a_node_may_have_static_entries() -> None:
    """Summaries and `#` in place of a set do not tell whether it has."""
    node, key = Federation("a", 1, 0.0), Key("b", "t")
    for rows, expected in (
        ([Row("#")], False),
        ([Row("#"), Row("#", None, RELAY)], True),
        ([Row("x.*", None, WIDE)], True),
    ):
        node.sets.put(key, make(Stamp(1, 1), rows, ()))
        assert node.choose("t", "x.y").is_passed_on is expected
    node.sets.put(key, substitute(Stamp(1, 2), frozenset(), 7))
    assert node.choose("t", "x").is_passed_on
    node.sets.put(
        key,
        changed(
            make(Stamp(1, 1), [Row("#", None, RELAY)], ()),
            Stamp(1, 2),
            add=[Row("x")],
            remove=[Row("#", None, RELAY)],
            edges=frozenset(),
        ),
    )
    assert not node.choose("t", "x").is_passed_on
    node.configure([Entry("t", "c", "push")], 0.0)
    assert node.choose("t", "x").is_passed_on and not node.choose("t", "x", tags=("b", "c")).is_passed_on


def test_a_parent_is_on_the_way_with_the_fewest_hops_then_the_lowest_cost_then_the_lowest_name() -> None:
    edges = {"a": "bcd", "b": "x", "c": "x", "d": "y", "y": "x", "x": ""}
    up = {start: dict.fromkeys(ends, 10) for start, ends in edges.items()}
    assert parents("a", edges, Routes(up))["x"] == "b"
    up["b"]["x"] = 11
    assert parents("a", edges, Routes(up))["x"] == "c"
    up["a"]["d"] = up["d"]["y"] = up["y"]["x"] = 1
    assert parents("a", edges, Routes(up))["x"] == "c"  # one hop less
    del up["a"]["b"], up["a"]["c"]
    assert parents("a", edges, Routes(up))["x"] == "d"
    assert reached("a", edges) == set("bcdxy")
    assert parents("x", edges, Routes(up)) == {}
