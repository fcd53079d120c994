"""The generator of the API reference finds what is missing and what leads nowhere; the static stage runs it whole."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pdoc")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reference

SOURCE = '''
"""What it is.

Rules of this file: none.
"""

class Told:
    """Has `field`."""

    def __init__(self) -> None:
        self.field = 1
        self.other = 2

    def done(self) -> None:
        """Does it."""

    def untold(self) -> None: ...
'''


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Under a name of its own for each test: pdoc keeps what it has read."""
    name = f"told_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return import_module(name)


def test_a_page_has_the_public_names_alone(module: ModuleType) -> None:
    page = reference.public_module(module.__name__, {"Told": ("done", "field")})
    assert page.docstring == "What it is."
    assert list(page.members["Told"].members) == ["field", "done"]
    assert list(reference.undocumented(page)) == []


def test_public_names_without_a_docstring_are_found(module: ModuleType) -> None:
    page = reference.public_module(module.__name__, {"Told": ("field", "other", "untold")})
    assert sorted(reference.undocumented(page)) == [f"{module.__name__}.Told.{name}" for name in ("other", "untold")]


@pytest.mark.parametrize(
    ("public", "lacking"), [({"Gone": None}, "Gone"), ({"Told": ("gone",)}, "Told.gone")], ids=["class", "member"]
)
def test_a_public_name_that_is_not_there_is_found(module: ModuleType, public: reference.Names, lacking: str) -> None:
    with pytest.raises(reference.Mistake, match=rf"{module.__name__}\.{lacking}: not found"):
        reference.public_module(module.__name__, public)


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a id="x" href="b.html"></a><a href="#x"></a><a href="https://example.org"></a>')
    (tmp_path / "b.html").write_text('<a href="a.html#y"></a><a href="c.html"></a>')
    assert list(reference.broken_links(tmp_path)) == [
        "b.html: a.html#y leads nowhere",
        "b.html: c.html leads nowhere",
    ]
