"""Which packages of Holdfast import which, drawn from the code for docs/ARCHITECTURE.md.

    .venv/bin/python tools/imports.py [--write]

Prints a line for each package, each below those that it is imported by, with what it imports. What comes through a
package that is listed is left out. An import counts wherever it stands, for types alone too. `--write` puts the lines
into the document; a test compares them.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import networkx  # type: ignore[import-untyped]  # it has no types

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "holdfast"
BESIDE: Final = (ROOT / "lab" / "src" / "holdfast_lab", ROOT / "spark" / "src" / "pyspark_holdfast")
"""Packages of other distributions, each one line."""
DOCUMENT: Final = ROOT / "docs" / "ARCHITECTURE.md"
BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of Python's statements that hold statements, or clauses that do."""
BLOCK: Final = re.compile(r"(<!-- imports: make graph -->\n```\n)(.*?)(```\n)", re.DOTALL)


def modules_in(package: Path) -> dict[str, Path]:
    """The package's modules by dotted name; a package itself stands for its `__init__`."""
    found = {}
    for path in package.rglob("*.py"):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements_of(tree: ast.Module) -> Iterable[ast.stmt]:
    """Every statement, however deep. Expressions, nine tenths of a tree, hold none, and are not looked at."""
    blocks: list[ast.AST] = [tree]
    while blocks:
        block = blocks.pop()
        if isinstance(block, ast.stmt):
            yield block
        for name in BLOCKS:
            blocks += getattr(block, name, ())


def imports_of(name: str, path: Path) -> Iterable[tuple[str, str | None]]:
    """(module, name imported from it or None) for each import anywhere in the module `name`."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements_of(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((module, alias.name) for alias in node.names)


def import_graph(*packages: Path) -> networkx.DiGraph:
    """An edge from each module of these packages to each of their modules that it imports."""
    modules = {name: path for package in packages for name, path in modules_in(package).items()}
    graph = networkx.DiGraph()
    graph.add_nodes_from(modules)
    for name, path in modules.items():
        for module, attribute in imports_of(name, path):
            submodule = f"{module}.{attribute}"
            imported = submodule if submodule in modules else module
            if imported in modules:
                graph.add_edge(name, imported)
    return graph


def packages_of(modules: networkx.DiGraph, package: Path, *beside: Path) -> networkx.DiGraph:
    """An edge from each package below `package`, and each of those `beside` it, to each that it imports."""
    own = {path.parent.name for path in package.glob("*/__init__.py")}
    others = {path.name for path in beside}
    graph = networkx.DiGraph()
    graph.add_nodes_from(sorted(own | others))

    def name_of(module: str) -> str | None:
        first, *parts = module.split(".")
        if first in others:
            return first
        return parts[0] if parts and parts[0] in own else None

    for importer, imported in modules.edges:
        one, other = name_of(importer), name_of(imported)
        if one is not None and other is not None and one != other:
            graph.add_edge(one, other)
    return graph


def lines_of(package: Path, *beside: Path) -> list[str]:
    """What is printed. The packages must not import each other in a circle."""
    graph = packages_of(import_graph(package, *beside), package, *beside)
    direct = networkx.transitive_reduction(graph)
    width = max(map(len, graph))
    return [
        f"{name:{width}}  {' '.join(sorted(direct.successors(name)))}".rstrip()
        for name in networkx.lexicographical_topological_sort(graph)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the lines into docs/ARCHITECTURE.md")
    text = "".join(f"{line}\n" for line in lines_of(PACKAGE, *BESIDE))
    if parser.parse_args().write:
        document, count = BLOCK.subn(lambda found: found[1] + text + found[3], DOCUMENT.read_text(encoding="utf-8"))
        assert count == 1, f"{DOCUMENT} has no place for the lines"
        DOCUMENT.write_text(document, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
