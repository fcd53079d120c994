"""The traffic paper's experiment on real processes (docs/mpls.md, "Live")."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_lab.demo.live import experiment_of, verdicts
from holdfast_lab.real import live_traffic
from holdfast_lab.real.live_traffic import Live, run_live, scaled
from holdfast_lab.vpn.measures import Outcome
from holdfast_lab.vpn.measures import run as run_model

GOOD = Live("fixed", 1, [100, 300, 100], [0, 50, 0], 0, [9, 200, 9], 27, 450, [0, 9, 0], 0.0, 0.01)


def model(**changes: object) -> Outcome:
    found, _ = run_model(replace(experiment_of("fixed", 1), burst_s=(2.0, 4.0), span_s=5.0))
    return replace(found, overflowed=[0, 52, 0], **changes)  # type: ignore[arg-type]


def failing(found: Live) -> list[str]:
    return [what for what, holds in verdicts(found, model()).items() if not holds]


def test_each_verdict_can_fail() -> None:
    assert failing(GOOD) == []
    assert failing(replace(GOOD, taken=449)) == ["no accepted message is lost"]
    assert failing(replace(GOOD, overflowed=[0, 20, 0], taken=480)) == ["client 2 overflows, as much as in the model"]
    assert failing(replace(GOOD, overflowed=[1, 50, 0], taken=449)) == ["clients 1 and 3 do not"]
    assert failing(replace(GOOD, early=1)) == ["and client 2 in its burst alone"]
    assert failing(replace(GOOD, peaks=[9, 150, 9])) == ["its queue was full"]
    paced = replace(GOOD, name="weights", overflowed=[0, 0, 0], taken=500, peaks=[30, 50, 30])
    assert failing(paced) == []
    assert failing(replace(paced, overflowed=[0, 1, 0], taken=499)) == ["nothing overflows"]
    assert failing(replace(paced, peaks=[30, 120, 30])) == ["no queue is half full"]


def test_a_live_run_overflows_as_the_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight seconds of it, with a larger burst: without control client 2 alone overflows, as often as in the model."""
    monkeypatch.setattr(live_traffic, "SHORTER", 75.0)
    experiment = replace(experiment_of("fixed", 3), burst=45.0)
    found = run_live(experiment, tmp_path / "run")
    expected, _ = run_model(scaled(experiment))
    assert 400 < expected.overflowed[1] < 900
    assert found.generated == expected.generated
    assert all(verdicts(found, expected).values()), (found, expected)
    assert found.weights[1] == 9 and found.overflow_s == 0, "telemetry tells of the full queue"
