"""The documents say what is so: every test that docs/GUARANTEES.md names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8"))


def test_guarantees_name_tests() -> None:
    lines = [line for line in (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    promises = [line for line in lines if not line.startswith(("|---", "| promise"))]
    assert promises
    assert [line for line in promises if "::test_" not in line] == []


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_it_is_there(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert name in names
