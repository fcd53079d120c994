"""A bounded set of addresses of peers without a name, each of which is counted separately.

Rules of this file: at the bound a new address gets no place until a known one was quiet for QUIET_S.
"""

from collections.abc import Callable
from typing import Final

from holdfast.engine.clock import Clock

QUIET_S: Final = 60.0
"""After so long an address makes room for another: what was counted for it is forgotten."""


def _nothing(address: str) -> None:
    """Nothing is counted elsewhere."""


class Strangers(dict[str, float]):
    """Addresses with the time at which each was last seen, the longest quiet one first."""

    def __init__(self, clock: Clock, most: int, *, forgotten: Callable[[str], None] = _nothing) -> None:
        """`most`: the maximum number of addresses. `forgotten` is called with each one that is removed."""
        super().__init__()
        self._clock = clock
        self._most = most
        self._forgotten = forgotten

    def has_place(self, address: str) -> bool:
        """Whether the address, which was just seen, is counted separately."""
        now = self._clock.now
        if self.pop(address, None) is None and len(self) >= self._most:
            quiet = next(iter(self))
            if now - self[quiet] < QUIET_S:
                return False
            del self[quiet]
            self._forgotten(quiet)
        self[address] = now
        return True
