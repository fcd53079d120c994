"""A run of the deaths under a Spark job on a cluster (two hundred: `make spark-deaths`), and its report."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError
from holdfast_lab.judge.arrivals import judge
from holdfast_lab.real.spark_deaths import DRAWN, SINKS, VICTIMS, Deaths, Run, main, report
from pyspark_holdfast.java import find_java_home
from support import today
from support.postgresql import postgresql


@pytest.mark.crash
@pytest.mark.parametrize("sink", today.some(SINKS, 1))
def test_a_run_of_all_deaths_is_exact(tmp_path: Path, day: int, capsys: pytest.CaptureFixture[str], sink: str) -> None:
    """Other moments, in another order, each day."""
    try:
        find_java_home(os.environ)
    except ConfigError as error:
        pytest.skip(str(error))
    options = ["--runs", "1", "--seed", str(day), "--sink", sink, "--json", "--work", str(tmp_path)]
    with postgresql() if sink == "postgresql" else nullcontext("") as url:
        code = main([*options, "--postgresql", url] if url else options)
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and answer["ok"], json.dumps(answer, indent=2)
    assert answer["deaths"] == dict.fromkeys(sorted(VICTIMS), 1) and answer["sinks"] == {sink: 1}
    assert answer["starts"] >= 2 and (answer["lost"], answer["twice"]) == (0, 0)


def test_a_report_is_well_only_where_all_runs_are() -> None:
    good = Run(1, "parquet", ["node 0.10 s after commits/1"], 2, 3.0, judge(["1", "2"], ["1", "2"]))
    lost = Run(2, "holdfast", ["driver 0.10 s after commits/1"], 2, 3.0, judge(["1", "2"], ["1"]))
    hung = Run(3, "holdfast", [], 1, 3.0, None, "not over after 900 s")
    assert report([good], 1.0)["ok"] and not report([], 1.0)["ok"] and not report([good, hung], 1.0)["ok"]
    answer = report([good, lost], 7.04)
    assert (answer["ok"], answer["lost"], answer["wall_s"]) == (False, 1, 7.0)
    assert answer["deaths"] == {"driver": 1, "node": 1} and [run["seed"] for run in answer["failed"]] == [2]


def test_a_seed_draws_the_same_run(tmp_path: Path) -> None:
    drawn = [[Deaths(None, tmp_path, seed).run.sink for seed in range(20)] for _ in range(2)]  # type: ignore[arg-type]
    assert drawn[0] == drawn[1] and set(drawn[0]) == set(DRAWN)


@pytest.mark.parametrize("given", [["--sink", "postgresql"], ["--postgresql", "postgresql://x"]])
def test_a_database_and_its_sink_belong_together(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert "--sink postgresql and --postgresql URL belong together" in capsys.readouterr().err
