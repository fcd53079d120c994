"""The fuzzer finds what is there: a defect that is planted, contained or not, is a finding with its batch."""

import pytest

from fuzz.in_process import STREAMS, run_batch
from holdfast.core.node import NodeCore
from holdfast.endpoints.attaching.consumer_attach import ConsumerAttach
from holdfast.engine import events

SEED, BATCH = 3, 0


def test_a_failure_that_is_contained_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = ConsumerAttach.send, 0

    def broken(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls % 50 == 0:
            raise KeyError("planted")
        original(*arguments)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(ConsumerAttach, "send", broken)
    report = run_batch(SEED, BATCH)
    ((signature, finding),) = report.findings.items()
    assert "planted" in signature and report.deaths == 0
    assert finding.replay.endswith(f"--seed {SEED} --batch {BATCH}") and finding.said


def test_a_node_that_dies_is_found_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = NodeCore.handle, 0

    def broken(core: NodeCore, event: events.Event, now: float) -> list[events.Command]:
        nonlocal calls
        calls += 1
        if calls == 2_000:
            raise ValueError("planted")
        return original(core, event, now)

    monkeypatch.setattr(NodeCore, "handle", broken)
    report = run_batch(SEED, BATCH)
    assert (report.deaths, report.streams) == (1, STREAMS)
    assert [signature.startswith("ValueError: planted") for signature in report.findings] == [True]
