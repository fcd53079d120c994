"""Where a message of a topic goes from here: to the nodes that want it, and by static entries to neighbours that choose
anew.

Rules of this file: pure. A message that a static entry brings is matched again by all sets and entries of its target;
those who have delivered it are skipped, and copies are known by the publication (`publications`).
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from holdfast.broker.entries.annotate import TAGS_MAX
from holdfast.broker.subjects import ANY, Pattern
from holdfast.federation.modes import DYNAMIC, PUSH
from holdfast.federation.settings import Entry


class Choice(NamedTuple):
    """`branches`: nodes that want it; `relays`: neighbours that choose the destinations again; `tags`: nodes that have
    delivered it. `is_passed_on`: one of them may pass it on by a static entry, so that it may reach a node by several
    paths."""

    branches: tuple[str, ...]
    relays: tuple[str, ...]
    tags: tuple[str, ...]
    is_passed_on: bool = False


class Relays:
    """The static entries of a node."""

    __slots__ = ("_patterns",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._patterns: dict[str, dict[str, tuple[Pattern, ...]]] = {}
        for entry in entries:
            if entry.mode != DYNAMIC and entry.goes:
                patterns = (Pattern(ANY),) if entry.mode == PUSH else tuple(map(Pattern, entry.patterns))
                self._patterns.setdefault(entry.topic, {})[entry.neighbour] = patterns

    def has(self, topic: str) -> bool:
        """Whether messages of the topic may be relayed."""
        return topic in self._patterns

    def patterns(self, topic: str) -> set[str]:
        """The patterns that this node wants on behalf of its neighbours."""
        return {pattern.text for of_one in self._patterns.get(topic, {}).values() for pattern in of_one}

    def choose(self, topic: str, subject: str | None, skip: Collection[str]) -> tuple[str, ...]:
        """The neighbours to which it is relayed; `subject`: None if unknown."""
        return tuple(
            neighbour
            for neighbour, patterns in sorted(self._patterns.get(topic, {}).items())
            if neighbour not in skip and (subject is None or any(pattern.matches(subject) for pattern in patterns))
        )


def tagged(tags: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The tags with one more node that has delivered it. Beyond TAGS_MAX the oldest are dropped, and those nodes get
    another copy."""
    return tags if name in tags else (*tags, name)[-TAGS_MAX:]
