"""The ready entries of a queue that sorts, for consumers with equal selectors (docs/adr/0072).

Rules of this file: ready entries are known by level and sequence; entries that consumers could not have are kept apart.
"""

from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.ready import Ready, level_of
from holdfast.broker.cursors.selection import Group


class Everything(EntrySelector):
    """The selector of consumers without one."""

    text = ""
    weight = 1

    def matches(self, value: bytes) -> bool:
        """All of it."""
        return True


EVERYTHING: Final = Everything()


class Ranked(Group):
    """What is `ready` for consumers with equal selectors: all that matches and is free, below `position`."""

    __slots__ = ("apart", "apart_for", "ready", "stays")

    def __init__(self, selector: EntrySelector, position: int, *, shows: bool) -> None:
        super().__init__(selector, position, shows=shows)
        self.ready = Ready()
        self.apart = Ready()
        """Entries that no consumer with credit could have; they are no longer ready."""
        self.apart_for: set[EntryConsumer] = set()
        """Consumers that can have none of them."""
        self.stays = False
        """Whether it is kept without consumers."""

    def forget(self, sequence: int) -> None:
        if self.selector is not EVERYTHING:
            for level in (*self.ready.levels, *self.apart.levels):
                level.discard(sequence)

    def set_apart(self, sequence: int, value: bytes, consumers: list[EntryConsumer]) -> None:
        """None of these can have the entry."""
        self.apart_for = self.apart_for.intersection(consumers) if len(self.apart) else set(consumers)
        self.apart.levels[level_of(value)].give_back(sequence)

    def clear_apart(self) -> set[int]:
        """Returns, and forgets, the entries that consumers could not have."""
        apart, self.apart = self.apart, Ready()
        self.apart_for.clear()
        return apart.all()
