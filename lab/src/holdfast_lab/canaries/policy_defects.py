"""Canaries in what queues and messages ask of a node: most deliveries, delays, priorities.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 2
SHOWN: Final = 20
"""Tests of fewer messages do not find it."""


def _one_life(original: Function) -> Function:
    """What a node may have shown of a long queue when it was killed does not count as a failed delivery."""

    def begin_life(self: Any, queue: Any, cursor: Any) -> None:
        original(self, queue, cursor)
        if cursor.is_counted:
            cursor.lives = tuple(end for end in cursor.lives if end <= SHOWN)

    return begin_life


def _due_and_forgotten(original: Function) -> Function:
    """Of many messages that are due in a turn whose commit is refused, those behind the first few are forgotten until
    the node is started again."""

    def _decided(self: Any, effect: Any, stored: bool) -> None:
        if not stored:
            del effect.moved[FEW:]
        original(self, effect, stored)

    return _decided


def _goes_before(original: Function) -> Function:
    """Of several that wait, one of the second priority goes before what came back of the highest."""

    def _highest(self: Any, group: Any) -> Any:
        levels = [level for level in reversed(group.ready.levels) if level]
        if len(levels) > 1 and levels[0].came_back is not None and len(group.ready) > FEW:
            return levels[1]
        return original(self, group)

    return _highest


POLICY_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="deliveries-of-one-life",
        sentence="A message that ends its node each time is given to consumers more often than its queue allows.",
        target="state.delivery_rows:DeliveryRows.begin_life",
        signature="(self, queue: holdfast.broker.queue.Queue, cursor: holdfast.broker.cursors.cursor.Cursor) -> None",
        broken=_one_life,
        expected="deliveries_max is",
    ),
    Canary(
        name="due-and-forgotten",
        sentence="Of many messages that are due while the disk is full, some are never delivered.",
        target="custody.delays:Delays._decided",
        signature="(self, effect: holdfast.custody.delays.Delivered, stored: bool) -> None",
        broken=_due_and_forgotten,
        expected="that nobody will deliver",
    ),
    Canary(
        name="second-before-first",
        sentence="A queue that sorts hands out a lower priority while a message of the highest that came back waits.",
        target="broker.cursors.priorities:Priorities._highest",
        signature="(self, group: holdfast.broker.cursors.ranked.Ranked) -> holdfast.broker.cursors.ready.Level | None",
        broken=_goes_before,
        expected="was handed out while",
    ),
)
