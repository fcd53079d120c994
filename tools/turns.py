"""Writes tests/turns.txt: the dear tests, which take turns in `make test` (docs/adr/0090-shares-by-the-day.md).

    .venv/bin/python tools/turns.py [REPORT …]

Reads what each test took of a processor from pytest's reports, those of the last `make test` if none is named. What had
no turn there, or some of its cases alone, keeps its line. Each test stays out of the list that takes little, that draws
its cases from the day, that reads what any change may spoil, or without which a promise of docs/GUARANTEES.md had no
test each day.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import verdicts

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "tests" / "turns.txt"
LEAST_S: Final = 0.3
"""What a test takes of a processor that is dear."""
HEAD: Final = """\
# Processor seconds, and test: these run in `make test` once in five days. Written by tools/turns.py.
"""

EVERY_CHANGE: Final = re.compile(r"tests/(tools/|test_(?!wheels|operations|programs))")
"""Tests of the rules that all files keep."""


def listed(path: Path) -> dict[str, float]:
    """What each test took that takes turns, by `tests/FILE.py::NAME`."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {test: float(took_s) for took_s, test in lines}


def took(reports: Iterable[Path]) -> dict[str, float]:
    """What each test took in all its cases, by the same names."""
    found: dict[str, float] = {}
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            told = case.find(".//property[@name='processor_s']")
            test = verdicts.name_of(case)
            if told is not None:
                found[test] = found.get(test, 0.0) + float(told.get("value", 0))
    return found


def source(test: str) -> str:
    """Its decorators and its first line; nothing where it is gone."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return ""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"^((?: *@.*\n(?:[^\n]+\n)*?)?) *(?:async )?def {name}\(", text, re.MULTILINE)
    return found[0] if found is not None else ""


def may_wait(test: str) -> bool:
    """Whether it may take turns, whatever is promised. Days that it draws from would meet its turns' days."""
    return bool(text := source(test)) and "today." not in text and not EVERY_CHANGE.match(test)


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
    print(f"{len(found)} tests take turns: {sum(found.values()):.0f} s of a processor, a fifth of them each day")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
