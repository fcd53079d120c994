"""Plants a mistake in a process that has loaded the sources: the functions that there are get other code.

Rules of this file: what refers to a function (a bound method, a table, a decorator) keeps it, so all of them do what
the mistake says. Nothing takes it back; a fork is planted, and ends (`forks.py`).
"""

import gc
import sys
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

from mutation.operators import Mutant
from mutation.places import ROOT, SOURCES

_PACKAGE: Final = "holdfast"


class Functions:
    """All functions of the sources that this process has, by where their code is. Made before the process forks."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._look()

    def plant(self, mutant: Mutant) -> None:
        """From here on. Loads the module if it is not; raises LookupError where nothing has the function's code."""
        path = ROOT / mutant.path
        text = path.read_text()
        old, new = (_function(compile(source, str(path), "exec", dont_inherit=True), mutant)
                    for source in (text, mutant.applied(text)))  # fmt: skip
        place = (str(path), old.co_qualname, old.co_firstlineno)
        if place not in self._at:
            import_module(_module(path))
            self._look()
        if place not in self._at:
            loaded = getattr(sys.modules[_module(path)], "__file__", None)
            raise LookupError(f"{mutant}: no function of {path} has this code; loaded is {loaded}")
        for function in self._at[place]:
            function.__code__ = new

    def _look(self) -> None:
        gc.unfreeze()  # what is frozen is not listed
        self._at.clear()
        beneath = str(SOURCES)
        for item in gc.get_objects():
            if type(item) is FunctionType and item.__code__.co_filename.startswith(beneath):
                code = item.__code__
                self._at.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(item)
        gc.freeze()


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join((_PACKAGE, *(part for part in parts if part != "__init__")))


def _function(code: CodeType, mutant: Mutant) -> CodeType:
    """The code of the outermost function with the mistake; those within it are among its constants."""
    for name in mutant.function.split("."):
        named = [item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == name]
        code = max((item for item in named if item.co_firstlineno <= mutant.line), key=lambda item: item.co_firstlineno)
        if code.co_flags & 1:  # CO_OPTIMIZED: a function, no class
            return code
    raise LookupError(f"{mutant}: it is in no function")
