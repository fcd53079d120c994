"""Canaries in pacing.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _debt_forgotten(original: Function) -> Function:
    """The debt of what was sent above the rate is forgotten when another rate takes effect."""

    def set_rate(self: Any, now: float, rate: float | None) -> None:
        original(self, now, rate)
        self._debt = 0.0

    return set_rate


PACING_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="debt-forgotten",
        sentence="A client sends a message beyond its rate whenever its root gives it another one.",
        target="pacing.shaper:Shaper.set_rate",
        signature="(self, now: float, rate: float | None) -> None",
        broken=_debt_forgotten,
        expected="than its rate of",
    ),
)
