"""Finds the mistakes that a run reaches: a copy of the sources that notes each statement with a mistake when it is
executed.

Rules of this file: what a copy does is what the sources do, and little slower; line numbers are not kept.
"""

import ast
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from mutation.copied import Copy
from mutation.operators import Mutant

MODULE: Final = "mutation_hits"
"""Beside the copy: `hits` has the numbers of all statements since it was last cleared."""
_SOURCE: Final = "hits = set()\nhit = hits.add\n"


def with_probes(text: str, numbered: Iterable[tuple[int, Mutant]]) -> str:
    """The module's source; before the innermost statement that has a mistake stands a note of its number."""
    tree = ast.parse(text)
    notes: dict[int, list[int]] = {}
    for number, mutant in numbered:
        notes.setdefault(id(_innermost(tree, mutant.line)), []).append(number)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                setattr(node, field, [item for statement in block for item in (*_notes(notes, statement), statement)])
    _add_import(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def _innermost(tree: ast.Module, line: int) -> ast.stmt:
    found: ast.stmt | None = None
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node
    assert found is not None, f"line {line} is in no statement"
    return found


def _notes(notes: dict[int, list[int]], statement: ast.stmt) -> list[ast.stmt]:
    numbers = notes.get(id(statement), ())
    return [ast.parse(f"_mutation_hit({number})").body[0] for number in numbers]


def _add_import(tree: ast.Module) -> None:
    """Behind the docstring and imports from __future__, which come first."""
    at = 0
    for at, statement in enumerate(tree.body):  # noqa: B007, it is used behind the loop
        documented = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not documented and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            break
    tree.body.insert(at, ast.parse(f"from {MODULE} import hit as _mutation_hit").body[0])


def plant(copy: Copy, mutants: Sequence[Mutant]) -> None:
    """The number of a mistake is its place in `mutants`."""
    copy.add(MODULE, _SOURCE)
    for name in {mutant.path for mutant in mutants}:
        mine = [(number, mutant) for number, mutant in enumerate(mutants) if mutant.path == name]
        copy.rewrite(name, partial(with_probes, numbered=mine))
