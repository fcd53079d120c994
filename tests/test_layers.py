"""What the import linter cannot see: names, sizes and headers (docs/adr/0001-tools-and-layers.md)."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import holdfast
from support.each import each
from support.packages import MODULES, NODE, OURS, module_path

PACKAGE = Path(holdfast.__file__).parent
TESTS = Path(__file__).parent
TEST_MODULES = sorted(path for path in TESTS.rglob("*.py") if "node_modules" not in path.parts)
CORES = (*NODE, "federation", "routing", "selectors", "steps", "telemetry")
COMMAND_LINE = ("command.py", "commands.py")
LINES_MAX = 600

# Of these modules a core may use the types alone: they are handed in, so that every run can be repeated.
TYPES_ONLY = {"random": {"Random"}, "uuid": {"UUID"}}


def found_in(path: Path, find: Callable[[ast.Module], list[str]], words: Iterable[str]) -> list[str]:
    """What `find` finds in a module; whatever it finds has one of `words`, and a module without one is not parsed. Of
    text beyond ASCII Python may read a name that is written in another way."""
    text = path.read_text(encoding="utf-8")
    if text.isascii() and not any(word in text for word in words):
        return []
    return find(ast.parse(text, str(path)))


def forbidden_names(tree: ast.Module) -> list[str]:
    """Uses of chance, identity or a clock of one's own, as `line: name`."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module in TYPES_ONLY:
                taken = {alias.name for alias in names}
                found += [f"{node.lineno}: {module}.{name}" for name in sorted(taken - TYPES_ONLY[module])]
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in TYPES_ONLY:
                if name not in TYPES_ONLY[module]:
                    found.append(f"{node.lineno}: {module}.{name}")
            case ast.Attribute(
                value=ast.Name(id="datetime" | "date") | ast.Attribute(attr="datetime" | "date"),
                attr="now" | "utcnow" | "today" as name,
            ):
                found.append(f"{node.lineno}: datetime.{name}")
    return found


def environment_reads(tree: ast.Module) -> list[str]:
    """Reads of an environment variable, as `line: what`; handing the whole environment on is not one."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="getenv" | "getenvb"):
                found.append(f"{node.lineno}: os.getenv")
            case ast.Attribute(value=ast.Attribute(attr="environ"), attr="get" | "pop" | "setdefault"):
                found.append(f"{node.lineno}: os.environ.get")
            case ast.Subscript(value=ast.Attribute(attr="environ"), ctx=ast.Load()):
                found.append(f"{node.lineno}: os.environ[…]")
            case ast.ImportFrom(module="os", names=names):
                found += [f"{node.lineno}: os.{a.name}" for a in names if a.name in ("environ", "getenv")]
    return found


def header_and_size(path: Path) -> str:
    """The text of a module that has a header and a bounded size."""
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "does not say what it is for"
    assert text.count("\n") <= LINES_MAX, f"has more than {LINES_MAX} lines"
    return text


def test_module_has_a_header_and_a_bounded_size() -> None:
    def check(path: Path) -> None:
        left_open = re.findall(r"NotImplementedError|\bTODO\b|\bFIXME\b", header_and_size(path))
        assert not left_open, f"leaves open: {left_open}"

    each(MODULES, check, name=module_path)


def test_tests_have_a_header_and_a_bounded_size() -> None:
    each(TEST_MODULES, header_and_size)


def test_core_has_no_chance_identity_or_clock_of_its_own() -> None:
    def check(path: Path) -> None:
        assert not found_in(path, forbidden_names, (*TYPES_ONLY, "datetime", "date"))

    each((path for path in MODULES if module_path(path).split("/")[0] in CORES), check, name=module_path)


def test_environment_is_read_by_the_command_line_alone() -> None:
    def check(path: Path) -> None:
        assert not found_in(path, environment_reads, ("environ", "getenv"))

    each((path for path in MODULES if path.name not in COMMAND_LINE), check, name=module_path)


@pytest.mark.parametrize(
    "code",
    [
        "import random\nrandom.random()",
        "from random import randint",
        "import uuid\nuuid.uuid4()",
        "from uuid import UUID, uuid4",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
    ],
)
def test_the_check_sees_what_is_forbidden(code: str) -> None:
    assert len(forbidden_names(ast.parse(code))) == 1


@pytest.mark.parametrize(
    "code", ["from random import Random\nRandom(1).random()", "import uuid\nuuid.UUID(int=1)", "now = 1"]
)
def test_the_check_lets_types_through(code: str) -> None:
    assert not forbidden_names(ast.parse(code))


@pytest.mark.parametrize(
    ("package", "section"),
    [
        ("amqp", "Inside the protocol"),
        ("client", "Inside the client"),
        ("storage", "Inside the store"),
        ("node", "Inside a node's process"),
    ],
)
def test_the_order_of_a_packages_modules_is_the_one_in_the_docs(package: str, section: str) -> None:
    root = TESTS.parent
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    checked = next(
        contract["layers"] for contract in contracts if contract.get("containers") == [f"holdfast.{package}"]
    )
    text = (root / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, shown, *_ = text.partition(f"## {section}")[2].split("```")
    assert [re.split(r" {3,}", line)[0] for line in shown.strip().splitlines()] == checked


FILE_NAMED = re.compile(r"(?<![\w./-])([a-z_]+(?:/[a-z_0-9]+)*\.py)\b")
"""A file of Python that a text names, from the folder that it stands in or from the top."""


def test_a_file_that_a_module_names_is_there() -> None:
    """So that whoever reads it finds it: modules move, and texts about them do not."""

    def check(path: Path) -> None:
        whole = next(package for package in OURS if path.is_relative_to(package))
        folders = (path.parent, whole, PACKAGE, *(package.parent for package in OURS), TESTS.parent, TESTS)
        named = FILE_NAMED.findall(path.read_text(encoding="utf-8"))
        found = [any((folder / name).exists() for folder in folders) for name in named]
        missing = sorted({name for name, there in zip(named, found, strict=True) if not there})
        assert not missing, f"names {', '.join(missing)}: no such file beside it, or where imports begin"

    each(MODULES, check, name=module_path)
