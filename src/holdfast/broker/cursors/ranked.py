"""The ready entries of a queue that sorts, for consumers with equal selectors (docs/adr/0072).

Rules of this file: ready entries are known by level and sequence; so is what consumers could not have.
"""

from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.ready import Ready
from holdfast.broker.cursors.selection import Group
from holdfast.broker.cursors.waiting_for_others import WaitingForOthers


class Everything(EntrySelector):
    """The selector of consumers without one."""

    text = ""
    weight = 1

    def matches(self, value: bytes) -> bool:
        """All of it."""
        return True


EVERYTHING: Final = Everything()


class Ranked(Group):
    """All entries below `position` that match and are free, for consumers with equal selectors: `ready`, or waiting for
    others of these consumers."""

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
    def all_for_others(self) -> list[WaitingForOthers]:
        return [level.for_others for level in self.ready.levels]

    def left(self, consumer: EntryConsumer) -> None:
        for level in self.ready.levels:
            level.for_others.leave(consumer)

    def ask_again(self, consumers: list[EntryConsumer]) -> None:
        """These consumers may have what others could not have."""
        for level in self.ready.levels:
            level.for_others.ask_again(consumers)

    def has_waiting_for(self, consumers: list[EntryConsumer]) -> bool:
        """Whether one of the consumers may have an entry that waits for other consumers, or one that is to be scanned
        again for it."""
        return any(
            level.for_others.first_for(consumers) is not None or level.for_others.rescan_from(consumers) is not None
            for level in self.ready.levels
            if level.for_others.is_awaited
        )
