"""Ten cycles of the kill -9 campaign (all 200: `make kill-campaign`), and how its report counts."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from holdfast.harness.campaign import POINTS, VICTIMS, Cycle, report, victim_of
from holdfast.harness.processes import Children
from holdfast.harness.results import judge


@pytest.mark.crash
async def test_ten_cycles_are_exact(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast.harness.campaign", "--cycles", "10", "--seed", "1", "--json"]
    async with Children(tmp_path / "logs") as children, asyncio.timeout(240):
        campaign = await children.start("campaign", [*command, "--work", str(tmp_path / "work")])
        code = await campaign.wait()
        answer = json.loads("\n".join(campaign.lines))
    assert code == 0 and answer["ok"], json.dumps(answer, indent=2)
    assert answer["cycles"] == 10 and answer["kills"] > 0
    assert (answer["lost"], answer["twice"], answer["reordered"]) == (0, 0, 0)


def test_ten_cycles_have_every_victim() -> None:
    assert {victim_of(cycle) for cycle in range(10)} == {"site", "hub", "sender", "ingest"} == set(VICTIMS)


def test_the_report_counts_hits_by_moment_and_span() -> None:
    good = Cycle(0, "site", ["site@committing:3"], ["site@committing"], verdicts={"ewr": judge("ab", "ab")})
    also = Cycle(1, "hub", ["hub@append:3"], ["hub@append"])
    sender = Cycle(2, "sender", [], ["sender", "sender"])
    bad = Cycle(3, "hub", verdicts={"ewr": judge("ab", "a")})
    answer = report([good, also, sender, bad], 7, 1.26)
    assert answer["hits"] == {"hub@append": 1, "sender": 2, "site@committing": 1}
    assert answer["spans"] == {"append to commit": 2, "at a random moment": 2}
    assert (answer["ok"], answer["lost"], answer["kills"], answer["wall_s"]) == (False, 1, 4, 1.3)
    assert [cycle["cycle"] for cycle in answer["failed"]] == [3]
    assert report([good], 7, 0)["ok"] and not report([], 7, 0)["ok"]


def test_the_spans_cover_what_lies_between_append_and_retire() -> None:
    assert set(POINTS.values()) >= {"append to commit", "commit to settle", "settle to retire"}
