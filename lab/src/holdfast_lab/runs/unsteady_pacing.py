"""Control messages of pacing that are lost, late or doubled: of what a node sends, or passes on, some share.

Rules of this file: alters what is sent, never what a node knows; it draws from a stream of its own, so that nothing
else of a run changes. What is late goes out behind messages that are newer.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from holdfast.pacing.messages import Pace, Report

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

SHARE: Final = 0.5
LATE_S: Final = (0.3, 3.0, 20.0)
"""As late as this at least: it goes out with the next message after that."""


class UnsteadyPacing:
    """Of one node, in whichever life. `hits`: messages by what became of them."""

    def __init__(self, random: Random, share: float, holds: Callable[[], bool], hits: Counter[str]) -> None:
        """`holds`: whether it still lasts."""
        self._random, self._share, self._holds = random, share, holds
        self.hits = hits
        self._core: NodeCore | None = None
        self._late: list[tuple[float, str, Report | Pace]] = []

    def turned(self, core: "NodeCore | None") -> None:
        """After a turn: a node that was started is struck, too."""
        if core is None or core is self._core:
            return
        self._core, self._late = core, []
        rates: Any = core.rates
        rates._send = self._through(core, rates._send)

    def _through(self, core: "NodeCore", send: Callable[[str, Report | Pace], None]) -> Any:
        def unsteady(via: str, message: Report | Pace) -> None:
            now = core.clock.now
            if self._holds() and self._random.random() < self._share:
                fate = self._random.choice(("lost", "late", "doubled"))
                self.hits[fate] += 1
                if fate == "late":
                    self._late.append((now + self._random.choice(LATE_S), via, message))
                for _ in range(2 if fate == "doubled" else 0):
                    send(via, message)
            else:
                send(via, message)
            due = [item for item in self._late if item[0] <= now]
            self._late = [item for item in self._late if item[0] > now]
            for _, to, older in due:
                send(to, older)

        return unsteady
