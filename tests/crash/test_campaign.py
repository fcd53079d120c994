"""Six cycles of the kill -9 campaign (a thousand: `make kill-campaign`), and how its report counts."""

import json
from pathlib import Path

import pytest

from holdfast_lab.judge.arrivals import judge
from holdfast_lab.real.campaign import LANES_MAX, POINTS, VICTIMS, Cycle, main, report, victim_of


@pytest.mark.crash
def test_six_cycles_are_exact(tmp_path: Path, day: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at other moments each day; the ingest, which needs a Spark of its own, dies on every third. That its table
    is exact whatever kills it is shown each day (`test_spark_node.py`)."""
    every, victims = (0, {"hub": 2, "sender": 1, "site": 3})
    if day % 3 == 0:
        every, victims = (6, {"hub": 2, "ingest": 1, "sender": 1, "site": 2})
    options = ["--cycles", "6", "--seed", str(day), "--ingest-every", str(every), "--lanes", "2"]
    code = main([*options, "--json", "--work", str(tmp_path / "work")])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and answer["ok"], json.dumps(answer, indent=2)
    assert answer["cycles"] == 6 and answer["kills"] > 0
    assert answer["victims"] == victims
    assert (answer["lost"], answer["twice"], answer["reordered"]) == (0, 0, 0)


def test_six_cycles_have_every_victim() -> None:
    assert {victim_of(cycle, 6) for cycle in range(6)} == {"site", "hub", "sender", "ingest"} == {*VICTIMS, "ingest"}


@pytest.mark.parametrize(("every", "count"), [(0, 0), (1, 1_000), (10, 100), (50, 20), (1_000, 1), (2_001, 0)])
def test_the_share_of_the_ingest_is_what_was_asked_for(every: int, count: int) -> None:
    assert sum(victim_of(cycle, every) == "ingest" for cycle in range(1_000)) == count


@pytest.mark.parametrize(
    "wrong", [["--lanes", "0"], ["--lanes", str(LANES_MAX + 1)], ["--cycles", "0"], ["--first", "x"]]
)
def test_wrong_numbers_are_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
    assert f"argument {wrong[0]}: invalid value '{wrong[1]}'; expected a whole number from" in capsys.readouterr().err


def test_the_report_counts_hits_by_moment_and_span() -> None:
    good = Cycle(0, "site", ["site@committing:3"], ["site@committing"], verdicts={"ewr": judge("ab", "ab")})
    also = Cycle(1, "hub", ["hub@append:3"], ["hub@append"])
    sender = Cycle(2, "sender", [], ["sender", "sender"])
    bad = Cycle(3, "hub", verdicts={"ewr": judge("ab", "a")})
    answer = report([good, also, sender, bad], 7, 1.26)
    assert answer["hits"] == {"hub@append": 1, "sender": 2, "site@committing": 1}
    assert answer["points"] == {**dict.fromkeys(POINTS, 0), "append": 1, "committing": 1}
    assert answer["victims"] == {"hub": 2, "sender": 1, "site": 1}
    assert answer["spans"] == {"append to commit": 2, "at a random moment": 2}
    assert (answer["ok"], answer["lost"], answer["kills"], answer["wall_s"]) == (False, 1, 4, 1.3)
    assert [cycle["cycle"] for cycle in answer["failed"]] == [3]
    assert report([good], 7, 0)["ok"] and not report([], 7, 0)["ok"]


def test_the_spans_cover_what_lies_between_append_and_retire() -> None:
    assert set(POINTS.values()) >= {"append to commit", "commit to settle", "settle to retire"}
