"""When a simulated node's invariants are checked: now and then, around faults, and at the end of a run (ADR 0020)."""

from collections import Counter
from typing import Any

import pytest

from holdfast.core.node import NodeCore
from holdfast.engine.events import CommitRefused, ConnectFailed, ConnectionLost, Event, ForwardingChanged, TurnEnded
from holdfast.errors import BrokenInvariant
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.sim_faults import Faults
from holdfast_lab.sim import node as sim_node

FAULTS = (
    Fault(kind="refusing-disk", at=0.3, node="fra", seconds=0.5),
    Fault(kind="cut", at=0.5, link=("ber", "fra")),
    Fault(kind="re-route", at=0.9, link=("ber", "fra"), seconds=0.2),
    Fault(kind="crash", at=1.5, node="fra", seconds=0.5),
)
RARE = (CommitRefused, ConnectFailed, ConnectionLost, ForwardingChanged)
Seen = list[tuple[NodeCore, str]]


def run() -> Any:
    told = (
        {"kind": "publish", "node": "ber", "address": "work@fra", "messages": 60, "rate": 30.0},
        {"kind": "consume", "node": "fra", "queue": "work"},
    )
    return execute(Plan(name="checked", topology=line("ber fra"), workloads=told, faults=FAULTS, safety_s=3.0), 1)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What each core was told and asked, in order: rare events by name, "turn", "checked", and where faults strike."""
    found: Seen = []
    handle, validate, strike = NodeCore.handle, NodeCore.validate, Faults._strike

    def handling(self: NodeCore, event: Event, now: float) -> Any:
        if isinstance(event, RARE):
            found.append((self, type(event).__name__))
        commands = handle(self, event, now)
        if isinstance(event, TurnEnded):
            found.append((self, "turn"))
        return commands

    def validating(self: NodeCore, **options: Any) -> None:
        found.append((self, "checked"))
        validate(self, **options)

    def striking(self: Faults, fault: Fault) -> None:
        strike(self, fault)
        cores = [self.bed.sim_nodes[name].core for name in fault.places]
        found.extend((core, f"struck by {fault.kind}") for core in cores if core is not None)

    monkeypatch.setattr(NodeCore, "handle", handling)
    monkeypatch.setattr(NodeCore, "validate", validating)
    monkeypatch.setattr(Faults, "_strike", striking)
    monkeypatch.setattr(sim_node, "CHECK_EVERY", 10**9)
    monkeypatch.setattr(sim_node, "ROUSE_EVERY", 10**9)  # which hands over events of its own
    return found


def test_a_turn_in_which_something_was_undone_or_lost_ends_with_a_check_and_so_does_the_next(seen: Seen) -> None:
    assert run().ok
    met: Counter[str] = Counter()
    for core in dict.fromkeys(core for core, _ in seen):
        words = [word for known, word in seen if known is core and not word.startswith("struck")]
        turns = [at for at, word in enumerate(words) if word == "turn"]
        for at, word in enumerate(words):
            if word in {kind.__name__ for kind in RARE}:
                met[word] += 1
                for turn in [turn for turn in turns if turn > at][:2]:
                    assert words[turn + 1] == "checked", (word, words[at : turn + 2])
        if turns:
            assert words[turns[0] + 1] == "checked", "a node that has begun"
    assert set(met) == {kind.__name__ for kind in RARE}, met


def test_what_a_fault_strikes_was_whole_and_so_is_each_node_at_the_end(seen: Seen) -> None:
    assert run().ok
    struck = 0
    for at, (core, word) in enumerate(seen):
        if word.startswith("struck"):
            struck += 1
            before = [other for known, other in seen[:at] if known is core]
            assert before and before[-1] == "checked", word
    assert struck >= 5
    assert [word for core, word in seen[-2:]] == ["checked", "checked"] and len({core for core, _ in seen[-2:]}) == 2
    assert len({core for core, _ in seen}) == 3  # one of them died


def test_all_other_turns_are_checked_now_and_then(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is checked is what fails."""
    assert run().ok
    rarely = Counter(word for _, word in seen)
    seen.clear()
    monkeypatch.setattr(sim_node, "CHECK_EVERY", 5)
    assert run().ok
    often = Counter(word for _, word in seen)
    assert often["turn"] == rarely["turn"] and often["checked"] - rarely["checked"] > often["turn"] / 10

    def broken(self: NodeCore, **options: Any) -> None:
        raise BrokenInvariant("for the test")

    monkeypatch.setattr(NodeCore, "validate", broken)
    result = run()
    assert not result.ok and "for the test" in result.failure
