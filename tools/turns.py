"""Writes tests/turns.txt: the dear tests, which take turns in `make test` (docs/adr/0090-shares-by-the-day.md).

    .venv/bin/python tools/turns.py [REPORT …]

Reads what each test took of a processor from pytest's reports, those of the last `make test` if none is named. What had
no turn there, or some of its cases alone, keeps its line. Each test stays out of the list that takes little, that draws
its cases from the day, that reads what any change may spoil, or without which a promise of docs/GUARANTEES.md had no
test each day.
"""

import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import verdicts

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "tests" / "turns.txt"
LEAST_S: Final = 0.1
CASE_S: Final = 0.02
"""What a dear test takes of a processor in all its cases, and in each of them: a long table of cheap cases is not."""
HEAD: Final = """\
# Processor seconds, and test: these run in `make test` once in seven days. Written by tools/turns.py.
"""

EVERY_CHANGE: Final = re.compile(r"tests/(tools/|sim/test_swarm\.py::test_seeds|test_(?!wheels|operations|programs))")
"""Tests of the rules that all files keep, and the seeds of the day."""


def listed(path: Path) -> dict[str, float]:
    """What each test took that takes turns, by `tests/FILE.py::NAME`."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {test: float(took_s) for took_s, test in lines}


def took(reports: Iterable[Path]) -> dict[str, float]:
    """What each test took in all its cases, by the same names; without those of which a case takes next to nothing."""
    found: dict[str, list[float]] = {}
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            told = case.find(".//property[@name='processor_s']")
            if told is not None:
                found.setdefault(verdicts.name_of(case), []).append(float(told.get("value", 0)))
    return {test: sum(cases) for test, cases in found.items() if sum(cases) >= CASE_S * len(cases)}


@cache
def functions(path: str) -> dict[str, str]:
    """The source of each function of a file, with its decorators; none of a file that is gone. What the file calls
    ALL = today.some(…) stands there by that.
    """
    if not (ROOT / path).is_file():
        return {}
    text = (ROOT / path).read_text(encoding="utf-8")
    for name in re.findall(r"^(\w+)\b[^=\n]* = .*today\.some", text, re.MULTILINE):
        text = re.sub(rf"\b{name}\b", "today.some", text)
    lines, found = text.splitlines(), {}
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def may_wait(test: str) -> bool:
    """Whether it may take turns, whatever is promised. What it draws from the day, share by share, would meet the days
    of its turns again and again, and other shares never.
    """
    path, _, name = test.partition("::")
    return "today.some" not in functions(path).get(name, "today.some") and not EVERY_CHANGE.match(test)


def spoilt(rows: Iterable[list[str]], taking_turns: Iterable[str]) -> list[list[str]]:
    """The promises, each by its tests, that would have none each day."""
    taking = set(taking_turns)
    return [row for row in rows if taking.issuperset(row)]


def chosen(costs: Mapping[str, float], rows: list[list[str]]) -> dict[str, float]:
    """Those that are to take turns, the dearest first."""
    found: dict[str, float] = {}
    for test, took_s in sorted(costs.items(), key=lambda item: (-item[1], item[0])):
        if took_s >= LEAST_S and may_wait(test) and not spoilt(rows, [*found, test]):
            found[test] = took_s
    return found


def main(arguments: list[str]) -> int:
    reports = [Path(name) for name in arguments] or sorted((ROOT / ".checks").glob("*.xml"))
    rows = [tests for _, tests in verdicts.rows((ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8"))]
    costs = took(reports)
    for test, took_s in listed(FILE).items():
        costs[test] = max(took_s, costs.get(test, 0.0))
    found = chosen(costs, rows)
    FILE.write_text(HEAD + "".join(f"{took_s:6.1f} {test}\n" for test, took_s in found.items()), encoding="utf-8")
    print(f"{len(found)} tests take turns: {sum(found.values()):.0f} s of a processor, a seventh of them each day")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
