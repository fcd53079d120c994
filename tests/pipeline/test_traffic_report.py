"""The traffic paper's report from a sweep's table: acceptance as a judge, its tables, its picture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from holdfast import cli
from holdfast.errors import ConfigError
from holdfast.marked_pages import put_into
from pyspark_holdfast import swarm_job
from pyspark_holdfast.traffic import acceptance
from pyspark_holdfast.traffic.acceptance import SEEDS_FOR_MEANS, Check
from pyspark_holdfast.traffic.page import BEGIN, END
from pyspark_holdfast.traffic.pictures import moving_average
from pyspark_holdfast.traffic.runs import Run, policy_named
from pyspark_holdfast.traffic.summary import SETTLING_RUNS, settling_s, summary

# ------------------------------------------------------------------------------------------------ the judge


def run(policy: str = "fixed", **metrics: float) -> Run:
    found = {"overflowed.client1": 0, "overflowed.client2": 8_800, "overflowed.client3": 0} | metrics
    found["overflowed_total"] = sum(found[f"overflowed.client{number}"] for number in (1, 2, 3))
    return Run("paper", policy, {}, 1, 1.0, {"overflowed_outside_burst": 0, "root_peak_messages": 27} | found, {})


def failing(checks: list[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def test_each_line_of_the_table_can_fail() -> None:
    assert failing(acceptance.of_fixed([run()])) == []
    less = run(**{"overflowed.client2": 8_000})
    assert failing(acceptance.of_fixed([less])) == ["fixed, overflow of client 2"]
    other = run(**{"overflowed.client1": 1})
    assert failing(acceptance.of_fixed([other])) == ["fixed, overflow of clients 1 and 3"]
    outside = run(overflowed_outside_burst=1)
    assert failing(acceptance.of_fixed([outside])) == ["fixed, overflow outside the burst"]
    peaks = {f"peak_messages.client{number}": peak for number, peak in ((1, 34), (2, 56), (3, 35))}
    good: dict[str, float] = {"overflowed.client2": 0, **peaks}
    assert failing(acceptance.of_weights([run("weights", **good)])) == []
    assert failing(acceptance.of_weights([run("weights", **good | {"overflowed.client2": 1})])) == ["weights, overflow"]
    high = dict.fromkeys(peaks, 90)
    assert len(failing(acceptance.of_weights([run("weights", **good | high)]))) == 3
    root = acceptance.of_weights([run("weights", **good, root_peak_messages=41)])
    assert failing(root) == ["weights, peak of the root"]
    all_over = {f"overflowed.client{number}": 8_800 for number in (1, 2, 3)}
    assert acceptance.of_all([run(**all_over)]).holds
    assert not acceptance.of_all([run(**all_over | {"overflowed.client3": 12_000})]).holds


def test_sizes_are_judged_by_what_is_expected_of_their_policy() -> None:
    sizes = [("fixed", 344), ("weights", 1_365), ("level 0", 2_850), ("level 1", 2_900), ("backlog", 7)]
    settings = {"burst": "20"}
    bursts = [
        replace(run(name, burst_messages=size, share_of_limit=size / 3_000), settings=settings) for name, size in sizes
    ]
    checks = acceptance.of_bursts(bursts)
    assert len(checks) == 4 and failing(checks) == []
    small = [replace(one, metrics={"burst_messages": 200, "share_of_limit": 0.1}) for one in bursts]
    assert len(failing(acceptance.of_bursts(small))) == 4
    beyond = replace(bursts[2], metrics={"burst_messages": 3_001, "share_of_limit": 1.01})
    assert failing(acceptance.of_bursts([beyond])), "no policy passes the limit"


def test_a_mean_is_judged_of_enough_runs_alone() -> None:
    few = Check("what", "10", (9, 11), (0, 20), (19.0,) * (SEEDS_FOR_MEANS - 1))
    assert few.holds and few.mean_holds is None
    assert not Check("what", "10", (9, 11), (0, 20), (19.0,) * SEEDS_FOR_MEANS).holds
    assert not Check("what", "10", (9, 11), (0, 20), (*(10.0,) * SEEDS_FOR_MEANS, 21.0)).holds


def with_queue(path: list[float]) -> Run:
    return replace(run(), settings={"series_s": "10"}, series={"queue2": path})


def test_a_path_settles_when_it_stays_near_its_mean() -> None:
    # One value each 10 s; the burst is from 2,400 to 4,200.
    rising = [0.0] * (239 + 30) + [50.0] * 331
    assert settling_s([with_queue(rising)] * SETTLING_RUNS) == 300
    assert settling_s([with_queue([5.0] * 600)] * SETTLING_RUNS) == 0
    assert settling_s([with_queue([0.0] * 400 + [99.0, 0.0] * 100)] * SETTLING_RUNS) is None
    assert settling_s([run()] * SETTLING_RUNS) is None
    assert settling_s([with_queue(rising)] * (SETTLING_RUNS - 1)) is None, "too few to say"


def test_a_moving_average_is_of_the_last_values() -> None:
    assert moving_average([1, 2, 3, 4], 2) == pytest.approx([1, 1.5, 2.5, 3.5])


def test_level_has_a_name_for_each_part_that_it_lends() -> None:
    assert policy_named("traffic-level", {"lend": "1"}) == "level 1"
    assert policy_named("traffic-level", {}) == "level 0"
    assert policy_named("traffic-weights", {"lend": "0"}) == "weights"


# ------------------------------------------------------------------------------------------------ the table


COLUMNS = {
    "grid": pyarrow.string(),
    "settings": pyarrow.map_(pyarrow.string(), pyarrow.string()),
    "series": pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.float64())),
    "scenario": pyarrow.string(),
    "seed": pyarrow.int64(),
    "ok": pyarrow.bool_(),
    "failure": pyarrow.string(),
    "wall_s": pyarrow.float64(),
    "metrics": pyarrow.map_(pyarrow.string(), pyarrow.float64()),
}


def row(grid: str, scenario: str, seed: int = 1, ok: bool = True, **settings: str) -> dict[str, Any]:
    clients = (1, 2, 3)
    over = 8_800.0 if scenario == "traffic-fixed" else 0.0
    metrics: dict[str, float] = {
        "overflowed_total": over, "overflowed_outside_burst": 0, "root_peak_messages": 27, "jain": 0.5,
        "rate_changes_per_min": 3, "loads_per_s": 3, "paces_per_s": 1, "root_mean_messages_in_burst": 9,
        "burst_messages": 300, "limit_messages": 400, "limit_whole_messages": 2_000, "share_of_limit": 0.75,
        "network.packets_lost": 10, "network.segments_resent": 12,
        "network.message_delay_mean_s": 0.03, "network.message_delay_max_s": 2.0,
        "network.control_delay_mean_s": 0.02,
    }  # fmt: skip
    for number in clients:
        metrics |= {
            f"overflowed.client{number}": over if number == 2 else 0, f"peak_messages.client{number}": 30 + number,
            f"rate_in_burst.client{number}": 14, f"rate_outside_burst.client{number}": 8,
        }  # fmt: skip
    series: dict[str, list[float]] = {}
    if "series_s" in settings:
        names = ["root", "overflowed", *(f"{what}{one}" for what in ("queue", "rate", "generated") for one in clients)]
        series = {name: [float(place) for place in range(600)] for name in names}
    return {
        "grid": grid, "settings": list(settings.items()), "series": list(series.items()), "scenario": scenario,
        "seed": seed, "ok": ok, "failure": "" if ok else "it broke", "wall_s": 4.0, "metrics": list(metrics.items()),
    }  # fmt: skip


def written(path: Path, *rows: dict[str, Any]) -> str:
    path.mkdir()
    schema = pyarrow.schema(list(COLUMNS.items()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), path / "part.parquet")
    return str(path)


def whole(path: Path) -> str:
    policies = ("traffic-fixed", "traffic-weights", "traffic-level")
    return written(
        path,
        *(row("paper", policy, series_s="10") for policy in policies),
        *(row("together", policy) for policy in policies),
        *(row("sizes", policy, size="true", burst=burst) for policy in policies for burst in ("50", "100")),
        *(row("varied", policy, size="true", burst="50", loss="0.2") for policy in policies),
        *(row("varied", policy, size="true", burst="50", period_s="5") for policy in policies),
        row("thresholds", "traffic-weights", thresholds="0.5:1"),
        row("thresholds", "traffic-weights", thresholds="0.5:1", size="true", burst="50"),
        *(row("network", policy, network="paper", series_s="10") for policy in policies),
        row("network-sizes", "traffic-level", network="paper", size="true", burst="50"),
        row("network-varied", "traffic-level", network="paper", size="true", burst="50", loss="0.2"),
        *(row("failures", "traffic-level", network="paper", fail="p5", fast_reroute=yes) for yes in ("true", "false")),
    )


def test_the_report_is_made_of_the_table_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = whole(tmp_path / "table")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    code = cli.main(["pipeline", "report", "traffic", table, "--page", str(page)])
    text = capsys.readouterr().out
    assert code == 1 and "**no**" in text and "| yes |" in text, "sizes of 300 are not what is expected of all"
    for title in ("statements", "Acceptance", "paper's burst", "Sizes", "All at once", "sensitive", "thresholds"):
        assert any(line.startswith("### ") and title in line for line in text.splitlines()), title
    assert "### Through the VPN" in text and "### Loss of a P router" in text
    assert "T 5; n = 1 | loss 20%; n = 1" in text
    assert "### What it is sensitive to, through the VPN" in text
    assert "| p5 | yes | level 0 | 1 | 2 |" in text
    kept = page.read_text()
    assert kept.startswith("before\n") and kept.endswith("\nafter\n") and text.strip() in kept
    widths: dict[int, int] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            widths[line.count("|")] = widths.get(line.count("|"), 0) + 1
    assert min(widths) >= 3


def test_the_picture_is_drawn_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "figures.png"
    cli.main(["pipeline", "report", "traffic", whole(tmp_path / "table"), "--picture", str(picture), "--json"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(capsys.readouterr().out)["n"] == 1


def test_several_tables_are_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "first", row("paper", "traffic-fixed"))
    second = written(tmp_path / "second", row("paper", "traffic-fixed", seed=2))
    assert cli.main(["pipeline", "report", "traffic", first, second, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [1, 2]


def test_runs_tell_every_metric_that_the_report_uses() -> None:
    """Of real runs, and not of those made up here."""
    from holdfast_lab import traffic
    from holdfast_lab.vpn.settings import experiment

    short = {"burst_from_s": "4", "burst_to_s": "8", "span_s": "10"}
    runs = []
    for grid, settings in (
        ("paper", short), ("network", short | {"network": "paper"}), ("sizes", {"size": "true", "burst": "300"}),
        ("failures", short | {"network": "paper", "fail": "p4", "fail_at_s": "5", "repair_at_s": "7"}),
    ):  # fmt: skip
        found = traffic.run("traffic-fixed", experiment("traffic-fixed", 1, settings), None)
        runs.append(Run(grid, "fixed", settings, 1, 1.0, swarm_job.flat(found.metrics), {}))
    report = summary(runs)
    assert [len(report[part]) for part in ("paper", "network", "bursts", "limits", "failures")] == [1, 2, 1, 1, 1]
    with pytest.raises(ConfigError, match="the table has a run without 'burst_messages'; sweep it again"):
        summary([replace(runs[0], grid="sizes")])


def test_a_table_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "part.parquet").write_bytes(b"no parquet")
    no_series = written(tmp_path / "no-series", row("paper", "traffic-fixed"))
    failed = written(tmp_path / "failed", row("paper", "traffic-fixed", ok=False))
    for table, text in (
        (str(tmp_path / "missing"), "expected the directory of a table"),
        (str(broken), "expected a table that `pipeline sweep` wrote"),
        (failed, "1 of 1 runs failed (traffic-fixed seed 1: it broke)"),
        (written(tmp_path / "other", row("mine", "traffic-fixed")), "no grid of the traffic paper's"),
        (written(tmp_path / "swarm", row("paper", "swarm")), "no grid of the traffic paper's"),
    ):
        assert cli.main(["pipeline", "report", "traffic", table]) == 2
        said = capsys.readouterr().err
        assert text in said and said.count("\n") == 1
    assert cli.main(["pipeline", "report", "traffic", no_series, "--picture", str(tmp_path / "x.png")]) == 2
    assert "has no series of the grid paper" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ the page


def test_what_is_outside_the_markers_stays() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put_into(document, ["new"], BEGIN, END) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    for broken in ("before", f"{BEGIN} but no end", f"{END} before {BEGIN}"):
        with pytest.raises(ConfigError, match="the document has no"):
            put_into(broken, ["new"], BEGIN, END)


def test_a_page_that_cannot_be_written_is_a_mistake_before_the_table_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text("no markers")
    for name, text in (("page.md", "the document has no"), ("missing.md", "cannot read")):
        assert cli.main(["pipeline", "report", "traffic", "no-table", "--page", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert text in said and said.count("\n") == 1
