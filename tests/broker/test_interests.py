"""Who wants a message of a topic: the tree of patterns answers as each pattern does."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.interests import Interests, PatternTree
from holdfast.broker.subjects import SUBJECT_CHARACTERS_MAX, Pattern

WORDS = st.sampled_from(["a", "b", "c", ""])
SUBJECTS = st.lists(WORDS | st.sampled_from(["*", "#"]), max_size=7).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "c", "*", "#"]), min_size=1, max_size=6).map(".".join).map(Pattern)


@dataclass(frozen=True)
class Wants:
    """A selector of subjects, and of entries that begin with `head`."""

    pattern: Pattern | None
    head: bytes = b""
    weight: int = 1
    not_from: bytes = b""

    @property
    def text(self) -> str:
        return f"{self.pattern and self.pattern.text}{self.head!r}"

    def subject(self, value: bytes) -> str:
        return value.decode()[1:]

    def matches_beside(self, value: bytes) -> bool:
        return value.startswith(self.head)

    def matches(self, value: bytes) -> bool:
        return (self.pattern is None or self.pattern.matches(self.subject(value))) and self.matches_beside(value)


@given(st.lists(PATTERNS, max_size=8, unique_by=lambda pattern: pattern.text), SUBJECTS)
def test_a_tree_answers_as_each_pattern(patterns: list[Pattern], subject: str) -> None:
    found = PatternTree(patterns).matching(subject)
    assert sorted(found) == sorted(pattern.text for pattern in patterns if pattern.matches(subject))


def test_a_long_subject_matches_only_what_matches_all() -> None:
    long = "a." * SUBJECT_CHARACTERS_MAX
    assert PatternTree([Pattern("#"), Pattern("a.#"), Pattern("#.a")]).matching(long) == ["#"]
    assert PatternTree([Pattern("*.#")]).matching(long) == []


@given(
    st.lists(st.none() | st.builds(Wants, st.none() | PATTERNS, st.sampled_from([b"", b"x", b"y"])), max_size=8),
    st.sampled_from("xyz"),
    SUBJECTS,
)
def test_those_who_want_a_message_are_those_whose_selector_matches(
    wanted: list[Wants | None], head: str, subject: str
) -> None:
    value = (head + subject).encode()
    found = Interests(enumerate(wanted)).wanting(value)
    assert found.keys() == {owner for owner, wants in enumerate(wanted) if wants is None or wants.matches(value)}


def test_many_wildcards_cost_no_more_than_their_words() -> None:
    """A walk that tried every way through the pattern would not end."""
    pattern = Pattern(".".join(["#", "*"] * 60))
    assert PatternTree([pattern]).matching(".".join(["a"] * 500)) == [pattern.text]


@given(
    patterns=st.lists(PATTERNS, max_size=8, unique_by=lambda one: one.text),
    subject=SUBJECTS,
    gone=st.integers(min_value=0, max_value=8),
)
def test_a_tree_that_was_changed_answers_as_one_made_anew(patterns: list[Pattern], subject: str, gone: int) -> None:
    tree = PatternTree(patterns)
    for pattern in patterns[:gone]:
        tree.remove(pattern.text)
    assert sorted(tree.matching(subject)) == sorted(PatternTree(patterns[gone:]).matching(subject))
    for pattern in patterns[gone:]:
        tree.remove(pattern.text)
    assert not tree._root.words and tree._root.any is tree._root.one is None, "nothing is left of what went"
    for pattern in patterns:
        tree.add(pattern)
    assert sorted(tree.matching(subject)) == sorted(PatternTree(patterns).matching(subject))
    tree.remove("never.there.#")
