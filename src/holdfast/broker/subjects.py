"""Patterns of subjects: words joined by dots, in which `*` matches one word and `#` any number of words.

Rules of this file: pure; a match takes at most as many steps as the number of words of the pattern times that of the
subject, and both are bounded.
"""

from typing import Final

from holdfast.errors import ConfigError

PATTERN_BYTES_MAX: Final = 255
SUBJECT_CHARACTERS_MAX: Final = 1_024
"""A longer subject matches only patterns that match every subject."""

ONE: Final = "*"
ANY: Final = "#"


class Pattern:
    """A compiled pattern. `text`: the shortest that matches the same; `is_exact`: it has no wildcards."""

    __slots__ = ("_words", "is_exact", "text")

    def __init__(self, text: str) -> None:
        """ConfigError for an invalid pattern: empty words, wildcards within a word, or too long."""
        if not text or len(text.encode()) > PATTERN_BYTES_MAX:
            raise ConfigError(f"invalid pattern {text[:60]!r}; expected 1 to {PATTERN_BYTES_MAX} bytes")
        words: list[str] = []
        for word in text.split("."):
            if not word or (len(word) > 1 and (ONE in word or ANY in word)):
                raise ConfigError(
                    f"invalid pattern {text[:60]!r}; expected words joined by dots, each `*`, `#` or without these"
                )
            if word != ANY or not words or words[-1] != ANY:
                words.append(word)
        self.text = ".".join(words)
        self._words = words
        self.is_exact = ONE not in words and ANY not in words

    @property
    def is_all(self) -> bool:
        """Whether it matches every subject."""
        return self.text == ANY

    def matches(self, subject: str) -> bool:
        """Whether the subject, "" for none, matches."""
        if self.is_exact:
            return subject == self.text
        if self.text == ANY:
            return True
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            return False
        pattern, words = self._words, subject.split(".") if subject else []
        at = word = 0
        back: tuple[int, int] | None = None
        while word < len(words):
            if at < len(pattern) and pattern[at] == ANY:
                at += 1
                back = (at, word)
            elif at < len(pattern) and pattern[at] in (ONE, words[word]):
                at += 1
                word += 1
            elif back is not None:  # the last `#` stands for one word more
                back = (back[0], back[1] + 1)
                at, word = back
            else:
                return False
        return all(item == ANY for item in pattern[at:])


def check_subject(text: str) -> None:
    """ConfigError for what a person gives as a subject and is none: nothing, empty words, or a pattern."""
    words = text.split(".")
    if not all(words) or ONE in words or ANY in words:
        raise ConfigError(f"invalid subject {text[:60]!r}; expected words joined by dots, none of them `*` or `#`")
