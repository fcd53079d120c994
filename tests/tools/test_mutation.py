"""The tool that plants mistakes: what it plants, where, and that nothing of it stays."""

import ast
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.stored.ranges import RangeSet
from support import today

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from mutants import SEEDS, TESTS, all_mutants  # noqa: E402, found by the line above
from mutation import forks  # noqa: E402
from mutation.copied import Copy  # noqa: E402
from mutation.live import Functions  # noqa: E402
from mutation.operators import Mutant, mutants_of  # noqa: E402
from mutation.places import PACKAGES, SOURCES  # noqa: E402
from mutation.probes import MODULE, plant, with_probes  # noqa: E402

SOURCE = '''\
"""A module: 1 < 2."""

BOUND = 3


class Part:
    """Not planted: 1 < 2."""

    def take(self, size: int = 4, *, last: bool = True) -> int:
        """Neither here: a < b."""
        assert size > 0, "nor here"
        if size < self.left and not self.full:
            self.left -= size
            self.queue.popleft()
            self.log(f"took {size + 1}")
            return max(self.first, self.one) + size
        move(self.one, self.other)
        raise ValueError(f"{size} is more than {self.left}")
'''


IF, RETURNS = (1 + SOURCE[: SOURCE.index(text)].count("\n") for text in ("if size <", "return max"))
"""Lines of SOURCE."""


def told() -> set[tuple[str, str, str]]:
    return {(mutant.kind, mutant.before, mutant.after) for mutant in mutants_of("part.py", SOURCE)}


def test_each_kind_is_planted_where_it_applies_and_nowhere_else() -> None:
    assert told() == {
        ("comparison", "<", "<="),
        ("and/or", "and", "or"),
        ("not dropped", "not self.full", "(self.full)"),
        ("branch", "size < self.left and not self.full", "not (size < self.left and not self.full)"),
        ("statement dropped", "self.left -= size", "pass"),
        ("arithmetic", "-=", "+="),
        ("statement dropped", "self.queue.popleft()", "pass"),
        ("wrong function", "popleft", "pop"),
        ("wrong function", "max", "min"),
        ("arithmetic", "+", "-"),
        ("statement dropped", "move(self.one, self.other)", "pass"),
        ("arguments swapped", "self.one, self.other", "self.other, self.one"),
        *(("wrong field", one, other) for one, other in FIELDS),
    }


FIELDS = [("first", "full"), ("full", "left"), ("left", "one"), ("one", "other"), ("other", "first")]


def test_every_package_of_a_nodes_logic_is_measured() -> None:
    """All that there is but the protocol, which fuzzers and other implementations try, its settings, and what a
    process adds, or a command."""
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert packages - {*PACKAGES} == {"amqp", "cli", "client", "fleet", "node", "settings", "telemetry"}
    assert {*PACKAGES} <= packages


def test_mistakes_are_drawn_within_the_packages_and_modules_that_are_named() -> None:
    found = {mutant.path for mutant in all_mutants(["steps", "custody/delays.py"])}
    assert "src/holdfast/custody/delays.py" in found and "src/holdfast/steps/windows.py" in found
    assert all(path.startswith(("src/holdfast/steps/", "src/holdfast/custody/delays.py")) for path in found)
    assert not all_mutants(["step"]) and not all_mutants(["client"])


def test_a_mistake_changes_its_place_alone() -> None:
    for mutant in mutants_of("part.py", SOURCE):
        planted = mutant.applied(SOURCE)
        ast.parse(planted)
        assert planted != SOURCE
        assert planted[: mutant.start] == SOURCE[: mutant.start]
        assert planted[mutant.start + len(mutant.after) :] == SOURCE[mutant.end :]
        assert mutant.function == "Part.take"
        assert SOURCE.splitlines()[mutant.line - 1].find(mutant.before.splitlines()[0]) >= 0


def test_all_of_the_sources_can_be_planted_into() -> None:
    """A sample of some modules, others each day: what is planted is a module still."""
    random = Random(today.number)
    modules = sorted(path for package in PACKAGES for path in (SOURCES / package).rglob("*.py"))
    for path in today.some(modules, len(modules) // 8):
        text = path.read_text()
        found = mutants_of(str(path.relative_to(ROOT)), text)
        for mutant in random.sample(found, min(len(found), 10)):
            ast.parse(mutant.applied(text))


def test_probes_note_each_mistake_that_a_run_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = mutants_of("part.py", SOURCE)
    hits: set[int] = set()
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(hit=hits.add))
    names: dict[str, Any] = {"move": lambda one, other: None}
    exec(compile(with_probes(SOURCE, enumerate(mutants)), "part.py", "exec"), names)
    assert names["Part"].__doc__ == "Not planted: 1 < 2."
    part = names["Part"]()
    part.left, part.full, part.first, part.one, part.other = 5, False, 1, 1, 2
    part.queue, part.log = SimpleNamespace(popleft=lambda: None), print
    assert part.take(2) == 3
    assert hits == {number for number, mutant in enumerate(mutants) if mutant.line <= RETURNS}
    hits.clear()
    part.full = True
    with pytest.raises(ValueError, match="is more than"):
        part.take(2)
    within = [number for number in hits if IF < mutants[number].line <= RETURNS]
    assert not within and max(mutants[number].line for number in hits) > RETURNS


def test_a_copy_with_probes_does_what_the_sources_do(tmp_path: Path) -> None:
    path = "src/holdfast/broker/stored/ranges.py"
    mutants = mutants_of(path, (ROOT / path).read_text())
    copy = Copy(tmp_path)
    plant(copy, mutants)
    program = (
        f"import {MODULE}; from holdfast.broker.stored.ranges import RangeSet; found = RangeSet([(1, 3)])\n"
        f"found.add(4, 9); print(list(found), 5 in found, len({MODULE}.hits) > 3)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=copy.environment, capture_output=True, text=True, check=False)
    assert done.stdout == "[(1, 9)] True True\n", done.stderr


def test_a_source_that_has_changed_is_refused() -> None:
    (mutant, *_) = mutants_of("part.py", SOURCE)
    with pytest.raises(AssertionError, match="the source has changed"):
        mutant.applied("#" + SOURCE)


def mistake() -> Mutant:
    """In what looks whether a set of ranges has a number."""
    path = "src/holdfast/broker/stored/ranges.py"
    found = mutants_of(path, (ROOT / path).read_text())
    return next(item for item in found if item.function == "RangeSet.__contains__")


def outcome(run: forks.Run, items: dict[str, float]) -> forks.Verdict:
    """Of a fork of this process with the mistake."""
    return forks.Fork(Functions(), run, mistake(), items).verdict()


def contains(name: str) -> str:
    """A test: the sets of each name have what their owner put in."""
    try:
        return "" if int(name) in RangeSet([(1, 3), (7, 9)]) else f"{name} is missing"
    except TypeError as error:
        return str(error)


def test_a_fork_has_the_mistake_and_this_process_has_not() -> None:
    assert outcome(contains, {"1": 0.1, "7": 0.1}).why
    assert not contains("1") and not contains("7")


def test_a_fork_that_finds_nothing_says_so() -> None:
    assert outcome(lambda name: "", {"1": 0.1, "7": 0.1}) == forks.Verdict()


def test_a_fork_that_does_not_end_or_dies_has_found_the_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(name: str) -> str:
        while name == "second":
            pass
        return ""

    monkeypatch.setattr(forks, "PROCESSOR_S", 0.1)
    assert outcome(busy, {"first": 0.0, "second": 0.0}).by == "second"
    assert outcome(lambda name: os._exit(3), {"first": 0.1}) == forks.Verdict("first", "does not end, or ends with 3")
    assert outcome(lambda name: time.sleep(60) or "", {"first": 0.0}).by == "first"


@pytest.mark.slow
def test_a_planted_mistake_is_found_by_tests_and_by_the_swarm() -> None:
    tests = [f"tests/broker/{name.name}" for name in sorted((ROOT / "tests/broker").glob("test_ranges*.py"))]
    assert tests
    servers = forks.Server([*TESTS[:-1], *tests]), forks.Server(SEEDS)
    listed = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", *tests], cwd=ROOT,
                            capture_output=True, text=True, check=True)  # fmt: skip
    names = {line: 1.0 for line in listed.stdout.splitlines() if "::" in line}
    try:
        assert servers[0].run(mistake(), names).by.startswith("tests/broker/test_ranges")
        assert servers[1].run(mistake(), {"1": 3.0, "2": 3.0}).by
        harmless = replace(mistake(), after=mistake().before)
        assert not servers[0].run(harmless, names).by
        assert not servers[1].run(harmless, {"1": 3.0}).by
    finally:
        for server in servers:
            server.close()
