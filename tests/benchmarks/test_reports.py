"""The benchmarks as programs, in their smallest forms, on a real node, rendered. No time asserted."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import federated
import footprint
import latency
import many
import pytest
import selecting
import sorting
import tables
import throughput
import topics
import trace_bytes

import render


def run(program: ModuleType, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The program's report, rendered into a document on the way: every figure of it has its place there."""
    name = program.__name__
    out = tmp_path / f"{name}.json"
    data = [] if program is tables else ["--data", str(tmp_path / "data")]
    code = program.main([*arguments, *data, "--json-out", str(out)])
    assert code == 0
    report: dict[str, Any] = json.loads(out.read_text())
    document = tmp_path / "document.md"
    document.write_text(f"# Kept\n\n<!-- {name} -->\nformer figures\n<!-- end {name} -->\n\nkept\n")
    assert render.main([str(out), "--document", str(document), "--changed"]) == 0
    text = document.read_text()
    assert text.startswith("# Kept\n") and text.endswith("\nkept\n") and "former" not in text
    assert report["commit"][:12] in text and render.NOTHING not in text
    return report


def test_throughput_in_three_cases(tmp_path: Path) -> None:
    report = run(
        throughput, tmp_path, "--peers", "holdfast,bare", "--repeat", "1", "--seconds", "0", "--messages", "200",
        "--cases", "1024,65536,100x2one", "--sync-messages", "0",
    )  # fmt: skip
    assert set(report["cases"]) == {"1024", "65536", "100x2one"}
    assert report["figure"] == report["cases"]["1024"]["figure"] and report["figure"]["n"] == 1
    assert set(report["cases"]["1024"]["ratio"]) == {"bare"} and report["cases"]["65536"]["ratio"] == {}
    assert [case["queues"] for case in report["cases"].values()] == [1, 1, 1]


@pytest.mark.parametrize("text", ["", "x2", "1024x", "1024x0", "7", "131001", "1024x201", "1024xone"])
def test_cases_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--cases"):
        throughput.parse_case(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("8", (8, 1, False)), ("131000x200", (131_000, 200, False)), ("1024x4one", (1024, 4, True))]
)
def test_cases_that_are_accepted(text: str, expected: tuple[int, int, bool]) -> None:
    case = throughput.parse_case(text)
    assert (case.size, case.pairs, case.shared) == expected


def test_latency(tmp_path: Path) -> None:
    report = run(latency, tmp_path, "--peers", "holdfast,bare", "--repeat", "2", "--seconds", "0.2", "--rate", "200")
    own = report["results"]["holdfast"]
    assert own["p50_ms"]["median"] <= own["p99_ms"]["median"] <= own["max_ms"]["median"]
    assert set(report["ratio"]) == {"file_commit", "store_commit", "bare", "limit"}
    limits = [2 * value + 2 for value in report["results"]["file_commit"]["p99_ms"]["runs"]]
    expected = [mine / limit for mine, limit in zip(own["p99_ms"]["runs"], limits, strict=True)]
    assert report["ratio"]["limit"]["runs"] == pytest.approx(expected, abs=0.01)


def test_many(tmp_path: Path) -> None:
    report = run(
        many, tmp_path, "--peers", "holdfast", "--repeat", "1", "--seconds", "0.2", "--rate", "200", "--connections",
        "8", "--queues", "20", "--backlog", "3000", "--messages", "500", "--size", "100",
    )  # fmt: skip
    assert report["absent"] == {} and set(report["parts"]) == {"connections", "queues", "backlog"}
    assert report["parts"]["backlog"]["ratio"]["empty"]["n"] == 1
    assert report["parts"]["queues"]["results"]["holdfast"]["start_s"]["median"] > 0


def test_footprint(tmp_path: Path) -> None:
    report = run(
        footprint, tmp_path, "--peers", "holdfast,bare", "--repeat", "1", "--idle", "0.1", "--burst", "50",
        "--rate", "100", "--seconds", "0.2", "--messages", "500",
    )  # fmt: skip
    assert (
        report["figure"]["idle_mb"] > 0 and report["results"]["holdfast"]["full_written_per_stored_byte"]["median"] > 1
    )


def test_selecting(tmp_path: Path) -> None:
    report = run(
        selecting, tmp_path, "--repeat", "1", "--messages", "300", "--size", "64", "--cases",
        "plain,none,all,half,hundredth,nonex2,allx2,eachx3",
    )  # fmt: skip
    cases = report["cases"]
    assert {name: (case["messages"], case["delivered"]) for name, case in cases.items()} == {
        "plain": (300, 300), "none": (300, 300), "all": (300, 300), "half": (300, 150), "hundredth": (300, 3),
        "nonex2": (300, 300), "allx2": (300, 300), "eachx3": (300, 300),
    }  # fmt: skip
    assert set(report["ratio"]) == set(cases) - {"none"} and report["figure"] == cases["all"]["messages_per_s"]
    each = cases["eachx3"]
    assert each["looked_at_per_s"]["median"] == pytest.approx(3 * each["messages_per_s"]["median"], rel=0.01)
    assert cases["nonex2"]["looked_at_per_s"] is None


def test_sorting(tmp_path: Path) -> None:
    report = run(sorting, tmp_path, "--repeat", "1", "--messages", "300", "--size", "64")
    cases = [f"{name} {phase}" for phase in sorting.PHASES for name in sorting.CASES]
    assert list(report["messages_per_s"]) == cases
    assert set(report["ratio"]) == {case for case in cases if not case.startswith(f"{sorting.AGAINST} ")}
    assert report["figure"] == report["messages_per_s"]["sorts-drawn live"]


@pytest.mark.parametrize("text", ["", "x2", "eachx", "eachx0", "eachx201", "other", "allx2x2"])
def test_selecting_cases_that_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert selecting.main(["--cases", text, "--data", str(tmp_path)]) == 2
    assert "for --cases" in capsys.readouterr().err


def test_topics(tmp_path: Path) -> None:
    report = run(
        topics, tmp_path, "--peers", "holdfast", "--repeat", "1", "--messages", "400", "--deliveries", "800",
        "--cases", "durable1,durable4,patterns4,memory2",
    )  # fmt: skip
    found = {name: case["results"]["holdfast"] for name, case in report["cases"].items()}
    assert {name: (row["messages"], row["delivered"]) for name, row in found.items()} == {
        "durable1": (400, 400), "durable4": (200, 800), "patterns4": (400, 400), "memory2": (400, 800),
    }  # fmt: skip
    assert found["durable4"]["written_bytes_per_message"]["median"] > 1024, "stored"
    assert found["memory2"]["written_bytes_per_message"]["median"] < 1024, "not stored"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--cases", "durable"], "--cases"), (["--cases", "durable0"], "--cases"),
        (["--cases", "memory201"], "--cases"),
        (["--peers", "bare"], "--peers"), (["--peers", "other"], "--peers"), (["--size", "1101"], "--size"),
    ],
)  # fmt: skip
def test_topics_arguments_that_are_refused(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topics.main([*arguments, "--data", str(tmp_path)]) == 2
    assert f"for {told}" in capsys.readouterr().err


def test_federated(tmp_path: Path) -> None:
    report = run(
        federated, tmp_path, "--peers", "holdfast", "--repeat", "1", "--messages", "200", "--keys", "20",
        "--many-keys", "30", "--hop-keys", "300",
    )  # fmt: skip
    assert report["hop_s"]["300"]["n"] == 1
    found = report["results"]["holdfast"]
    assert (found["messages"], found["deliveries_per_s"]["n"]) == (200, 1)
    for count in ("20", "30"):
        assert found["keys_s"][count]["n"] == 1 and found["keys_per_s"][count]["median"] > 0


def test_a_federated_peer_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert federated.main(["--peers", "bare", "--data", str(tmp_path)]) == 2
    assert "for --peers" in capsys.readouterr().err


def test_tables(tmp_path: Path) -> None:
    report = run(tables, tmp_path, "--nodes", "4,128", "--repeat", "1")
    assert set(report["cases"]) == {"4 drawn", "4 equal", "128 drawn", "128 equal"}
    assert [case["edges"] for case in report["cases"].values()] == [12, 12, 512, 512]


def test_a_trace_costs_less_by_aliases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace_bytes.json"
    assert trace_bytes.main(["--messages", "20", "--nodes", "1", "64", "--json-out", str(out)]) == 0
    report = json.loads(capsys.readouterr().out)
    one, most = report["results"]
    assert report == json.loads(out.read_text()) and (one["passed"], most["passed"]) == (1, 64)
    assert most["full_bytes"] - one["full_bytes"] > 63 * 16
    assert most["aliased_bytes"] - one["aliased_bytes"] < 63 * 16 / 4
    document = tmp_path / "document.md"
    document.write_text("<!-- trace_bytes -->\n<!-- end trace_bytes -->\n")
    assert render.main([str(out), "--document", str(document), "--changed"]) == 0
    assert f"| 64 | {render.number(most['full_bytes'], 1)} |" in document.read_text()


def test_figures_of_changed_sources_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"benchmark": "simulator", "commit": "0" * 40 + "+changes"}))
    document = tmp_path / "document.md"
    document.write_text("kept")
    assert render.main([str(file), "--document", str(document)]) == 2
    assert "had changes" in capsys.readouterr().err and document.read_text() == "kept"


def test_an_unknown_benchmark_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"benchmark": "other", "commit": "0" * 40}))
    assert render.main([str(file)]) == 2
    assert "'other'" in capsys.readouterr().err


def test_the_document_has_a_place_for_every_benchmark() -> None:
    text = render.DOCUMENT.read_text(encoding="utf-8")
    for name in render.RENDERERS:
        assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- end {name} -->\n") == 1
