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


def _host_forgotten(original: Function) -> Function:
    """A rate is taken for that of the default host, whichever host it is for."""

    def hear_pace(self: Any, session: Any, fields: dict[Any, Any]) -> None:
        mine = fields.get("to") == self._name
        original(self, session, fields | {"group": ""} if mine else fields)

    return hear_pace


PACING_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="debt-forgotten",
        sentence="A client sends a message beyond its rate whenever its root gives it another one.",
        target="pacing.shaper:Shaper.set_rate",
        signature="(self, now: float, rate: float | None) -> None",
        broken=_debt_forgotten,
        expected="than its rate of",
    ),
    Canary(
        name="rate-of-another-host",
        sentence="A rate that a root gives to one virtual host is obeyed in the default one.",
        target="peering.rate_control:RateControl._on_pace",
        signature="(self, session: holdfast.peers.neighbours.session_port.Session, fields: dict[typing.Any, "
        "typing.Any]) -> None",
        broken=_host_forgotten,
        expected="never gave to it",
    ),
)
