"""Canaries in what a driver of the core does: which of its connections are read, and when the core is called.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Final

from holdfast.engine.reads import Pause
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _one_reason_for_both(original: Function) -> Function:
    """A connection whose read was deferred is read again in the next turn, though the core has stopped reading from
    it."""

    def resume(self: Any, reason: Pause) -> None:
        if reason is Pause.TURN:
            self.pauses.discard(Pause.CORE)
        original(self, reason)

    return resume


def _no_time_for_retirements(original: Function) -> Function:
    """What leaves the disk and waits for others waits until something else happens."""

    def next_deadline(self: Any) -> Any:
        retire_at = self.retire_at
        if retire_at is not None:
            self.retire_at = inf
        try:
            return original(self)
        finally:
            self.retire_at = retire_at

    return next_deadline


DRIVER_CANARIES: Final = (
    Canary(
        name="no-time-for-retirements",
        sentence="A node that waits with what leaves its disk names no time at which it is to go on.",
        target="core.node:NodeCore.next_deadline",
        signature="(self) -> float | None",
        broken=_no_time_for_retirements,
        expected="named no time for what it does",
    ),
    Canary(
        name="one-reason-for-both",
        sentence="Where a turn goes on with a read that it put off, more is read though the core has enough of it.",
        target="engine.reads:Reading.resume",
        signature="(self, reason: holdfast.engine.reads.Pause) -> None",
        broken=_one_reason_for_both,
        expected="has enough of it",
    ),
)
