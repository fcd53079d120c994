"""Sweeps: a file of grids as runs, and the runs on Spark as rows of a table."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from holdfast.cli import main
from holdfast.errors import ConfigError
from pyspark_holdfast import swarm_job
from pyspark_holdfast.sweep_file import Wanted, read_sweep
from pyspark_holdfast.sweep_parts import Forecast, parts, told
from pyspark_holdfast.sweep_table import still_to_do

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
        ("[[grid]", "the file is not TOML"),
        ("[other]\nx = 1", "unknown key 'other' in the file; expected one of grid"),
        ('[[grid]]\nname = "a"\nscenarios = []', "invalid value [] for grid.scenarios; expected a list of names"),
        ('[[grid]]\nname = ""\nscenarios = ["x"]', "invalid value '' for grid.name; expected text"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nsees = 3', "unknown key 'sees' in [[grid]]"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = 0', "invalid value 0 for grid.seeds; expected 1 to 100000"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = true', "invalid value True for grid.seeds"),
        ('[[grid]]\nname = "a"\nscenarios = ["x"]\nrun_s = -1', "invalid value -1 for grid.run_s; expected 0 to 86400"),
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


def test_runs_are_made_in_parts_the_longest_first(tmp_path: Path) -> None:
    """So that little is lost where a sweep is ended, and no core waits for a long run at the end."""
    text = """
[[grid]]
name = "short"
scenarios = ["a"]
seeds = 120
run_s = 0.5
[[grid]]
name = "long"
scenarios = ["b"]
seeds = 9
run_s = 40
"""
    wanted = read(tmp_path, text)
    made = list(parts(wanted, 2))
    assert sorted((one.grid, one.seed) for part in made for one in part) == sorted(
        (one.grid, one.seed) for one in wanted
    )
    assert [len(part) for part in made] == [3, 3, 3, 50, 50, 20], "a minute of two cores, or fifty runs"
    assert {one.grid for part in made[:3] for one in part} == {"long"}


def test_a_sweep_forecasts_how_long_it_takes(tmp_path: Path) -> None:
    wanted = read(tmp_path, '[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = 100\nrun_s = 6')
    forecast = Forecast(wanted, 2)
    assert forecast.left_s(0.0) == 300
    forecast.made(wanted[:50], 2)
    assert forecast.left_s(300.0) == 300, "this machine takes twice as long as the file says"
    forecast.made(wanted[50:], 2)
    assert forecast.left_s(600.0) == 0
    unknown = Forecast(read(tmp_path, '[[grid]]\nname = "a"\nscenarios = ["x"]\nseeds = 4'), 1)
    assert unknown.left_s(0.0) is None
    unknown.made(wanted[:1], 6)
    assert unknown.left_s(2.0) == 6
    assert [told(value) for value in (None, 0.2, 80, 1_500)] == [
        "", ", about 1 second left", ", about 80 seconds left", ", about 25 minutes left"
    ]  # fmt: skip


def test_the_papers_sweep_takes_less_than_an_hour_of_two_cores() -> None:
    """By what the file says that its runs take, which `make pacing` tells before it begins."""
    wanted = read_sweep(str(ROOT / "benchmarks/sweeps/traffic.toml"))
    assert all(one.run_s for one in wanted)
    left_s = Forecast(wanted, 2).left_s(0.0)
    assert left_s is not None and left_s < 3_000


def test_the_simulators_verb_is_the_pipelines(tmp_path: Path) -> None:
    wrong = tmp_path / "sweep.toml"
    wrong.write_text("x = 1")
    command = [sys.executable, "-m", "holdfast", "sim", "sweep", str(wrong), "--out", str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "holdfast pipeline sweep: " in done.stderr and "unknown key 'x' in the file" in done.stderr


def row(one: Wanted, *, ok: bool = True) -> dict[str, object]:
    told = {"grid": one.grid, "scenario": one.scenario, "settings": list(one.settings.items()), "seed": one.seed}
    return told | {"ok": ok, "failure": "" if ok else "no verdict"}


def write(path: Path, rows: list[dict[str, object]]) -> None:
    settings = pyarrow.map_(pyarrow.string(), pyarrow.string())
    fields = [("grid", pyarrow.string()), ("scenario", pyarrow.string()), ("settings", settings)]
    fields += [("seed", pyarrow.int64()), ("ok", pyarrow.bool_()), ("failure", pyarrow.string())]
    path.parent.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(fields)), path)


def test_what_a_table_has_is_not_run_again_and_what_failed_is(tmp_path: Path) -> None:
    wanted, out = read(tmp_path, SMALL), tmp_path / "table"
    assert still_to_do("f", wanted, out) == wanted, "there is none yet"
    write(out / "a.parquet", [row(wanted[5]), row(wanted[0])])
    write(out / "b.parquet", [row(wanted[1], ok=False), row(wanted[2])])
    (out / ".b.parquet.crc").write_bytes(b"of the old content")
    (out / "_temporary").mkdir()
    assert still_to_do("f", wanted, out) == [wanted[at] for at in (1, 3, 4, 6, 7)]
    assert [found["seed"] for found in pyarrow.parquet.read_table(out / "b.parquet").to_pylist()] == [wanted[2].seed]
    assert not (out / ".b.parquet.crc").exists()
    write(out / "c.parquet", [row(one) for one in wanted])
    assert still_to_do("f", wanted, out) == []


def test_a_table_of_another_sweep_is_not_continued(tmp_path: Path) -> None:
    wanted, out = read(tmp_path, SMALL), tmp_path / "table"
    write(out / "a.parquet", [row(wanted[0])])
    with pytest.raises(ConfigError, match=r"has runs that f does not \(short traffic-fixed seed 5 .*period_s=2"):
        still_to_do("f", wanted[1:], out)
    (out / "a.parquet").write_bytes(b"x")
    with pytest.raises(ConfigError, match="expected a table that `pipeline sweep` wrote") as found:
        still_to_do("f", wanted, out)
    assert "\n" not in str(found.value)


@pytest.mark.spark
@pytest.mark.usefixtures("our_session")
def test_a_sweep_on_spark_is_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "table"
    file.write_text(SMALL)
    command = ["pipeline", "sweep", str(file), "--master", "local[2]", "--out", str(out)]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["seeds"] == 8 and told["failed"] == []
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert {row["grid"] for row in rows} == {"short"}
    found = {(row["scenario"], dict(row["settings"])["period_s"], row["seed"]): row["digest"] for row in rows}
    assert len(found) == 8
    assert {len(values) for row in rows for _, values in row["series"]} == {2}
    alone = swarm_job.run_seed("traffic-weights", 6, settings={"span_s": "20", "series_s": "10", "period_s": "5.5"})
    assert found["traffic-weights", "5.5", 6] == alone["digest"]
    for path in out.glob("*.parquet"):  # of all but one file, as where it was ended
        if path != min(out.glob("*.parquet")):
            path.unlink()
    there = pyarrow.parquet.read_table(out).num_rows
    assert main([*command, "--resume"]) == 0
    said = capsys.readouterr()
    assert f"{there} of 8 runs are in " in said.err, said.err
    assert json.loads(said.out.splitlines()[-1])["seeds"] == 8
