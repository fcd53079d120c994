"""Import circles: clean packages stay without one, and the circles of the others only shrink (docs/adr/0001).

An import counts wherever it stands: at the top of a module, under TYPE_CHECKING, inside a function. That a module loads
the `__init__` of the packages above it does not count; a name that is imported from such an `__init__` does.
"""

import sys
from functools import cache
from pathlib import Path

import networkx
import pytest

import holdfast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from imports import BESIDE, import_graph

CLEAN = (
    "access", "amqp", "broker", "cli", "client", "core", "custody", "endpoints", "engine", "federation", "fleet",
    "links", "management", "node", "pacing", "peering", "peers", "queue_links", "routing", "selectors", "settings",
    "state", "steps", "storage", "telemetry",
)  # fmt: skip
"""Packages whose modules can be read in an order in which each imports only modules before it."""

CIRCLE_SIZES = {"holdfast_lab": [], "pyspark_holdfast": []}
"""Of the packages of other distributions: how many modules each circle has, the largest first. As lists, they may only
go down."""


def circles(graph: networkx.DiGraph) -> list[set[str]]:
    """Sets of modules that all import each other, directly or through others; the largest first. A module that imports
    itself, to be found by its name in another process, is none."""
    found = [group for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    return sorted(found, key=len, reverse=True)


def example(graph: networkx.DiGraph) -> str:
    """One way round, for whoever has to break it."""
    return " -> ".join(edge[0] for edge in networkx.find_cycle(graph)) + " -> ..."


PACKAGE = Path(holdfast.__file__).parent


@cache
def whole() -> networkx.DiGraph:
    """Drawn in the process that runs these tests, and not in each that collects them."""
    return import_graph(PACKAGE, *BESIDE)


def part(prefix: str) -> networkx.DiGraph:
    """The modules of one package, and their imports of each other."""
    return whole().subgraph([name for name in whole() if name == prefix or name.startswith(f"{prefix}.")])


def package_name(module: str) -> str:
    """The distribution's package, below `holdfast` the package there."""
    first, *parts = module.split(".")
    return parts[0] if first == "holdfast" and parts else first


@pytest.mark.parametrize("package", CLEAN)
def test_package_has_no_circle(package: str) -> None:
    graph = part(f"holdfast.{package}")
    assert graph, f"holdfast.{package} has no modules"
    assert not circles(graph), f"holdfast.{package} imports in a circle: {example(graph)}"


def parts_of(package: str) -> networkx.DiGraph:
    """What stands directly in a package, modules and packages, and their imports of each other."""
    graph = networkx.DiGraph()
    for one, other in part(package).edges:
        first, second = (name[len(package) + 1 :].partition(".")[0] for name in (one, other))
        if first and second and first != second:
            graph.add_edge(first, second)
    return graph


def test_no_circle_between_the_parts_of_a_package() -> None:
    """A package within another imports only what does not import it back."""
    packages = sorted({name.rpartition(".")[0] for name in whole() if name.count(".") > 1})
    assert "holdfast.broker.entries" in packages
    for package in packages:
        assert not circles(parts_of(package)), f"{package}: {example(parts_of(package))}"


@pytest.mark.parametrize(("package", "sizes"), CIRCLE_SIZES.items())
def test_circles_do_not_grow(package: str, sizes: list[int]) -> None:
    found = circles(part(package))
    now = [len(circle) for circle in found]
    assert now <= sizes, f"circles of {package} grew from {sizes} to {now}: {[sorted(circle) for circle in found]}"
    assert now == sizes, f"circles of {package} shrank from {sizes} to {now}: write the new sizes here"


def test_each_package_is_listed_once() -> None:
    packages = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert sorted(CLEAN) == packages, "a new package belongs to CLEAN"


def test_no_circle_spans_packages() -> None:
    for circle in circles(whole()):
        assert len({package_name(name) for name in circle}) == 1, sorted(circle)


# ------------------------------------------------------------------------------------------ the check itself


def package_of(folder: Path, sources: dict[str, str]) -> Path:
    package = folder / "p"
    for name, source in {"__init__.py": "", **sources}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return package


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "import p.a as other",
        "from p import a",
        "from p.a import A",
        "from . import a",
        "from .a import A",
        "from p.a import *",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A",
        "def f():\n    from p.a import A",
        "class B:\n    import p.a",
    ],
)
def test_the_check_finds_a_circle(back: str, tmp_path: Path) -> None:
    graph = import_graph(package_of(tmp_path, {"a.py": "from p.b import B", "b.py": back, "c.py": "import p.a"}))
    assert circles(graph) == [{"p.a", "p.b"}]
    assert "p.a -> p.b" in example(graph)


def test_the_check_finds_circles_through_packages(tmp_path: Path) -> None:
    """A name that a package's `__init__` imported, and an import from above the module's own package."""
    sources = {
        "q/__init__.py": "from p.q.a import A",
        "q/a.py": "from p.q import A",
        "b.py": "",
        "q/b.py": "from .. import q",
    }
    graph = import_graph(package_of(tmp_path, sources))
    assert circles(graph) == [{"p.q", "p.q.a"}]
    assert graph.has_edge("p.q.b", "p.q")


def test_the_check_accepts_an_order(tmp_path: Path) -> None:
    sources = {
        "a.py": "import os\nfrom p.b import B",
        "b.py": "from p import c",
        "c.py": "import json",
        "d.py": "import p.a",
    }
    assert circles(import_graph(package_of(tmp_path, {"__init__.py": "from p.a import A", **sources}))) == []
