"""A copy of the sources, at a path of its own that comes before the installed ones."""

import compileall
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from mutation.places import ROOT, SOURCES, python_path


class Copy:
    """Compiled modules are kept but for those that are changed."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._package = directory / "holdfast"
        shutil.copytree(SOURCES, self._package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self._package, quiet=2)
        self.environment = os.environ | {
            "PYTHONPATH": python_path(directory),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def rewrite(self, name: str, change: Callable[[str], str]) -> None:
        """Changes the text of the module that has that path in the sources. It is not compiled."""
        path = self._package / Path(name).relative_to(SOURCES.relative_to(ROOT))
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(change(path.read_text()))

    def add(self, name: str, text: str) -> None:
        """A module beside the copy."""
        (self._root / f"{name}.py").write_text(text)
