"""Patterns of LIKE: `_` is one character, `%` any number of them. SQL-92 §8.5.

Rules of this file: no regular expression. Between two `%` the first place that fits is taken, so nothing is tried
twice. A part without `_` is found by `str.find`; one with `_` by an automaton whose states are the bits of a number,
one step a character.
"""

from collections.abc import Callable
from typing import Final

TEXT_MAX: Final = 65_536
"""The maximum length of a text that is compared with a pattern; the result for a longer one is unknown."""
STEPS_MAX: Final = 4_096
"""The same for a pattern with `_` between two `%`, which takes one step a character."""

Search = Callable[[str, int, int], int]
"""(text, from, to) → the offset after the first match within the range, or -1."""


class Pattern:
    """A compiled pattern. `stepwise`: it has a part that is searched character by character."""

    __slots__ = ("_first", "_last", "_length", "_searches", "_whole", "stepwise", "text_max")

    def __init__(self, pattern: str, escape: str) -> None:
        """`escape`: one character, or empty. Raises ValueError if it is not followed by `_`, `%` or itself."""
        parts = _split(pattern, escape)
        self._whole = len(parts) == 1
        self._first = _runs(parts[0])
        self._last = _runs(parts[-1])
        self._length = sum(map(len, parts))
        middle = [part for part in parts[1:-1] if part]
        self.stepwise = any("" in part and any(part) for part in middle)
        self._searches = [_search(part) for part in middle]
        self.text_max = STEPS_MAX if self.stepwise else TEXT_MAX

    def matches(self, text: str) -> bool | None:
        """Whether the whole text matches; None if it has more than `text_max` characters."""
        size = len(text)
        if size > self.text_max:
            return None
        length, runs = self._first
        if self._whole:
            return size == length and _fits(text, 0, runs)
        if size < self._length or not _fits(text, 0, runs):
            return False
        end = size - self._last[0]
        if not _fits(text, end, self._last[1]):
            return False
        at = length
        for search in self._searches:
            at = search(text, at, end)
            if at < 0:
                return False
        return True


def _split(pattern: str, escape: str) -> list[list[str]]:
    """The parts between `%`, each a list of characters; the empty string stands for `_`."""
    parts: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("_", "%", escape):
                raise ValueError("an escape character stands before one of _ % and itself")
            parts[-1].append(following)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append("" if character == "_" else character)
    return parts


def _runs(part: list[str]) -> tuple[int, list[tuple[int, str]]]:
    """The length of a part, and (offset, characters) of each run of characters between the `_`."""
    runs: list[tuple[int, str]] = []
    for offset, character in enumerate(part):
        if not character:
            continue
        if runs and offset and part[offset - 1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + character)
        else:
            runs.append((offset, character))
    return len(part), runs


def _fits(text: str, at: int, runs: list[tuple[int, str]]) -> bool:
    """Whether the text contains the runs at their offsets from `at`."""
    return all(text.startswith(run, at + offset) for offset, run in runs)


def _search(part: list[str]) -> Search:
    """A function that finds a part between two `%`."""
    size = len(part)
    if not any(part):
        return lambda text, at, end: at + size if at + size <= end else -1
    if "" not in part:
        run = "".join(part)

        def find(text: str, at: int, end: int) -> int:
            found = text.find(run, at, end)
            return found + size if found >= 0 else -1

        return find
    return _automaton(part)


def _automaton(part: list[str]) -> Search:
    """Bit i of a state says that the part up to character i ends here (Baeza-Yates and Gonnet, 1992)."""
    anything = sum(1 << index for index, character in enumerate(part) if not character)
    masks: dict[str, int] = {}
    for index, character in enumerate(part):
        if character:
            masks[character] = masks.get(character, anything) | 1 << index
    accepted = 1 << (len(part) - 1)

    def step(text: str, at: int, end: int) -> int:
        state = 0
        for place in range(at, end):
            state = (state << 1 | 1) & masks.get(text[place], anything)
            if state & accepted:
                return place + 1
        return -1

    return step
