"""Sweeps: a file of grids as runs, and the runs on Spark as rows of a table."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from holdfast.cli import main
from holdfast.errors import ConfigError
from pyspark_holdfast import swarm_job
from pyspark_holdfast.sweep_file import Wanted, read_sweep

ROOT = Path(__file__).resolve().parents[2]
SMALL = """
[[grid]]
name = "short"
scenarios = ["traffic-fixed", "traffic-weights"]
seeds = 2
first_seed = 5
set = { span_s = 20, series_s = 10, period_s = [2, 5.5] }
"""


def read(tmp_path: Path, text: str) -> list[Wanted]:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return read_sweep(str(path))


def test_a_grid_is_all_combinations(tmp_path: Path) -> None:
    wanted = read(tmp_path, SMALL)
    assert len(wanted) == 8
    assert wanted[0] == Wanted("short", "traffic-fixed", {"span_s": "20", "series_s": "10", "period_s": "2"}, 5)
    assert {(one.scenario, one.settings["period_s"], one.seed) for one in wanted} == {
        (scenario, period, seed)
        for scenario in ("traffic-fixed", "traffic-weights")
        for period in ("2", "5.5")
        for seed in (5, 6)
    }
    flags = read(tmp_path, '[[grid]]\nname = "a"\nscenarios = ["swarm"]\nset = { size = true, text = "1,2" }')
    assert flags == [Wanted("a", "swarm", {"size": "true", "text": "1,2"}, 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grid = 5", "no [[grid]]; expected at least one"),
        ("", "no [[grid]]; expected at least one"),
        ("[[grid]", "expected TOML"),
        ("[other]\nx = 1", "unknown key 'other' in the file; expected one of grid"),
        ('[[grid]]\nname = "a"\nscenarios = []', "invalid value [] for grid.scenarios; expected a list of names"),
        ('[[grid]]\nname = ""\nscenarios = ["x"]', "invalid value '' for grid.name; expected text"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nsees = 3', "unknown key 'sees' in [[grid]]"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = 0', "invalid value 0 for grid.seeds; expected 1 to 100000"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = true', "invalid value True for grid.seeds"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nset = 3', "invalid value 3 for grid.set; expected a table"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nset = { a = [] }', "invalid value [] for grid.set.a"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nset = { a = [[1]] }', "invalid value [1] for grid.set.a"),
        (
            '[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = 100000\nset = { a = [1,2,3,4,5,6,7,8,9,10,11] }',
            "more than 1,000,000 runs",
        ),
    ],
)
def test_a_file_that_cannot_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, text)
    assert says in str(found.value) and "\n" not in str(found.value)


def test_a_run_has_its_settings_and_tells_series() -> None:
    row = swarm_job.run_seed("traffic-fixed", 3, settings={"span_s": "20", "series_s": "10"})
    assert row["ok"] and row["virtual_s"] == 20 and len(row["series"]["queue1"]) == 2
    assert row["metrics"]["generated.client1"] > 0
    wrong = swarm_job.run_seed("traffic-fixed", 3, settings={"span_s": "never"})
    assert not wrong["ok"] and "invalid value 'never' for span_s" in wrong["failure"]


def test_every_run_of_the_papers_sweep_is_one_that_there_is() -> None:
    from holdfast_lab.vpn.settings import experiment

    wanted = read_sweep(str(ROOT / "benchmarks/sweeps/traffic.toml"))
    assert len(wanted) > 1_000
    for one in wanted:
        experiment(one.scenario, one.seed, one.settings)


def test_the_simulators_verb_is_the_pipelines(tmp_path: Path) -> None:
    wrong = tmp_path / "sweep.toml"
    wrong.write_text("x = 1")
    command = [sys.executable, "-m", "holdfast", "sim", "sweep", str(wrong), "--out", str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "holdfast pipeline sweep: " in done.stderr and "unknown key 'x' in the file" in done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("our_session")
def test_a_sweep_on_spark_is_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "table"
    file.write_text(SMALL)
    assert main(["pipeline", "sweep", str(file), "--master", "local[2]", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["seeds"] == 8 and told["failed"] == []
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert {row["grid"] for row in rows} == {"short"}
    found = {(row["scenario"], dict(row["settings"])["period_s"], row["seed"]): row["digest"] for row in rows}
    assert len(found) == 8
    assert {len(values) for row in rows for _, values in row["series"]} == {2}
    alone = swarm_job.run_seed("traffic-weights", 6, settings={"span_s": "20", "series_s": "10", "period_s": "5.5"})
    assert found["traffic-weights", "5.5", 6] == alone["digest"]
