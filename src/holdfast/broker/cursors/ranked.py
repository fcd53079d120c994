"""The ready entries of a queue that sorts, for consumers with equal selectors (docs/adr/0072).

Rules of this file: ready entries are known by level and sequence; so is what consumers could not have.
"""

from typing import Final

from holdfast.broker.cursors.apart import Apart
from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.ready import Ready
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
    """What is `ready` for consumers with equal selectors, or apart: all that matches and is free, below `position`."""

    __slots__ = ("ready", "stays")

    def __init__(self, selector: EntrySelector, position: int, *, shows: bool) -> None:
        super().__init__(selector, position, shows=shows)
        self.ready = Ready()
        self.stays = False
        """Whether it is kept without consumers."""

    def forget(self, sequence: int) -> None:
        for level in self.ready.levels:
            level.discard(sequence)

    @property
    def all_apart(self) -> list[Apart]:
        return [level.apart for level in self.ready.levels]

    def left(self, consumer: EntryConsumer) -> None:
        for level in self.ready.levels:
            level.apart.leave(consumer)

    def ask_again(self, consumers: list[EntryConsumer]) -> None:
        """These consumers may have what others could not have."""
        for level in self.ready.levels:
            level.apart.ask_again(consumers)

    def has_apart_for(self, consumers: list[EntryConsumer]) -> bool:
        """Whether one of the consumers may have something that is kept apart, or that is to be scanned again for
        it."""
        return any(
            level.apart.first_for(consumers) is not None or level.apart.again_for(consumers) is not None
            for level in self.ready.levels
            if level.apart.is_awaited
        )
