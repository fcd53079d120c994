"""A few patterns that cover many: an origin announces them while its own rows are too many to send at once. Rules of
this file: pure. A summary never matches less than the rows it replaces: each row is tested, and `#` is used if one is
not covered.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.broker.subjects import ANY, ONE
from holdfast.federation.rows import EVERYTHING, WIDE, Row, covers

SUMMARY_MAX: Final = 64
"""The maximum number of patterns in one summary."""

DEPTH_MAX: Final = 4
"""The maximum number of words before the wildcard in a summary's patterns."""


def summary(rows: Iterable[Row], most: int = SUMMARY_MAX) -> frozenset[Row]:
    """At most `most` rows that cover all of `rows`, with as many common first words as possible."""
    split = [row.pattern.split(".") for row in rows]
    for depth in range(DEPTH_MAX, 0, -1):
        groups: dict[tuple[str, ...], list[list[str]]] = {}
        for words in split:
            groups.setdefault(tuple(words[:depth]), []).append(words)
            if len(groups) > most:
                break
        if len(groups) > most or any(ANY in head for head in groups):
            continue
        patterns = {_common(head, members): members for head, members in groups.items()}
        if all(covers(wider, ".".join(words)) for wider, members in patterns.items() for words in members):
            return frozenset(Row(pattern, None, WIDE) for pattern in patterns)
    return frozenset([EVERYTHING])


def stands_for(wide: Iterable[Row], rows: Iterable[Row]) -> bool:
    """Whether a summary covers these rows, too."""
    patterns = [row.pattern for row in wide]
    return all(any(covers(wider, row.pattern) for wider in patterns) for row in rows)


def _common(head: tuple[str, ...], members: list[list[str]]) -> str:
    """`a.b.*` if all rows have exactly one more word, `a.b` if they have none, otherwise `a.b.#`."""
    more = [words[len(head) :] for words in members]
    if all(not words for words in more):
        return ".".join(head)
    if all(len(words) == 1 and words[0] != ANY for words in more):
        return ".".join((*head, ONE))
    return ".".join((*head, ANY))
