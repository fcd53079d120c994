"""Each invariant of a node is alive: one corruption for each, of exactly what it looks at, and it is raised (ADR 0020).

Rules of this file: an invariant is a call of `must` or `alive` in a module `validation`, or in core/invariants.py.
After a corruption (support/corruption.py) the check must be raised from that very call.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

import holdfast
from holdfast.errors import BrokenInvariant
from support import (
    corruptions,
    delivery_limit_corruptions,
    federation_corruptions,
    group_corruptions,
    pacing_corruptions,
    queue_corruptions,
    queue_link_corruptions,
    transaction_corruptions,
)
from support.corruption import CORRUPTIONS, Corruption
from support.standing import (
    Standing,
    apart,
    committing,
    deciding,
    delaying,
    federating,
    limiting,
    linking,
    of_each,
    pacing,
    publishing,
    rejecting,
    selecting,
    sending,
    serving,
    streaming,
    transacting,
    waiting,
)

ALL = (
    apart, committing, deciding, delaying, federating, limiting, linking, pacing, publishing, rejecting, selecting,
    sending, serving, streaming, transacting, waiting,
)  # fmt: skip

SOURCES: Final = Path(holdfast.__file__).parent
RAISES: Final = ("must", "alive")


@cache
def invariants() -> dict[str, tuple[Path, int]]:
    """Where each is raised, by `PACKAGE: TEXT` with `{}` for what a text names."""
    found: dict[str, tuple[Path, int]] = {}
    for path in (*sorted(SOURCES.rglob("validation.py")), SOURCES / "core" / "invariants.py"):
        package = str(path.parent.relative_to(SOURCES)).replace("/", ".")
        for call in _calls(ast.parse(path.read_text())):
            assert isinstance(call.func, ast.Name)
            name = f"{package}: {_text(call.args[1 if call.func.id == 'must' else 2])}"
            while name in found:
                name += " (another)"
            found[name] = path, call.lineno
    return found


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name not in RAISES:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISES:
                    yield node


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr), ast.unparse(node)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def raised_at(traceback: TracebackType | None) -> tuple[Path, int]:
    """Of the innermost frames, the first that is an invariant and not what all of them call."""
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_lineno))
        traceback = traceback.tb_next
    while frames[-1][0].co_name in RAISES:
        frames.pop()
    code, line = frames[-1]
    return Path(code.co_filename), line


def test_each_invariant_has_a_corruption() -> None:
    adding = (corruptions, delivery_limit_corruptions, group_corruptions, queue_corruptions, queue_link_corruptions)
    assert all((*adding, federation_corruptions, pacing_corruptions, transaction_corruptions)), "which add theirs"
    assert {name for name, _, _ in CORRUPTIONS} == set(invariants())


@pytest.mark.parametrize(("name", "make", "corruption"), CORRUPTIONS, ids=[item[0] for item in CORRUPTIONS])
def test_a_corruption_is_found(name: str, make: Callable[[], Standing], corruption: Corruption) -> None:
    found = of_each(make)
    corruption(found)
    with pytest.raises(BrokenInvariant) as error:
        found.core.validate()
    assert raised_at(error.tb) == invariants()[name], error.value


@pytest.mark.parametrize("make", ALL)
def test_nothing_is_broken_before(make: Callable[[], Standing]) -> None:
    """At any of the moments: whole, and with each bound on what is read."""
    core = of_each(make).core
    for entries_max in (0, 1, 5, None):
        core.validate(entries_max=entries_max)
