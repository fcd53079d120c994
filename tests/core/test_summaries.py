"""Summaries and answers between neighbours that compute routes: in order, within bounds. docs/routing.md."""

from holdfast.amqp.wire.types import Ulong
from holdfast.peering.routes import ANSWERS, ASK_S, EARLY_MAX, EARLY_ROWS_MAX
from holdfast.routing.linkstate import SUMMARY_ROWS_MAX
from support.rig import Rig
from support.routing import core_routes, network


def test_a_summary_of_a_session_that_is_over_does_not_come_before_that_of_the_next() -> None:
    """A neighbour that dies again and again before its session counts for routing: the last word is kept, bounded."""
    rig = Rig()
    a, _ = network(rig, "a-b", supers=("a",))
    rig.run(3)
    routes, neighbour = core_routes(a), a.core.neighbours["b"]
    routes.link_down(neighbour)
    row = ["c", Ulong(1), Ulong(2), Ulong(0)]
    told = {"kind": "known", "rows": [row], "first": True, "last": True, "ask": False}
    for version in range(1, 100):
        routes._on_known(neighbour, told | {"rows": [["c", Ulong(version), Ulong(2), Ulong(0)]]})
    rest = {"kind": "known", "rows": [row] * SUMMARY_ROWS_MAX, "first": False, "last": True, "ask": False}
    for _ in range(100):
        routes._on_known(neighbour, rest)
    kept = routes._early["b"]
    assert kept[0]["rows"][0][1] == 99 and sum(len(message["rows"]) for message in kept) <= EARLY_ROWS_MAX
    routes._on_known(neighbour, told)
    routes.link_up(neighbour)
    assert routes.states.told["b"].editions["c"].version == 1


def test_of_an_early_summary_no_more_is_kept_than_is_understood() -> None:
    """A neighbour says what it likes, as often as it likes, before its session is up."""
    rig = Rig()
    a, _ = network(rig, "a-b", supers=("a",))
    rig.run(3)
    routes, neighbour = core_routes(a), a.core.neighbours["b"]
    routes.link_down(neighbour)
    row = ["c", Ulong(7), Ulong(2), Ulong(0)]
    told = {
        "kind": "known",
        "rows": [[*row, "x" * 10_000], "y" * 10_000, ["z" * 10_000, 1, 2, 3]],
        "more": bytes(10_000),
    }
    for _ in range(1_000):
        routes._on_known(neighbour, told)
    kept = routes._early["b"]
    assert len(kept) == EARLY_MAX
    assert all(item == {"rows": [row], "first": False, "last": False, "ask": False} for item in kept)
    routes._on_known(neighbour, told | {"first": True, "last": True})
    assert len(kept) == 1
    routes.link_up(neighbour)
    assert routes.states.told["b"].editions["c"].version == 7


def test_a_summary_longer_than_the_credit_goes_on_where_it_stopped() -> None:
    rig = Rig()
    a, _ = network(rig, "a-b", supers=("a",))
    rig.run(3)
    routes, neighbour = core_routes(a), a.core.neighbours["b"]
    rows = [["x", Ulong(1), Ulong(2), Ulong(0)]]
    routes.states.summary = lambda: [rows] * 300  # type: ignore[method-assign]  # more than a link has credit for
    said: list[dict[str, object]] = []
    credit = 100

    def send(fields: dict[str, object], **_: object) -> bool:
        if fields["kind"] == "known":
            if len(said) >= credit:
                return False
            said.append(fields)
        return True

    neighbour.send = send  # type: ignore[method-assign]
    routes._untold["b"] = True
    for credit in (100, 200, 300):
        routes.wake()
        routes.tick(rig.now)
        assert len(said) == credit
    assert [place for place, fields in enumerate(said) if fields["first"]] == [0]
    assert [place for place, fields in enumerate(said) if fields["last"]] == [299]
    assert not routes._untold and not routes._telling


def test_who_asks_for_everything_in_many_names_is_answered_as_often_as_anybody() -> None:
    rig = Rig()
    a, _ = network(rig, "a-b", supers=("a",), routing={"records_max": 10})
    rig.run(3)
    routes = core_routes(a)
    assert routes.may_answer("all", "b")
    for number in range(1_000):
        routes.may_answer("resync", f"n{number}")
        assert not routes.may_answer("all", "b")
    assert len(routes._answered) == ANSWERS * 10
    rig.run(ASK_S)
    assert routes.may_answer("all", "b") and len(routes._answered) == 1
