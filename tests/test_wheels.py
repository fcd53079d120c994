"""The three distributions, built as wheels and installed into empty environments.

Decision: docs/adr/0058-three-distributions.md. Nothing is taken from a network: what `holdfast` needs is copied from
the environment that runs the tests.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from holdfast import __version__
from support.documents import ROOT

SOURCES = {"holdfast": "", "holdfast_lab": "lab", "pyspark_holdfast": "spark"}
"""Each distribution's package, and the directory of its pyproject.toml."""
DEPENDENCIES = ("lark", "lmdb", "prometheus_client", "shtab", "uvloop")
LIMIT_S = 240.0
HOLDFAST_MB_MAX = 4.5
"""Of the package, unpacked and without compiled modules."""


def run(*command: object, within_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Outside of this checkout: nothing on PYTHONPATH."""
    words = [str(word) for word in command]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, capture_output=True, text=True, timeout=within_s, env=given, cwd="/", check=False)


def pip(*arguments: object) -> None:
    done = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """By package. Built from a copy, so that no build directory is left in the source."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for directory in SOURCES.values():
        (copy / directory).mkdir(exist_ok=True)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / directory / name, copy / directory / name)
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / directory / "src", copy / directory / "src", ignore=left_out)
    places = [copy / directory for directory in SOURCES.values()]
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", built, *places)
    return {path.name.partition("-")[0]: path for path in built.glob("*.whl")}


class Environment:
    """An environment of its own, with nothing in it but what `holdfast` depends on."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, with_pip=False, symlinks=True)
        self.bin = directory / "bin"
        (packages,) = directory.glob("lib/python*/site-packages")
        for name in DEPENDENCIES:
            for file in distribution(name).files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    (packages / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file.locate(), packages / file)

    def install(self, *wheels: Path) -> None:
        pip("--python", self.bin / "python", "install", "--no-index", "--no-deps", "--no-compile", *wheels)

    def lacks(self, package: str) -> bool:
        return run(self.bin / "python", "-c", f"import {package}").returncode != 0

    def holdfast(self, *words: object) -> subprocess.CompletedProcess[str]:
        return run(self.bin / "holdfast", *words)


@pytest.fixture(scope="module")
def alone(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With `holdfast` alone."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(wheels["holdfast"])
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def metadata_of(package: str, files: Mapping[str, bytes], name: str) -> str:
    return files[f"{package}-{__version__}.dist-info/{name}"].decode()


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_holds_its_package_whole_and_nothing_else(package: str, wheels: Mapping[str, Path]) -> None:
    files = contents(wheels[package])
    assert {name.partition("/")[0] for name in files} == {package, f"{package}-{__version__}.dist-info"}
    source = ROOT / SOURCES[package] / "src"
    own = [path for path in (source / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {name for name in files if name.startswith(f"{package}/")} == {
        path.relative_to(source).as_posix() for path in own
    }
    assert f"{package}/py.typed" in files
    assert metadata_of(package, files, "licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_what_a_run_of_the_lab_reads_is_in_its_wheel(wheels: Mapping[str, Path]) -> None:
    """And no module of what runs a node speaks of a planted defect."""
    files = contents(wheels["holdfast_lab"])
    wanted = ("powerloss/shim.c", "scenarios/line-cut.toml", "demo/sixteen.toml", "canaries/seeds.py")
    assert all(f"holdfast_lab/{name}" in files for name in wanted)
    product = contents(wheels["holdfast"])
    assert not [name for name, data in product.items() if re.search(rb"canar(y|ies)|holdfast_lab\.", data)]
    assert sum(map(len, product.values())) < HOLDFAST_MB_MAX * 1_000_000


def test_all_three_have_one_version(wheels: Mapping[str, Path]) -> None:
    for package, directory in SOURCES.items():
        metadata = metadata_of(package, contents(wheels[package]), "METADATA")
        assert f"\nVersion: {__version__}\n" in metadata
        project = tomllib.loads((ROOT / directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = [name for names in project.get("optional-dependencies", {}).values() for name in names]
        ours = [name for name in (*project["dependencies"], *extras) if "holdfast" in name]
        assert all(name.endswith(f"=={__version__}") for name in ours)
        assert bool(ours) is (package != "holdfast")


def test_holdfast_alone_says_its_version_and_has_all_that_it_needs(alone: Environment) -> None:
    assert alone.holdfast("--version").stdout == f"holdfast {__version__}\n"
    pip("--python", alone.bin / "python", "check")
    assert alone.lacks("holdfast_lab") and alone.lacks("pyspark_holdfast") and alone.lacks("pip")


def test_holdfast_alone_serves(alone: Environment, tmp_path: Path) -> None:
    words = [alone.bin / "holdfast", "node", "--listen", "127.0.0.1:0", "--data", tmp_path / "data"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
        try:
            assert node.stdout is not None
            ready = node.stdout.readline()
            found = re.search(r"amqp=(\S+)", ready)
            assert found is not None, ready
            url = f"amqp://{found[1]}"
            (tmp_path / "lines").write_text("one\ntwo\n")
            sent = alone.holdfast("send", "work", tmp_path / "lines", "--url", url)
            assert sent.returncode == 0, sent.stderr
            received = alone.holdfast("receive", "work", "--count", "2", "--url", url)
            assert (received.returncode, received.stdout) == (0, "one\ntwo\n"), received.stderr
            node.send_signal(signal.SIGTERM)
            assert node.wait(LIMIT_S) == 0
        finally:
            node.kill()


@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        ("sim", "holdfast-lab"),
        ("fleet up", "holdfast-lab"),
        ("demo", "holdfast-lab"),
        ("pipeline", "pyspark-holdfast"),
    ],
)
def test_holdfast_alone_says_what_to_install(verb: str, missing: str, alone: Environment) -> None:
    told = alone.holdfast(*verb.split(), "--help")
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (2, "", 1)
    assert told.stderr.startswith(
        f"holdfast {verb.partition(' ')[0]}: distribution '{missing}' is not installed; install it by"
    )


def test_a_fleet_says_which_package_it_needs(alone: Environment, tmp_path: Path) -> None:
    """And shows its help without it."""
    assert "enrol" in alone.holdfast("fleet", "--help").stdout
    told = alone.holdfast("fleet", "request", "--site", tmp_path, "--out", tmp_path / "csr")
    assert told.returncode == 2 and told.stderr.count("\n") == 1
    assert told.stderr.startswith("holdfast fleet request: package 'cryptography' is not installed; install it by")


def test_the_others_bring_their_verbs(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    """The lab runs a scenario; Spark's distribution says that Spark is missing."""
    environment = Environment(tmp_path / "environment")
    environment.install(wheels["holdfast"], wheels["holdfast_lab"])
    pip("--python", environment.bin / "python", "check")
    told = environment.holdfast("sim", "run", "hub-restarts", "--seed", "1", "--json")
    assert told.returncode == 0 and '"ok": true' in told.stdout, told.stderr
    told = environment.holdfast("demo", "--out", tmp_path / "demo")
    assert told.returncode == 2 and "package 'pyspark' is not installed" in told.stderr
    environment.install(wheels["pyspark_holdfast"])
    assert "pipeline" in environment.holdfast("--help").stdout
    told = environment.holdfast("pipeline", "ingest", "work", "--out", tmp_path / "table")
    assert told.returncode == 2 and re.search(r"package '(pyspark|pyarrow|py4j)' is not installed", told.stderr), (
        told.stderr
    )
