"""The tool that plants mistakes: what it plants, where, and that nothing of it stays."""

import ast
import sys
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from mutation.operators import mutants_of  # noqa: E402, found by the line above
from mutation.planted import Copy  # noqa: E402

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
            return self.first + size
        move(self.one, self.other)
        raise ValueError(f"{size} is more than {self.left}")
'''


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
        ("arithmetic", "+", "-"),
        ("statement dropped", "move(self.one, self.other)", "pass"),
        ("arguments swapped", "self.one, self.other", "self.other, self.one"),
        *(("wrong field", one, other) for one, other in FIELDS),
    }


FIELDS = [("first", "full"), ("full", "left"), ("left", "one"), ("one", "other"), ("other", "first")]


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
    """A sample of each module: what is planted is a module still."""
    random = Random(1)
    for path in sorted((ROOT / "src" / "holdfast" / "core").glob("*.py")):
        text = path.read_text()
        found = mutants_of(str(path.relative_to(ROOT)), text)
        for mutant in random.sample(found, min(len(found), 10)):
            ast.parse(mutant.applied(text))


def test_a_source_that_has_changed_is_refused() -> None:
    (mutant, *_) = mutants_of("part.py", SOURCE)
    with pytest.raises(AssertionError, match="the source has changed"):
        mutant.applied("#" + SOURCE)


@pytest.mark.slow
def test_a_planted_mistake_is_found_and_gone_afterwards(tmp_path: Path) -> None:
    path = "src/holdfast/broker/ranges.py"
    text = (ROOT / path).read_text()
    mutant = next(item for item in mutants_of(path, text) if item.function == "RangeSet.__contains__")
    copy = Copy(tmp_path)
    tests = [f"tests/broker/{name.name}" for name in sorted((ROOT / "tests/broker").glob("test_ranges*.py"))]
    assert tests
    with copy.planted(mutant):
        assert (tmp_path / "holdfast/broker/ranges.py").read_text() != text
        assert copy.tests(tests, 30.0).by.startswith("tests/broker/test_ranges")
    assert (tmp_path / "holdfast/broker/ranges.py").read_text() == text == (ROOT / path).read_text()
    assert not copy.tests(tests, 30.0).by
    assert not copy.swarm([1]).by
