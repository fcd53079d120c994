"""The traffic paper's acceptance table as a judge, the tables of its page, and its picture, from short runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.errors import ConfigError
from holdfast_lab.vpn import acceptance, campaign, measures, priorities
from holdfast_lab.vpn.acceptance import SEEDS_FOR_MEANS, Check
from holdfast_lab.vpn.measures import Burst, Outcome, Series
from holdfast_lab.vpn.page import BEGIN, END, page, put_into
from holdfast_lab.vpn.parameters import Experiment

# ------------------------------------------------------------------------------------------------ the judge


def outcome(**other: Any) -> Outcome:
    found = Outcome("fixed", 1, [1, 1, 1], [0, 8_800, 0], 0, [9, 200, 11], 26, 0.3, 0.0, 3.0, 1.0)
    return replace(found, **other)


def failing(checks: list[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def test_each_line_of_the_table_can_fail() -> None:
    assert failing(acceptance.of_fixed([outcome()])) == []
    assert failing(acceptance.of_fixed([outcome(overflowed=[0, 8_000, 0])])) == ["fixed, overflow of client 2"]
    assert failing(acceptance.of_fixed([outcome(overflowed=[1, 8_800, 0])])) == ["fixed, overflow of clients 1 and 3"]
    assert failing(acceptance.of_fixed([outcome(outside=1)])) == ["fixed, overflow outside the burst"]
    good = outcome(overflowed=[0, 0, 0], peaks=[34, 56, 35], root_peak=27)
    assert failing(acceptance.of_weights([good])) == []
    assert failing(acceptance.of_weights([replace(good, overflowed=[0, 1, 0])])) == ["weights, overflow"]
    assert len(failing(acceptance.of_weights([replace(good, peaks=[50, 90, 50])]))) == 3
    assert failing(acceptance.of_weights([replace(good, root_peak=41)])) == ["weights, peak of the root"]
    assert acceptance.of_all([outcome(overflowed=[8_800, 8_800, 8_800])]).holds
    assert not acceptance.of_all([outcome(overflowed=[8_800, 9_800, 9_800])]).holds


def test_sizes_are_judged_by_what_is_expected_of_their_policy() -> None:
    sizes = [("fixed", 344), ("weights", 1_365), ("level 0", 2_850), ("level 1", 2_900), ("backlog", 7)]
    bursts = [Burst(name, 1, 20.0, size, 3_000) for name, size in sizes]
    checks = acceptance.of_bursts(bursts)
    assert len(checks) == 4 and failing(checks) == []
    assert len(failing(acceptance.of_bursts([replace(one, size=200) for one in bursts]))) == 4
    assert failing(acceptance.of_bursts([replace(bursts[2], size=3_001)])), "no policy passes the limit"


def test_a_mean_is_judged_of_enough_runs_alone() -> None:
    few = Check("what", "10", (9, 11), (0, 20), (19.0,) * (SEEDS_FOR_MEANS - 1))
    assert few.holds and few.mean_holds is None
    assert not Check("what", "10", (9, 11), (0, 20), (19.0,) * SEEDS_FOR_MEANS).holds
    assert not Check("what", "10", (9, 11), (0, 20), (*(10.0,) * SEEDS_FOR_MEANS, 21.0)).holds


# ------------------------------------------------------------------------------------------------ the page


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of two minutes, and bursts that overflow soon."""

    def run(experiment: Experiment) -> tuple[Outcome, Series]:
        return measures.run(replace(experiment, burst_s=(30.0, 90.0), span_s=120.0))

    def with_path(experiment: Experiment) -> tuple[Outcome, list[int]]:
        outcome, series = run(experiment)
        return outcome, [queues[1] for queues in series.queues]

    def at_once(policy: str, lend: float = 0.0) -> Experiment:
        return Experiment(policy=policy, lend=lend, bursting=(1, 2, 3), burst_s=(30.0, 90.0), span_s=90.0)

    monkeypatch.setattr(priorities, "all_at_once", at_once)
    monkeypatch.setattr(campaign, "run", run)
    monkeypatch.setattr(campaign, "_outcome", with_path)
    monkeypatch.setattr(campaign, "SIZES", (100.0,))
    monkeypatch.setattr(campaign, "VARIATIONS", {"T 2": {}, "n 6": {"clients": 6}})


def test_the_page_has_all_tables_and_says_what_does_not_hold(short: None, tmp_path: Path) -> None:
    told: list[str] = []
    report = campaign.accept([1], 1, told.append)
    assert not report["holds"], "two minutes overflow less than half an hour"
    assert len(told) == 3 * len(campaign.POLICIES) + 2 * (len(campaign.POLICIES) + 1)
    report["varied"] = campaign.vary([1], 1, told.append)
    report |= {"client_2": {"within": 14.0, "outside": 6.0}, "root": {"fixed": 12.0, "weights": 15.0}}
    lines = page(report, "by hand")
    text = "\n".join(lines)
    assert "n = 1 runs of each (seeds 1 to 1), by hand" in text
    for title in ("statements", "Acceptance", "burst", "Sizes", "All at once", "with priorities", "sensitive"):
        assert any(line.startswith("### ") and title in line for line in lines)
    assert "**no**" in text and "| yes |" in text
    widths = [line.count("|") for line in lines if line.startswith("|")]
    assert min(widths) >= 3
    assert "n 6; n = 1" in text

    pytest.importorskip("matplotlib")
    from holdfast_lab.vpn.pictures import draw

    draw(campaign.series_of(1, 1), report, 1, tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_outside_the_markers_stays() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put_into(document, ["new"]) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    for broken in ("before", f"{BEGIN} but no end", f"{END} before {BEGIN}"):
        with pytest.raises(ConfigError, match="the document has no"):
            put_into(broken, ["new"])


def test_a_page_that_cannot_be_written_is_a_mistake_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text("no markers")
    for name, text in (("page.md", "the document has no"), ("missing.md", "cannot read")):
        assert cli.main(["pacing", "report", "--page", str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert text in told and told.count("\n") == 1
