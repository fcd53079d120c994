"""A root's link credit for its neighbours: scarce room follows the rates, and who ignores its rate is cut to it
(docs/adr/0077-room-by-priority.md).

Rules of this file: no clock; times are seconds on `now`'s scale. Credit is in messages, of the size of those that came
last. What it decides may be late by a computation of the rates.
"""

from collections.abc import Callable
from typing import Final

from holdfast.pacing.shaper import Shaper
from holdfast.pacing.table import Table

GRANT_S: Final = 0.2
"""What is cut has credit for so much of its rate at once: over a longer round trip it does not reach its rate."""

ROUNDING: Final = 1e-6
"""Of a message."""

SIZE_BYTES: Final = 1_000
"""Of a message, while none has come."""

SIZE_MEAN: Final = 64
"""Over about so many messages their mean size is taken."""


class RootCredit:
    """`cut`: by neighbour that ignores its rate, what its link is held to."""

    def __init__(self, table: Table, via: Callable[[str], str]) -> None:
        """`via`: the neighbour that leads to a client."""
        self._table = table
        self._via = via
        self.cut: dict[str, Shaper] = {}
        self.asked: dict[str, None] = {}
        """Neighbours that are cut and were given no credit."""
        self._rates: dict[str, float] = {}
        self._sum = 0.0
        """The sums of the rates last sent to the clients behind each neighbour, and to all."""
        self._size = float(SIZE_BYTES)

    def computed(self, now: float) -> None:
        """The table has computed rates, and sent some."""
        rates: dict[str, float] = {}
        cut = set()
        for row in self._table.rows.values():
            neighbour = self._via(row.origin)
            rates[neighbour] = rates.get(neighbour, 0.0) + row.held(now)
            if row.obedience.cut_periods and neighbour == row.origin:
                cut.add(neighbour)
        self._rates, self._sum = rates, sum(rates.values())
        for neighbour in cut - self.cut.keys():
            self.cut[neighbour] = Shaper(now)
        for neighbour in self.cut.keys() - cut:
            del self.cut[neighbour]
        for neighbour, shaper in self.cut.items():
            shaper.set_rate(now, max(1.0, rates[neighbour]))

    def took(self, now: float, neighbour: str, size: int) -> None:
        """A message for the root came by that neighbour."""
        self._size += (size - self._size) / SIZE_MEAN
        shaper = self.cut.get(neighbour)
        if shaper is not None:
            shaper.sent(now, size)

    def credit(self, now: float, neighbour: str, most: int, free: int) -> int:
        """The messages that it may have under way, of `most` that any link may; `free`: bytes of the root's room."""
        shaper = self.cut.get(neighbour)
        if shaper is not None:
            given = self._given(now, shaper)
            if given <= 0:
                self.asked[neighbour] = None
                return 0
            most = min(most, given)
        if not self._sum:
            return most
        # A neighbour without paced clients gets the mean of the others.
        share = self._rates.get(neighbour, self._sum / len(self._rates)) / self._sum
        # One at least: there may be room in another queue, or for a smaller one.
        return min(most, max(1, int(free * share / max(1.0, self._size))))

    def _grant_s(self, shaper: Shaper) -> float:
        """What may be under way, of the rate: GRANT_S, and two messages at least, so that one follows the other."""
        assert shaper.rate is not None
        return max(GRANT_S, 2 * max(1.0, self._size) / shaper.rate)

    def _given(self, now: float, shaper: Shaper) -> int:
        """The messages that what is cut may have under way: those of the grant, less what came and is not paid for."""
        assert shaper.rate is not None
        unpaid_s = max(0.0, shaper.ready_at() - now)
        return int((self._grant_s(shaper) - unpaid_s) * shaper.rate / max(1.0, self._size) + ROUNDING)

    def _opens_at(self, shaper: Shaper) -> float:
        """When `_given` is a message."""
        assert shaper.rate is not None
        return shaper.ready_at() - self._grant_s(shaper) + max(1.0, self._size) / shaper.rate

    def next_deadline(self) -> float | None:
        """When one that was given no credit may have some."""
        return min([self._opens_at(self.cut[name]) for name in self.asked if name in self.cut], default=None)

    def due(self, now: float) -> list[str]:
        """Those whose time has come, once."""
        found = [name for name in self.asked if name not in self.cut or self._opens_at(self.cut[name]) <= now]
        for name in found:
            del self.asked[name]
        return found
