"""The benchmarks of Spark as programs, in their smallest forms, on the tests' session, rendered. No time asserted."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.spark


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in (BENCHMARKS, BENCHMARKS / "macro"):
        monkeypatch.syspath_prepend(str(directory))


def run(name: str, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The program's report, rendered into a document on the way."""
    program, render = importlib.import_module(name), importlib.import_module("render")
    out, document = tmp_path / f"{name}.json", tmp_path / "document.md"
    assert program.main(["--data", str(tmp_path), "--repeat", "1", "--json-out", str(out), *arguments]) == 0
    document.write_text(f"<!-- {name} -->\nformer figures\n<!-- end {name} -->\n")
    assert render.main([str(out), "--document", str(document), "--changed"]) == 0
    assert "former" not in document.read_text() and render.NOTHING not in document.read_text()
    report: dict[str, Any] = json.loads(out.read_text())
    return report


@pytest.mark.usefixtures("our_session", "found")
@pytest.mark.parametrize(("name", "peer"), [("spark_ingest", "files"), ("spark_sink", "client")])
def test_against_a_peer(tmp_path: Path, name: str, peer: str) -> None:
    report = run(name, tmp_path, "--messages", "101", "--rows", "60", "--size", "10")
    ours, theirs = (report["results"][which]["median"] for which in ("holdfast", peer))
    assert report["ratio"]["median"] == pytest.approx(ours / theirs, abs=0.01)


@pytest.mark.usefixtures("our_session", "found")
def test_scaling(tmp_path: Path) -> None:
    numbers = ["--nodes", "1,2", "--executors", "1", "--from", "1"]
    report = run("spark_nodes", tmp_path, "--messages", "100", "--size", "10", *numbers)
    assert list(report["nodes"]["results"]) == ["1", "2"] and list(report["executors"]["results"]) == ["1"]
    assert report["nodes"]["scaling"]["1"]["median"] == 1.0
