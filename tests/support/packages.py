"""Our packages: those of the three distributions, and those that a node's logic is made of."""

from importlib.util import find_spec
from pathlib import Path


def _directory(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


HOLDFAST, LAB, SPARK = OURS = tuple(map(_directory, ("holdfast", "holdfast_lab", "pyspark_holdfast")))
MODULES = sorted(path for package in OURS for path in package.rglob("*.py"))


def module_path(path: Path) -> str:
    """As texts name it: from where imports begin, of `holdfast` from below it."""
    package = next(package for package in OURS if path.is_relative_to(package))
    return path.relative_to(package.parent).as_posix().removeprefix("holdfast/")


NODE = (
    "amqp", "broker", "core", "custody", "endpoints", "engine", "links", "management", "peering", "peers", "state",
)  # fmt: skip
