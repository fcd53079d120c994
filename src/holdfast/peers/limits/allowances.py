"""How often each of several peers may ask for something (engine/allowance.py)."""

from holdfast.engine.allowance import Allowance
from holdfast.engine.clock import Clock


class Allowances:
    """An allowance for each peer, by name; `per_s` and `burst` as in `Allowance`."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._by_name: dict[str, Allowance] = {}

    def forget(self, name: str) -> None:
        """Forgets that peer: it has its whole allowance again."""
        self._by_name.pop(name, None)

    def count(self, name: str) -> bool:
        """Counts one request of that peer; False if it exceeds the rate."""
        now = self._clock.now
        allowance = self._by_name.get(name)
        if allowance is None:
            allowance = self._by_name[name] = Allowance(now, per_s=self._per_s, burst=self._burst)
        return allowance.count(now)
