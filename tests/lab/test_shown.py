"""`holdfast sim run TOPOLOGY`: what it prints and answers, and what it refuses."""

import json
from pathlib import Path

import pytest

from holdfast import cli
from holdfast_lab.bindings.shown import NODES_MAX, is_topology
from holdfast_lab.plan import scenario_file

THREE = """
[[node]]
name = "ewr"
[[node]]
name = "hub"
[[node]]
name = "jfk"
[[link]]
from = "ewr"
to = "hub"
[[link]]
from = "hub"
to = "jfk"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "three.toml"
    path.write_text(THREE)
    return str(path)


def test_binding_changes_and_hops_are_printed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", file, "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for word in ("bind", "confirmed", "bindings", "publish", "hop", "cut", "mend", "unbind"):
        assert any(line.split()[1] == word for line in lines), word
    assert cli.main(["sim", "run", file, "--seed", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_the_answer_for_programs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", file, "--seed", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"]
    assert answer["scenario"] == file
    assert answer["seed"] == 3
    assert {"digest", "virtual_s", "wall_s", "metrics", "failure", "hops"} <= answer.keys()
    assert answer["metrics"]["nodes"] == 3
    assert answer["metrics"]["confirmed"] > 0


def test_a_scenario_is_no_topology(file: str, tmp_path: Path) -> None:
    assert is_topology(file)
    assert not any(is_topology(name) for name, _ in scenario_file.names())
    assert not is_topology(str(tmp_path / "absent.toml"))
    (tmp_path / "broken.toml").write_text("[[node")
    assert not is_topology(str(tmp_path / "broken.toml"))
    (tmp_path / "deep.toml").write_text("x = " + "[" * 100_000)
    assert not is_topology(str(tmp_path / "deep.toml"))


@pytest.mark.parametrize("option", ["--out", "--canary"])
def test_what_does_not_go_with_a_topology(option: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", file, option, "x"]) == 2
    assert option in capsys.readouterr().err


def test_too_many_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.toml"
    names = [f"n{number}" for number in range(NODES_MAX + 1)]
    path.write_text("".join(f'[[node]]\nname = "{name}"\n' for name in names))
    assert cli.main(["sim", "run", str(path)]) == 2
    assert f"{NODES_MAX + 1} nodes" in capsys.readouterr().err
