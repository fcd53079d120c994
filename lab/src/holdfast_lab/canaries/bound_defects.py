"""Canaries in the bounds of subscriptions.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _undone_counts(original: Function) -> Function:
    """The numbers of messages whose turn was undone count towards the bounds of subscriptions."""

    def undo(self: Any, sequence: int, value: bytes) -> None:
        limited, self.limited = self.limited, {}
        original(self, sequence, value)
        self.limited = limited

    return undo


def _overfull_at_once(original: Function) -> Function:
    """What becomes a dead letter is finished before that is stored, and stays so if it is refused."""

    def end_overfull(self: Any, cursor: Any, values: Any, reason: str) -> None:
        original(self, cursor, values, reason)
        cursor.finish(self.moving.decided(cursor, list(values)))

    return end_overfull


def _sizes_unknown(original: Function) -> Function:
    """After a start what a subscription has to finish has no size."""

    def note(cursor: Any, sequence: int, value: bytes) -> None:
        return

    return note


def _since_another_link(original: Function) -> Function:
    """How long a subscription has had no link is counted on over a link that came and went."""

    def tick(self: Any, now: float) -> None:
        self._since = {cursor: (cursor.attaches, began) for cursor, (_, began) in self._since.items()}
        original(self, now)

    return tick


BOUND_CANARIES = (
    Canary(
        name="undone-counts",
        sentence="What was refused with its turn counts towards a subscription's bound, which drops the oldest for it.",
        target="broker.topic:Topic.undo",
        signature="(self, sequence: int, value: bytes) -> None",
        broken=_undone_counts,
        expected="messages to finish, and those of the store",
    ),
    Canary(
        name="overfull-at-once",
        sentence="What a subscription may not keep has left it before its dead letter is stored, which may be refused.",
        target="custody.dead_lettering:DeadLettering.end_overfull",
        signature="(self, cursor: holdfast.broker.cursors.cursor.Cursor, "
        "values: collections.abc.Mapping[int, bytes], reason: str) -> None",
        broken=_overfull_at_once,
        expected="are neither shown nor dead letters",
    ),
    Canary(
        name="sizes-unknown",
        sentence="After a start what a subscription has to finish does not count towards its bound of bytes.",
        target="broker.backlogs:note",
        signature="(cursor: holdfast.broker.cursors.cursor.Cursor, sequence: int, value: bytes) -> None",
        broken=_sizes_unknown,
        expected="bytes to finish, and those of the store",
    ),
    Canary(
        name="idle-since-another-link",
        sentence="A subscription ends a time after a link that was not its last one.",
        target="endpoints.subscription_ends:SubscriptionEnds.tick",
        signature="(self, now: float) -> None",
        broken=_since_another_link,
        expected="subscription idle-",
    ),
)
