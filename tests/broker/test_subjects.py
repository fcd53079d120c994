"""Patterns of subjects (docs/topics.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.subjects import PATTERN_BYTES_MAX, SUBJECT_CHARACTERS_MAX, Pattern
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("#", ["", "a", "a.b.c"], []),
        ("a", ["a"], ["", "b", "a.b", "A"]),
        ("*", ["a", "b"], ["", "a.b"]),
        ("a.*", ["a.b"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b"], ["b", "a.b.c"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["", "b", "b.a"]),
        ("#.a", ["a", "b.a", "c.b.a"], ["", "a.b"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z", "a.z.z"], ["a", "z", "a.b"]),
        ("#.b.#", ["b", "a.b", "b.c", "a.b.c"], ["", "a.c"]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.#", ["", "a"], []),
        ("#.*.#.*", ["a.b", "a.b.c"], ["", "a"]),
    ],
)
def test_a_pattern_matches(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [subject for subject in matched if not compiled.matches(subject)] == []
    assert [subject for subject in not_matched if compiled.matches(subject)] == []


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a*", "#a", "a.b#.c", "x" * (PATTERN_BYTES_MAX + 1)])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid pattern"):
        Pattern(text)


def test_a_long_subject_matches_only_what_matches_all() -> None:
    long = "a." * SUBJECT_CHARACTERS_MAX
    assert Pattern("#").matches(long) and not Pattern("a.#").matches(long)


WORDS = st.sampled_from(["a", "b", "c"])


def naive(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


@given(st.lists(WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=6), st.lists(WORDS, max_size=7))
def test_it_matches_as_the_definition_says(pattern: list[str], words: list[str]) -> None:
    assert Pattern(".".join(pattern)).matches(".".join(words)) == naive(pattern, words)
