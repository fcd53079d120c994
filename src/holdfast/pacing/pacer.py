"""What a client's own messages to one root keep to: the rate that holds now, and when the next may leave.

Rules of this file: no clock; times are seconds on `now`'s scale. A lease ends when it ends, however late its owner is
asked: the rate after it counts from there on. Source: docs/adr/0074-pacing.md.
"""

from typing import Final

from holdfast.pacing.messages import Pace, Report
from holdfast.pacing.origin import Origin
from holdfast.pacing.shaper import Shaper

SIZE_BYTES: Final = 1_000
"""Of a message, while none was seen."""


FIRST_S: Final = 1.0
"""How long messages wait for the first rate once there is a way to the root: otherwise a node would send its whole
backlog before its root knows of it."""


class Pacer:
    """The joint of an Origin and its Shaper; a node has one for each root, whatever way leads there.

    `moved`: whether messages came or went since its owner looked. `sent_bytes`, `sent_messages`: what left, since the
    node's start.
    """

    def __init__(self, origin: Origin, now: float) -> None:
        self.origin = origin
        self.shaper = Shaper(now)
        self.moved = True
        self.sent_bytes = 0
        self.sent_messages = 0
        self._first_by: float | None = None
        """Until when the first rate is waited for."""
        self._looked_at = 0, 0
        self._size = SIZE_BYTES

    def rate(self, now: float) -> float | None:
        """Bytes a second that hold now; None: not paced."""
        self._lapse(now)
        return self.shaper.rate

    def begin(self, now: float) -> None:
        """There is a way to the root. The first time, messages wait for a rate, FIRST_S at most."""
        if self._first_by is None:
            self._first_by = now + FIRST_S

    def bounds(self, now: float) -> bool:
        """Whether a rate holds, or is waited for."""
        return self.rate(now) is not None or self._waits(now)

    def _waits(self, now: float) -> bool:
        return self._first_by is not None and now < self._first_by and self.shaper.rate is None

    def ready(self, now: float) -> bool:
        """Whether the next message may leave now, whatever its size."""
        self._lapse(now)
        return self.shaper.ready(now) and not self._waits(now)

    def ready_at(self, now: float) -> float:
        """When `ready` is to be asked again: the next message may leave then, or another rate holds."""
        self._lapse(now)
        at = self.shaper.ready_at()
        if self._first_by is not None and self._waits(now):
            return self._first_by
        return at if self.origin.pace is None else min(at, max(now, self.origin.lease_ends))

    def sent(self, now: float, size: int, messages: int = 1, *, waited: bool = False) -> None:
        """Messages of `size` bytes together left; their sender asked `ready`. `waited`: as `Shaper.sent`."""
        self._lapse(now)
        self.shaper.sent(now, size, waited=waited)
        self.sent_bytes += size
        self.sent_messages += messages

    def arrived(self, now: float, messages: int, held_bytes: int, held: int) -> None:
        """So many messages were offered since the last call; their sizes are those of what left since, or of the
        `held` messages of `held_bytes` that wait."""
        (bytes_before, before), self._looked_at = self._looked_at, (self.sent_bytes, self.sent_messages)
        if self.sent_messages > before:
            self._size = (self.sent_bytes - bytes_before) // (self.sent_messages - before)
        elif held:
            self._size = held_bytes // held
        if messages > 0:
            self.origin.arrived(now, self._size, messages)

    def report(self, now: float, used: int, *, leaving: bool = False) -> Report | None:
        """As `Origin.report`."""
        self._lapse(now)
        report = self.origin.report(now, used, leaving=leaving)
        self._lapse(now)
        return report

    def receive(self, now: float, pace: Pace) -> bool:
        """As `Origin.receive`."""
        self._lapse(now)
        obeyed = self.origin.receive(now, pace)
        self._lapse(now)
        return obeyed

    def _lapse(self, now: float) -> None:
        origin, shaper = self.origin, self.shaper
        if origin.pace is not None and now >= origin.lease_ends:
            ends = origin.lease_ends
            shaper.set_rate(ends, origin.rate(ends))
        rate = origin.rate(now)
        if rate != shaper.rate:
            shaper.set_rate(now, rate)
