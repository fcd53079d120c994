"""Canaries in what queues and messages ask of a node: most deliveries.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

SHOWN: Final = 20
"""Tests of fewer messages do not find it."""


def _one_life(original: Function) -> Function:
    """What a node may have shown of a long queue when it was killed does not count as a failed delivery."""

    def begin_life(self: Any, queue: Any, cursor: Any) -> None:
        original(self, queue, cursor)
        if cursor.is_counted:
            cursor.lives = tuple(end for end in cursor.lives if end <= SHOWN)

    return begin_life


POLICY_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="deliveries-of-one-life",
        sentence="A message that ends its node each time is given to consumers more often than its queue allows.",
        target="state.delivery_rows:DeliveryRows.begin_life",
        signature="(self, queue: holdfast.broker.queue.Queue, cursor: holdfast.broker.cursors.cursor.Cursor) -> None",
        broken=_one_life,
        expected="deliveries_max is",
    ),
)
