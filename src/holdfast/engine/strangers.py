"""Addresses of peers without a name that are counted apart: a bounded number, whatever comes.

Rules of this file: at the bound an address has no place until one was quiet for QUIET_S.
"""

from collections.abc import Callable
from typing import Final

from holdfast.engine.clock import Clock

QUIET_S: Final = 60.0
"""After so long an address makes room for another: what was counted for it is forgotten."""


def _nothing(address: str) -> None:
    """Nothing is counted elsewhere."""


class Strangers(dict[str, float]):
    """Addresses, the one that was quiet for longest first, and when each was last seen."""

    def __init__(self, clock: Clock, most: int, *, forgotten: Callable[[str], None] = _nothing) -> None:
        """`most`: addresses at once. `forgotten` is told of each that has made room."""
        super().__init__()
        self._clock = clock
        self._most = most
        self._forgotten = forgotten

    def has_place(self, address: str) -> bool:
        """Whether the address, which is seen now, is counted apart."""
        now = self._clock.now
        if self.pop(address, None) is None and len(self) >= self._most:
            quiet = next(iter(self))
            if now - self[quiet] < QUIET_S:
                return False
            del self[quiet]
            self._forgotten(quiet)
        self[address] = now
        return True
