"""The import graph in docs/ARCHITECTURE.md is that of the code."""

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import imports  # noqa: E402, found by the line above


def test_the_document_has_the_graph_of_the_code() -> None:
    found = imports.BLOCK.search(imports.DOCUMENT.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2].splitlines() == imports.lines_of(imports.PACKAGE, *imports.BESIDE), "run `make graph`"


def test_what_comes_through_another_package_is_left_out(tmp_path: Path) -> None:
    package = tmp_path / "p"
    for name, source in {"a": "import p.b.m\nimport p.c.m\n", "b": "from p.c import m\n", "c": ""}.items():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
        (package / name / "m.py").write_text(source)
    (package / "__init__.py").touch()
    assert imports.lines_of(package) == ["a  b", "b  c", "c"]


def test_a_package_beside_is_one_line(tmp_path: Path) -> None:
    for name, source in {
        "p/a/__init__.py": "",
        "q/__init__.py": "",
        "q/m.py": "from q import n",
        "q/n.py": "import p.a",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert imports.lines_of(tmp_path / "p", tmp_path / "q") == ["q  a", "a"]
