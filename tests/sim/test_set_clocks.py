"""Messages with a time to live and wall clocks that somebody sets: which may end early, and which may not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from holdfast.broker.stored.custody_records import STEADY
from holdfast.settings.queues import QueueConfig
from holdfast.state import steady
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Topology, line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute

pytestmark = pytest.mark.sim

NODES: Topology = replace(line("hub jfk"), queues={"hub": (QueueConfig(name="flights"), QueueConfig(name="news"))})
LIFE_S = 5.0

WORKLOADS = (
    {
        "kind": "expiring", "node": "hub", "address": "flights", "messages": 10, "rate": 50.0,
        "share": 1.0, "ttl_min_s": LIFE_S, "ttl_max_s": LIFE_S,
    },
    {"kind": "publish", "node": "hub", "address": "news", "messages": 120, "rate": 20.0},
    {"kind": "consume", "node": "hub", "queue": "news"},
)  # fmt: skip

WHILE_IT_RUNS = (
    Fault(kind="clock-step", at=0.5, node="hub", amount=3.0),
    Fault(kind="crash", at=3.0, node="hub", seconds=0.1),
)
WHILE_IT_IS_DOWN = (
    Fault(kind="crash", at=0.5, node="hub", seconds=1.0),
    Fault(kind="clock-step", at=1.0, node="hub", amount=3.0),
)


def ran(faults: tuple[Fault, ...]) -> Result:
    return execute(Plan(name="set clocks", topology=NODES, workloads=WORKLOADS, faults=faults), 1)


def by_the_wall(rows: Mapping[bytes, bytes], wall_ms: int) -> int:
    return max(wall_ms, int.from_bytes(rows.get(STEADY, b""), "big"))


def test_what_ends_early_since_a_clock_was_set_while_its_node_was_down_is_excused() -> None:
    """Its time was not over when the clock was set, and is over soon after it."""
    result = ran(WHILE_IT_IS_DOWN)
    assert result.ok, result.failure
    assert result.metrics["excused"] == 10


def test_a_clock_that_was_set_while_its_node_ran_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(WHILE_IT_RUNS)
    assert result.ok, result.failure
    monkeypatch.setattr(steady, "at_start", by_the_wall)
    assert "its last copy is gone from flights at hub" in ran(WHILE_IT_RUNS).failure


def test_a_disk_that_was_not_told_the_new_time_excuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash comes before the second commit since, and the first one may have had the time from before."""
    soon = (WHILE_IT_RUNS[0], replace(WHILE_IT_RUNS[1], at=0.6))
    monkeypatch.setattr(steady, "at_start", by_the_wall)
    result = ran(soon)
    assert result.ok, result.failure
