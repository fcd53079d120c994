"""The files in operations/: the unit, the alert rules and the dashboard fit to what a node is and tells."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from holdfast import __version__
from support.documents import ROOT

FOLDER = ROOT / "operations"
DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OURS = set(re.findall(r"^\| `(holdfast_\w+)` \| (\w+)", DOCUMENT, re.M))
"""Names and kinds of the document's table, which tests/node/test_admin.py compares with what a node tells."""
KINDS = dict(OURS)
BUCKETS = {f"{name}{end}" for name, kind in OURS if kind == "histogram" for end in ("_bucket", "_sum", "_count")}


def expressions() -> list[str]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    rules = (FOLDER / "alerts.yml").read_text()
    found += re.findall(r"expr: >\n((?:          .*\n)+)", rules) + re.findall(r"expr: ([^>\n].*)", rules)
    return found


def test_there_are_expressions_and_they_name_metrics_that_a_node_tells() -> None:
    named = {name for text in expressions() for name in re.findall(r"\bholdfast_\w+", text)}
    assert len(named) > 15 and named <= set(KINDS) | BUCKETS, named - set(KINDS) - BUCKETS


def test_rates_are_of_counters_and_slopes_of_gauges() -> None:
    for text in expressions():
        for function, name in re.findall(r"\b(rate|increase|delta|deriv|predict_linear)\((holdfast_\w+)", text):
            counts = name in BUCKETS or KINDS[name] == "counter"
            assert counts == (function in ("rate", "increase")), (function, name)


def test_each_alert_has_an_expression_a_severity_and_a_line_for_a_person() -> None:
    rules = (FOLDER / "alerts.yml").read_text().split("      - alert: ")[1:]
    names = [rule.partition("\n")[0] for rule in rules]
    assert len(names) >= 10 and len(set(names)) == len(names)
    for rule in rules:
        assert "        expr: " in rule and 'summary: "' in rule
        assert re.search(r"labels: \{severity: (warning|critical)\}", rule), rule


def test_what_an_operator_must_hear_of_has_an_alert() -> None:
    names = re.findall(r"- alert: (\w+)", (FOLDER / "alerts.yml").read_text())
    wanted = {"SiteSilent", "CustodyOld", "QueueOverflows", "StoreOverflows", "Disk", "DeadLetters", "Drained"}
    assert {f"Holdfast{name}" for name in wanted} <= set(names)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here; it comes with Prometheus")
def test_promtool_accepts_the_rules() -> None:
    command = ["promtool", "check", "rules", str(FOLDER / "alerts.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


CASES = (
    ("HoldfastDrained", "holdfast_drained", {}, "0x10 1x900", "12h", "12h12m"),
    ("HoldfastSiteSilent", "holdfast_session_up", {"neighbour": "hub"}, "1x10 0x30", "15m", "22m"),
    ("HoldfastRemoteDown", "holdfast_remote_up", {"remote": "mq"}, "1x10 0x30", "15m", "22m"),
    ("HoldfastCustodyOld", "holdfast_custody_oldest_seconds", {"destination": "hub"}, "0+60x100", "1h4m", "1h7m"),
    ("HoldfastDisk", "holdfast_disk_ok", {}, "1x10 0x10", "10m", "13m"),
    ("HoldfastDeadLetters", "holdfast_dead_letters_messages", {}, "5x10 6x10", "10m", "12m"),
    ("HoldfastStoreOverflows", "holdfast_store_room_bytes", {}, "1000000x60 1000000-5000x60", "1h", "1h40m"),
)
"""An alert; a metric with its labels and its values, one a minute; a time at which there is none, and one at which it
fires."""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here; it comes with Prometheus")
@pytest.mark.parametrize(("alert", "metric", "labels", "values", "quiet", "fires"), CASES)
def test_an_alert_fires_when_it_should(
    alert: str, metric: str, labels: dict[str, str], values: str, quiet: str, fires: str, tmp_path: Path
) -> None:
    """JSON is YAML. What the rules say of it is their own text."""
    rules = (FOLDER / "alerts.yml").read_text().partition(f"alert: {alert}\n")[2]
    summary, severity = (re.search(form, rules) for form in (r'summary: "(.*)"', r"severity: (\w+)"))
    assert summary and severity
    labels = {"instance": "jfk", "job": "holdfast", **labels}
    told = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], summary[1])
    series = metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
    fired = {"exp_labels": {"severity": severity[1], **labels}, "exp_annotations": {"summary": told}}
    tests = {
        "rule_files": [str(FOLDER / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "alert_rule_test": [
                    {"eval_time": quiet, "alertname": alert, "exp_alerts": []},
                    {"eval_time": fires, "alertname": alert, "exp_alerts": [fired]},
                ],
            }
        ],
    }
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(tests))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze; .ci/packages.sh installs it")
@pytest.mark.parametrize("name", ["holdfast.service", "holdfast-agent.service"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    program = shutil.which("true")
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={program}", (FOLDER / name).read_text(), flags=re.M)
    unit = tmp_path / name
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    assert done.returncode == 0 and not said, done.stdout + done.stderr


EXPOSURE_MAX = {"holdfast.service": 20, "holdfast-agent.service": 30}
"""How much a unit may do, as systemd-analyze(1) counts it, from 0 to 100; a unit without a sandbox has 96."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze; .ci/packages.sh installs it")
@pytest.mark.parametrize(("name", "most"), EXPOSURE_MAX.items())
def test_the_sandbox_of_a_unit_leaves_little(name: str, most: int) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={most}", FOLDER / name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if line.startswith(("✗", "→")))


@cache
def builder() -> str | None:
    """The program that builds containers here, and answers."""
    programs = [program for program in ("podman", "docker") if shutil.which(program)]
    asked = (subprocess.run([name, "info"], capture_output=True, timeout=60, check=False) for name in programs)
    return next((program for program, done in zip(programs, asked, strict=False) if done.returncode == 0), None)


@pytest.mark.interop
def test_the_container_is_built_and_its_node_is_no_root() -> None:
    program = builder()
    if program is None:
        pytest.skip("no container builder answers here: podman or docker")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=600, check=False)

    bases = re.findall(r"^FROM (\S+)", (FOLDER / "Containerfile").read_text(), re.M)
    if any(run("pull", base).returncode for base in set(bases)):
        pytest.skip("the container's base image cannot be had here")
    image = "holdfast-tested"
    built = run("build", "-f", str(FOLDER / "Containerfile"), "-t", image, str(ROOT))
    assert built.returncode == 0, built.stdout + built.stderr
    try:
        sandbox = ("run", "--rm", "--read-only", "--network=none", "--cap-drop=all")
        who = run(*sandbox, "--entrypoint=id", image, "-u")
        version = run(*sandbox, "--entrypoint=/opt/holdfast/bin/holdfast", image, "--version")
        assert (who.stdout, version.stdout) == ("964\n", f"holdfast {__version__}\n"), who.stderr + version.stderr
    finally:
        run("rmi", image)


def test_the_container_runs_a_node_as_nobody_in_particular() -> None:
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    user = next(line for line in lines if line.startswith("USER "))
    assert user.split()[1].isdigit() and user.split()[1] != "0"
    assert lines.index(user) < next(number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
