"""Canaries in what nodes do when more is sent than is taken (docs/adr/0077-room-by-priority.md).

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _for_all_the_same(original: Function) -> Function:
    """Every priority may fill the whole queue."""

    def bounds(self: Any, priority: int = 9) -> tuple[int | None, int | None]:
        return self.config.messages_max, self.config.bytes_max

    return bounds


def _low_for_all(original: Function) -> Function:
    """Every priority is held to the part of the lowest."""

    def part(self: Any, priority: int, now: float) -> float:
        return float(original(self, 0, now))

    return part


BURST_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="room-for-all-alike",
        sentence="A message of low priority fills the room that is kept for higher ones.",
        target="broker.queue:Queue.bounds",
        signature="(self, priority: int = 9) -> tuple[int | None, int | None]",
        broken=_for_all_the_same,
        expected="fills it up to",
    ),
    Canary(
        name="refused-as-if-low",
        sentence="A message of high priority is refused while only what low ones may fill is full.",
        target="broker.bands:Bands.part",
        signature="(self, priority: int, now: float) -> float",
        broken=_low_for_all,
        expected="was refused with",
    ),
)
