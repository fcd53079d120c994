"""The soak's phases against a real node, a few seconds of them, and how its figures are judged; no time is asserted."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import soak


def test_honest_and_hostile_clients_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SLICE_S", 0.3)
    monkeypatch.setattr(soak, "FULL_MESSAGES", 300)
    monkeypatch.setattr(soak, "SHARE", 0.05)
    monkeypatch.setattr(soak, "ROUND_SLICES_MIN", 4)
    options = argparse.Namespace(minutes=0.05, clients=5, pause=0.02, size=64, credit=100, seed=3)
    peer = soak.Bounded()
    peer.start(tmp_path / "node")
    try:
        found = soak.soak(peer, options, tmp_path)
        assert peer.process is not None and peer.process.poll() is None
    finally:
        peer.stop()
    assert len(found["alone"]) >= 3 and found["beside"]
    assert sum(found["hostile"]["acts"].values()) > 0 and found["hostile"]["connections"] > 5
    assert soak.judged(found, (tmp_path / "node" / "log").read_text())["figures"]["node_errors"] == []


def rows(*values: tuple[float, float]) -> list[dict[str, float]]:
    return [{"p99_ms": p99, "own_mb": own} for p99, own in values]


@pytest.mark.parametrize(
    ("beside", "met"),
    [
        ([(3.9, 50.0)] * 10, [True, True, True]),
        ([(4.1, 50.0)] * 10, [False, True, True]),
        ([(2.0, 20.0)] * 3 + [(2.0, 50.0)] * 3 + [(2.0, 60.0)] * 4, [True, True, True]),
        ([(2.0, 20.0)] * 3 + [(2.0, 50.0)] * 3 + [(2.0, 60.1)] * 4, [True, False, True]),
    ],
)
def test_goals(beside: list[tuple[float, float]], met: list[bool]) -> None:
    found: dict[str, Any] = {"alone": rows((2.0, 50.0), (2.0, 50.0), (9.0, 50.0)), "beside": rows(*beside)}
    assert list(soak.judged(found, "INFO all is well")["goals_met"].values()) == met


def test_an_error_in_the_log_is_no_success() -> None:
    found = {"alone": rows((2.0, 50.0)), "beside": rows(*[(2.0, 50.0)] * 5)}
    assert not all(soak.judged(found, "12:00 ERROR a defect\n")["goals_met"].values())
