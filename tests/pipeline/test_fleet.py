"""Calls to several nodes: whoever answers is not kept waiting, and whoever does not is away until it does."""

import threading
import time
from collections.abc import Callable

import pytest

from holdfast.errors import ConfigError
from pipeline.settled import LIMIT_S, SettledFleet
from pyspark_holdfast import fleet
from pyspark_holdfast.bus import NodeUnreachable
from pyspark_holdfast.fleet import Fleet


class Node:
    """Answers with its name, unless it is stuck or gone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.gone = False
        self.is_stuck = False
        self.go_on = threading.Event()
        self.go_on.set()

    def call(self) -> str:
        self.calls += 1
        self.is_stuck = not self.go_on.is_set()
        goes_on, self.is_stuck = self.go_on.wait(LIMIT_S), False
        if not goes_on or self.gone:
            raise NodeUnreachable(f"{self.name} does not answer")
        return self.name


def fleet_of(*nodes: Node, all_needed: bool = False, patience_s: float = LIMIT_S) -> Fleet[str]:
    def stuck() -> int:
        return sum(node.is_stuck for node in nodes)

    names = {node.name: node.name for node in nodes}
    return SettledFleet(names, all_needed=all_needed, patience_s=patience_s, stuck=stuck)


def asked(fleet: Fleet[str], *nodes: Node) -> list[str]:
    return sorted(fleet.each({node.name: node.call for node in nodes}).values())


@pytest.fixture
def a() -> Node:
    return Node("a")


@pytest.fixture
def b() -> Node:
    return Node("b")


def test_a_node_that_is_stuck_is_away_until_it_answers(a: Node, b: Node) -> None:
    both = fleet_of(a, b, patience_s=0.05)
    assert asked(both, a, b) == ["a", "b"]
    b.go_on.clear()
    assert asked(both, a, b) == ["a"]
    assert set(both.away) == {"b"}
    for _ in range(3):
        assert asked(both, a, b) == ["a"]
    assert b.calls == 2, "one call at a time"
    b.go_on.set()
    while both.away:  # the call that was stuck returns in a thread of its own
        assert asked(both, a, b) in (["a"], ["a", "b"])
    assert asked(both, a, b) == ["a", "b"]


def test_a_node_that_fails_is_called_again(a: Node, b: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "AGAIN_S", LIMIT_S)
    both = fleet_of(a, b)
    b.gone = True
    assert asked(both, a, b) == ["a"]
    assert both.away == {"b": "b does not answer"}
    assert asked(both, a, b) == ["a"]
    assert b.calls == 1, "not at once"
    monkeypatch.setattr(fleet, "AGAIN_S", 0.0)
    b.gone = False
    while asked(both, a, b) == ["a"]:
        pass  # nobody waits for one that is away
    assert not both.away


def test_where_all_are_away_the_first_to_answer_is_waited_for(a: Node, b: Node) -> None:
    both = fleet_of(a, b, patience_s=0.05)
    b.gone = True
    a.go_on.clear()
    threading.Timer(0.3, a.go_on.set).start()
    assert asked(both, a, b) == ["a"]
    assert set(both.away) == {"b"}


def test_those_that_are_away_are_waited_for_where_that_is_asked_for(a: Node, b: Node) -> None:
    both = fleet_of(a, b, patience_s=0.05)
    b.go_on.clear()
    assert asked(both, a, b) == ["a"]
    threading.Timer(0.3, b.go_on.set).start()
    calls = {node.name: node.call for node in (a, b)}
    assert sorted(both.each(calls, wait_s=LIMIT_S)) == ["a", "b"]
    b.go_on.clear()
    assert sorted(both.each(calls, wait_s=0.1)) == ["a"]
    b.go_on.set()


def test_where_none_answers_it_ends(a: Node, b: Node) -> None:
    a.gone = b.gone = True
    with pytest.raises(NodeUnreachable, match="a does not answer; b does not answer"):
        asked(fleet_of(a, b), a, b)
    with pytest.raises(NodeUnreachable, match="a does not answer"):
        asked(fleet_of(a), a)


def test_where_all_are_needed_one_that_is_gone_ends_it(a: Node, b: Node) -> None:
    b.gone = True
    with pytest.raises(NodeUnreachable, match="b does not answer"):
        asked(fleet_of(a, b, all_needed=True, patience_s=0), a, b)


def test_at_the_end_it_closes_until_no_call_is_under_way(a: Node, b: Node) -> None:
    """The first time the call that is stuck was only about to connect."""
    both = fleet_of(a, b, patience_s=0.05)
    b.go_on.clear()
    assert asked(both, a, b) == ["a"]
    closed: list[int] = []

    def close() -> None:
        closed.append(len(closed))
        if len(closed) == 3:
            b.go_on.set()

    both.end([close])
    assert closed == [0, 1, 2]
    assert not both._running


def test_at_the_end_a_call_that_cannot_be_ended_is_left(a: Node, b: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "ENDS_S", 0.2)
    both = fleet_of(a, b, patience_s=0.05)
    b.go_on.clear()
    assert asked(both, a, b) == ["a"]
    both.end([lambda: None])
    assert len(both._running) == 1
    b.go_on.set()


def test_any_other_error_ends_it(a: Node, b: Node) -> None:
    def refuse() -> str:
        raise ConfigError("no queue")

    calls: dict[str, Callable[[], str]] = {"a": a.call, "b": refuse}
    with pytest.raises(ConfigError, match="no queue"):
        fleet_of(a, b).each(calls)


def test_a_node_that_answers_slowly_one_request_after_the_other_is_waited_for(a: Node) -> None:
    """It has many queues, or is far away: what its call returns would otherwise never be of use."""
    answered_at = {"a": 0.0, "slow": 0.0}

    def slow() -> str:
        for _ in range(10):
            time.sleep(0.05)
            answered_at["slow"] = time.monotonic()
        return "slow"

    both = Fleet({"a": "a", "slow": "slow"}, all_needed=False, patience_s=0.3, answered_at=answered_at.__getitem__)
    assert sorted(both.each({"a": a.call, "slow": slow})) == ["a", "slow"]
    answered_at["slow"] = 0.0
    both = Fleet({"a": "a", "slow": "slow"}, all_needed=False, patience_s=0.3, answered_at=lambda key: 0.0)
    assert sorted(both.each({"a": a.call, "slow": slow})) == ["a"]
    both.end([])
