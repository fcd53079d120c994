"""The import graph in docs/ARCHITECTURE.md is that of the code."""

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import imports  # noqa: E402, found by the line above


def test_the_document_has_the_graph_of_the_code() -> None:
    found = imports.BLOCK.search(imports.DOCUMENT.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2].splitlines() == imports.lines_of(imports.PACKAGE), "run `make graph`"


def test_what_comes_through_another_package_is_left_out(tmp_path: Path) -> None:
    package = tmp_path / "p"
    for name, source in {"a": "import p.b.m\nimport p.c.m\n", "b": "from p.c import m\n", "c": ""}.items():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
        (package / name / "m.py").write_text(source)
    (package / "__init__.py").touch()
    assert imports.lines_of(package) == ["a  b", "b  c", "c"]
