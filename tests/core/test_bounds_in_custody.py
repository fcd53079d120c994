"""Bounds of what custody keeps of other nodes: at each, and one past it (docs/adr/0027)."""

from uuid import UUID

import pytest

from holdfast.custody import departed, forwarding, receipts
from holdfast.custody.hop import links as hop_links
from holdfast.custody.hop import sender
from holdfast.custody.hop.links import KEY_BYTES_MAX, hop_key
from holdfast.settings.limits import Limits
from support.hops import STRICT, held, is_empty, names, reroute, send
from support.rig import Node, Rig


def test_a_hop_whose_names_are_too_long_for_a_key_has_one_all_the_same() -> None:
    """And one of its own."""
    fits = hop_key("n" * 200, "d" * (KEY_BYTES_MAX - 201))
    assert len(fits) == KEY_BYTES_MAX and fits.startswith(b"nnn") and fits.endswith(b"ddd")
    long = [hop_key("n" * 200, "d" * (KEY_BYTES_MAX - 200)), hop_key("n" * 201, "d" * (KEY_BYTES_MAX - 201))]
    assert len({*long}) == 2 and all(len(key) == 32 for key in long)
    assert hop_key("nä", "d") == "nä\0d".encode()


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("bound", [3, 5, 9])
def test_of_what_comes_back_so_much_is_held_and_the_rest_goes_no_further(
    monkeypatch: pytest.MonkeyPatch, bound: int, together: bool
) -> None:
    """a and b route to d by each other. No more is sent to be returned, and all of it comes once a route is right."""
    monkeypatch.setattr(forwarding, "HELD_MAX", bound)
    monkeypatch.setattr(sender, "HELD_MAX", bound)
    rig = Rig()
    a, b, d = rig.graph(
        "a-b",
        "b-d",
        routes={"a": {"d": "b"}, "b": {"d": "a"}},
        d=STRICT,
        a={"limits": Limits(credit=20 if together else 2)},
    )
    rig.run(2)
    b.hold_commits = together  # then all of it is under way before any comes back
    for first in (1, 4, 7):
        send(rig, a, *names(first, first + 2))
        rig.run(0.2)
    b.hold_commits = False
    rig.run(0.2)
    assert held(a) == min(bound, 9)
    assert sum(node.queue("@d").messages for node in (a, b)) >= 9
    reroute(rig, b, d="d")
    rig.run(130)
    assert d.bodies("work") == names(1, 9) and is_empty(a, b, d)


def neighbours() -> tuple[Rig, Node, receipts.Receipts]:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    assert jfk.core is not None
    return rig, jfk, jfk.core.forwarding.receipts


def test_of_who_brought_what_the_oldest_is_forgotten_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what its neighbour was told of it: it is learnt, and told, anew."""
    monkeypatch.setattr(receipts, "PAIRS_MAX", 2)
    _, jfk, known = neighbours()
    assert jfk.core is not None
    hop = jfk.core.next_hops["hub"]
    one, two, three = (UUID(int=number) for number in (1, 2, 3))
    for origin in (one, two):
        known.brought_by(origin, "far", "hub")
        hop.told["far", origin] = 5
    ways = known.ways
    known.brought_by(two, "far", "hub")
    assert known.ways == ways, "nothing new"
    assert [*known.brought] == [*hop.brings] == [(one, "far"), (two, "far")]
    known.brought_by(three, "far", "hub")
    assert [*known.brought] == [*hop.brings] == [(two, "far"), (three, "far")]
    assert [*hop.told] == [("far", two)] and known.ways > ways


def test_of_words_that_passed_the_oldest_is_forgotten_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "PAIRS_MAX", 2)
    rig, jfk, known = neighbours()
    assert jfk.core is not None
    passing = jfk.core.catalog.ledger.passing
    one, two, three = (UUID(int=number) for number in (1, 2, 3))
    for origin, mark in ((one, 5), (two, 6), (one, 7), (one, 6)):
        known.note(origin, "far", mark)
    assert passing == {(one, "far"): 7, (two, "far"): 6}
    known.note(three, "far", 1)
    assert passing == {(two, "far"): 6, (three, "far"): 1}
    assert known.receipt_for(three.bytes, "far") == 1 and known.receipt_for(one.bytes, "far") == 0
    rig.settle()


@pytest.mark.parametrize(("bound", "begun"), [(2, 2), (3, 3), (9, 5)])
def test_a_node_begins_so_many_sessions_on_one_connection(
    monkeypatch: pytest.MonkeyPatch, bound: int, begun: int
) -> None:
    """A link each is all that they take; the destinations beyond that take turns, and each is served."""
    monkeypatch.setattr(hop_links, "SESSIONS_MAX", bound)
    rig = Rig()
    behind = ["d0", "d1", "d2", "d3"]
    jfk, hub, far = rig.graph(
        "jfk-hub",
        "hub-far",
        routes={"jfk": dict.fromkeys(behind, "hub"), "hub": dict.fromkeys(behind, "far")},
        hub={"limits": Limits(session_links_max=1)},
    )
    far.crash()
    rig.run(1)
    for name in behind:
        send(rig, jfk, "1", to=name)
    rig.run(0.1)
    assert jfk.core is not None and len(jfk.core.next_hops["hub"].links.sessions) == begun
    rig.run(30)
    assert [hub.bodies(f"@{name}") for name in behind] == [["1"]] * 4


@pytest.mark.parametrize(("bound", "told"), [(2, 2), (3, 3), (4, 3)])
def test_of_nodes_that_nothing_is_known_of_so_many_are_told(
    monkeypatch: pytest.MonkeyPatch, bound: int, told: int
) -> None:
    """In the log as they come, and by what `status` warns of; the messages for the others are kept as well."""
    monkeypatch.setattr(departed, "ORPHANS_TOLD_MAX", bound)
    rig = Rig()
    node = rig.node("hub", unknown_destination="keep")
    strangers = ["x1", "x2", "x3"]
    for name in strangers:
        send(rig, node, "1", to=name)
    rig.run(30)
    assert node.core is not None
    assert [name for name, _ in node.core.departures.waiting()] == strangers[:told]
    lines = [line for line in node.logs if any(f"'{name}'" in line for name in strangers)]
    assert len(lines) == told, node.logs
    assert [node.bodies(f"@{name}") for name in strangers] == [["1"]] * 3
