"""One view of the network: each node's row from any node, over lines of any speed (docs/operations.md, "All nodes at
once"; ADR 0104)."""

from typing import Any

import pytest

from holdfast import __version__
from holdfast.amqp.wire.types import Ulong
from holdfast.management.network import view as views
from holdfast.management.network.node_row import OWED_MAX, PLACES_MAX, NodeRow, read, write
from support.hops import apart, names, send
from support.rig import Node, Rig
from support.routing import network

LINE = ("a-b", "b-c", "c-d")


def look(rig: Rig, node: Node, limit_s: float = 5.0) -> dict[str, dict[str, Any]]:
    """What the node answers, as soon as it does."""
    found: list[list[dict[str, Any]]] = []
    assert node.core is not None and node.core.view.ask("", limit_s, lambda rows, more: found.append(rows))
    node.due = True
    while not found:
        rig.run(0.1)
    assert not node.core.view.looks
    return {row["node"]: row for row in found[0]}


def test_each_node_tells_of_all() -> None:
    rig = Rig()
    nodes = _, _, _, d = network(rig, *LINE, supers=("a",))
    rig.run(3)
    send(rig, d, *names(1, 5), to="d")
    rig.run(2)
    for node in nodes:
        seen = look(rig, node)
        assert list(seen) == list("abcd")
        assert {row["state"] for row in seen.values()} == {"up"}
        assert seen["d"]["messages"] == 5 and seen["a"]["messages"] == 0
        assert 2 <= seen["d"]["oldest_s"] <= 10 and seen["a"]["oldest_s"] is None
        assert [seen[name]["sessions_up"] for name in "abcd"] == [1, 2, 2, 1]
        assert {row["version"] for row in seen.values()} == {__version__}
        assert all(row["room_bytes"] > 0 and row["age_s"] < 1 for row in seen.values())


def test_a_node_that_is_away_is_listed_with_what_it_said_last() -> None:
    rig = Rig()
    a, _, c, d = network(rig, *LINE, supers=("a",))
    rig.run(3)
    look(rig, a)
    c.crash()
    rig.refuse_dials = True
    apart(rig, "b", "c")
    apart(rig, "c", "d")
    send(rig, d, *names(1, 5), to="d")
    rig.run(30)
    seen = look(rig, a)
    assert seen["b"]["state"] == "up" and seen["b"]["age_s"] < 1
    for name in "cd":
        assert seen[name]["state"] in ("unreachable", "lost") and seen[name]["age_s"] >= 30
        assert seen[name]["messages"] == 0


def test_one_that_does_not_answer_holds_up_no_answer_and_is_not_asked_on_and_on() -> None:
    """As an earlier version, to which the question means nothing."""
    rig = Rig()
    a, b, *_ = network(rig, *LINE, supers=("a",))
    rig.run(3)
    assert b.core is not None
    heard = []
    b.core.control_kinds[views.ASK] = lambda neighbour, fields: heard.append(fields)
    before = rig.now
    for _ in range(3):
        seen = look(rig, a, limit_s=0.5)
        assert all(seen[name]["state"] == "up" and seen[name]["age_s"] is None for name in "bcd")
    assert rig.now - before < 2 and len(heard) == 1 and heard[0]["to"] == ["b", "c", "d"]
    rig.run(views.AGAIN_S)
    look(rig, a, limit_s=0.5)
    assert len(heard) == 2


def test_it_says_what_waits_for_a_drained_node() -> None:
    rig = Rig()
    a, b, c, _ = network(rig, *LINE, supers=("a",))
    rig.run(3)
    assert b.core is not None
    b.core.catalog.transmission("c").stopped = True
    send(rig, a, *names(1, 2), to="c")
    assert rig.client(c).manage("DRAIN", "node")[0] == 200
    rig.run(1)
    seen = look(rig, a)
    assert seen["b"]["owed"] == {"c": 2} and seen["b"]["in_transmission"] == 2 and not seen["d"]["owed"]
    assert seen["c"]["drained"] and not seen["b"]["drained"]


def test_rows_have_a_share_of_a_thin_line() -> None:
    """A line of 115,200 bit/s, of which rows have a tenth: 1,440 bytes a second."""
    rig = Rig()
    names_ = [f"n{number:02}" for number in range(60)]
    links = ("a-hub", *(f"hub-{name}" for name in names_))
    a, hub, *_ = network(rig, *links, supers=("hub",))
    rig.run(5)
    assert a.core is not None and hub.core is not None
    came: list[float] = []
    kept = a.core.control_kinds[views.ANSWER]

    def heard(neighbour: Any, fields: Any) -> None:
        came.append(rig.now)
        kept(neighbour, fields)

    a.core.control_kinds[views.ANSWER] = heard
    began = rig.now
    seen = look(rig, a, limit_s=1.0)
    assert sum(row["age_s"] is not None for row in seen.values()) < len(names_), "what has not come yet is told so"
    rig.run(20)
    assert len(came) == len(names_) + 1, "each node has answered once"
    assert came[-1] - began > 2, "they did not come all at once"
    assert not hub.core.view._lines, "nothing is kept of it"
    assert all(row["age_s"] is not None for row in look(rig, a, limit_s=0.1).values())


def test_a_page_has_so_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "NODES_MAX", 3)
    rig = Rig()
    a, *_ = network(rig, *LINE)
    rig.run(3)
    _, body, _ = rig.client(a).manage("NETWORK", "node")
    assert [row["node"] for row in body["nodes"]] == ["a", "b", "c"] and body["more"]
    _, body, _ = rig.client(a).manage("NETWORK", "node", after="c")
    assert [row["node"] for row in body["nodes"]] == ["d"] and not body["more"]


def test_at_most_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "ASKS_MAX", 0)
    rig = Rig()
    hub = rig.node("hub")
    assert rig.client(hub).manage("NETWORK", "node")[0] == 409


@pytest.mark.parametrize("arguments", [{"limit_s": 0.0}, {"limit_s": 61}, {"limit_s": "5"}, {"after": 7}])
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    rig = Rig()
    hub = rig.node("hub")
    assert rig.client(hub).manage("NETWORK", "node", **arguments)[0] == 400


ROW = NodeRow("1", 1, 2, 3, 4, None, 5, 6, 7, 8, 9, 10, 11, 3, {"x": 1})


def test_a_row_is_read_as_it_was_written() -> None:
    assert read(write(ROW)) == ROW
    assert read(write(ROW._replace(oldest_s=12, owed={}))) == ROW._replace(oldest_s=12, owed={})
    assert read([*write(ROW), "a newer node's"]) == ROW
    many = ROW._replace(owed={f"n{number}": number for number in range(OWED_MAX + 1)})
    assert len((read(write(many)) or ROW).owed) == OWED_MAX


@pytest.mark.parametrize("place", range(len(ROW)))
@pytest.mark.parametrize("value", [-1, 2**63, True, 1.5, "x" * 41, ["a"], ["$a", Ulong(1)], [None, None], b"", {}])
def test_a_wrong_place_makes_it_none(place: int, value: object) -> None:
    row = write(ROW)
    row[place] = value
    assert read(row) is None


@pytest.mark.parametrize("row", [None, [], "row", {}, write(ROW)[:-1], [*write(ROW), *[0] * PLACES_MAX]])
def test_what_is_no_row_is_none(row: object) -> None:
    assert read(row) is None


GOOD_ASK = {"kind": "view", "to": ["hub"], "trace": ["jfk"]}
GOOD_ROW = {"kind": "row", "way": ["hub"], "node": "jfk", "row": write(ROW)}


def say(rig: Rig, jfk: Node, fields: dict[str, Any]) -> None:
    """jfk says that to the hub."""
    assert jfk.core is not None
    jfk.core.neighbours["hub"].send(fields)
    jfk.due = True
    rig.settle()


@pytest.mark.parametrize(
    ("good", "key", "value"),
    [
        *[(GOOD_ASK, "to", value) for value in (None, [], ["$x"], [7], ["x"] * 101)],
        *[(GOOD_ASK, "trace", value) for value in (None, [], ["other"], ["hub", "jfk"], ["jfk"] * 300)],
        *[(GOOD_ROW, "way", value) for value in (None, [], ["other"], ["nobody", "hub"], ["jfk", "hub"])],
        *[(GOOD_ROW, "node", value) for value in (None, 7, "$x", "stranger")],
        (GOOD_ROW, "row", []),
    ],
)
def test_what_a_neighbour_says_wrong_is_dropped(good: dict[str, Any], key: str, value: object) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    assert hub.core is not None and jfk.core is not None
    hub.core.view._asked_at["jfk"] = rig.now
    say(rig, jfk, good | {key: value})
    assert jfk.core.neighbours["hub"].established and not hub.core.view._rows and not hub.core.view._lines
    say(rig, jfk, good)
    assert bool(hub.core.view._rows) is (good is GOOD_ROW)


def test_a_neighbour_that_asks_too_often_is_not_answered() -> None:
    rig = Rig()
    jfk, _hub = rig.pair()
    rig.run(1)
    assert jfk.core is not None
    came: list[Any] = []
    jfk.core.control_kinds[views.ANSWER] = lambda neighbour, fields: came.append(fields)
    for _ in range(150):
        say(rig, jfk, GOOD_ASK)
    assert len(came) == views.QUESTIONS_BURST
