"""What nodes believe of each other is compared with what is (holdfast_lab/judge/beliefs.py)."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_lab.base.client_history import Violation
from holdfast_lab.judge.beliefs import check_beliefs


def core(neighbour: str, *, stalled: bool, believed: bool, established: bool = True) -> Any:
    session = SimpleNamespace(established=established)
    disk = SimpleNamespace(takes_nothing=stalled, stalled_at=lambda asked: believed and asked is session)
    return SimpleNamespace(neighbours={neighbour: session}, disk=disk)


@pytest.mark.parametrize("stalled", [False, True])
def test_nodes_that_agree_are_well(stalled: bool) -> None:
    check_beliefs({"a": core("b", stalled=False, believed=stalled), "b": core("a", stalled=stalled, believed=False)})


@pytest.mark.parametrize(("stalled", "words"), [(False, "stalled"), (True, "working")])
def test_a_node_that_was_not_told_is_found(stalled: bool, words: str) -> None:
    nodes = {"a": core("b", stalled=False, believed=not stalled), "b": core("a", stalled=stalled, believed=False)}
    with pytest.raises(Violation, match=f"a takes the disk of b for {words}"):
        check_beliefs(nodes)


def test_nodes_without_a_session_believe_what_they_like() -> None:
    down = core("b", stalled=False, believed=True, established=False)
    check_beliefs({"a": down, "b": core("a", stalled=False, believed=False)})
    check_beliefs({"a": core("b", stalled=False, believed=True)})
