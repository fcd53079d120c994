"""Where a message of a topic goes from here: to the nodes that want it, and by static entries to neighbours that choose
anew.

Rules of this file: pure. A message that a static entry brings is matched again by all sets and entries of its target;
those who have delivered it are skipped, and copies are known by the publication (`Publications`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from holdfast.broker.entries.annotate import TAGS_MAX
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.subjects import ANY, Pattern
from holdfast.federation.messages import DYNAMIC, PUSH
from holdfast.federation.settings import Entry

RANGES_MAX: Final = 4_096
"""Of the publications of one store that are remembered."""

PUBLISHERS_MAX: Final = 10_000


class Choice(NamedTuple):
    """`branches`: nodes that want it; `relays`: neighbours that are to choose anew; `tags`: who has delivered it."""

    branches: tuple[str, ...]
    relays: tuple[str, ...]
    tags: tuple[str, ...]


class Relays:
    """The static entries of a node."""

    __slots__ = ("_patterns",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._patterns: dict[str, dict[str, tuple[Pattern, ...]]] = {}
        for entry in entries:
            if entry.mode != DYNAMIC:
                patterns = (Pattern(ANY),) if entry.mode == PUSH else tuple(map(Pattern, entry.patterns))
                self._patterns.setdefault(entry.topic, {})[entry.neighbour] = patterns

    def has(self, topic: str) -> bool:
        """Whether messages of the topic may be relayed."""
        return topic in self._patterns

    def patterns(self, topic: str) -> set[str]:
        """What this node wants for its neighbours."""
        return {pattern.text for of_one in self._patterns.get(topic, {}).values() for pattern in of_one}

    def choose(self, topic: str, subject: str | None, skip: Collection[str]) -> tuple[str, ...]:
        """The neighbours that it is relayed to; `subject`: None where it is not known."""
        return tuple(
            neighbour
            for neighbour, patterns in sorted(self._patterns.get(topic, {}).items())
            if neighbour not in skip and (subject is None or any(pattern.matches(subject) for pattern in patterns))
        )


def tagged(tags: tuple[str, ...], name: str) -> tuple[str, ...]:
    """With one more node that delivered it; past TAGS_MAX the first are forgotten, and get a copy."""
    return tags if name in tags else (*tags, name)[-TAGS_MAX:]


class Seen(Enum):
    """What is known of a publication."""

    NEW = "new"
    COPY = "copy"
    OLD = "old"
    """Older than what is remembered: it is delivered, and counted."""


@dataclass(slots=True)
class Publications:
    """The publications that came here, by the store in which each was accepted."""

    ranges: dict[str, RangeSet] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    """Numbers below are not remembered any more."""

    def take(self, store: str, number: int) -> Seen:
        """Whether it came before; it has come now."""
        numbers = self.ranges.pop(store, None) or RangeSet()
        self.ranges[store] = numbers  # the latest is the last
        if number in numbers:
            return Seen.COPY
        if number < self.floors.get(store, 0):
            return Seen.OLD
        numbers.add(number)
        while len(numbers) > RANGES_MAX:
            _, last = next(iter(numbers))
            numbers.drop_below(last + 1)
            self.floors[store] = last + 1
        while len(self.ranges) > PUBLISHERS_MAX:
            gone = next(iter(self.ranges))
            del self.ranges[gone]
            self.floors.pop(gone, None)
        return Seen.NEW

    def forget(self, store: str, number: int) -> None:
        """It has not come: its turn was undone."""
        numbers = self.ranges.get(store)
        if numbers is not None and number in numbers:
            numbers.remove(number)
