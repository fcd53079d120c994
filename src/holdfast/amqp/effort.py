"""How much work a peer may ask for beyond the bytes that it sends: a token bucket, and a share of each turn.

Rules of this file: no clock, `now` is an argument. The unit is about a microsecond of a slow core's time, counted,
never measured, so that the same bytes always cost the same. Whole messages are free: credit bounds them.
"""

from typing import Final

ATTACH: Final = 200
"""An attach or a detach, whoever it ends."""
BEGIN: Final = 100
"""A begin or an end."""
FLOW: Final = 10
"""A flow, and as much again where it wants an answer; so is each sender that an opened window wakes."""
PART: Final = 3
"""A transfer that is not the last of its delivery, or that comes for a link we detached."""
EMPTY: Final = 1
"""An empty frame; of many in a row so many bytes, which are one step of the parser."""
EMPTY_BYTES: Final = 128
MISS: Final = 5
"""A disposition for nothing that is open."""
BYTES_FREE: Final = 512
"""What a performative may have without more ado; each byte beyond counts one, for it may be a value of its own."""
STEPS_FOR_ONE: Final = 8
"""Delivery-ids that a disposition names, and that are not open, for one, and those that a link which ends may have:
each costs a look."""

STEP_WEIGHT: Final = 32
"""One step of a selector's pattern, for one character, costs about as much as reading so many bytes of a message."""

TURN: Final = 2_000
"""What one connection is given in one turn before the others have theirs."""
TAKEN: Final = 5_000
"""The same of what messages and their outcomes take where they are not alike, which costs nothing beyond the turn."""
OUTCOME: Final = 40
OUTCOME_ALIKE: Final = 12
"""Of that, a disposition, and one that is accepted or released; beside it, one for each message that it is of."""
MESSAGE: Final = 10
"""A message by itself, and one for each byte of what stands before its bare message, beyond HEAD_BYTES_FREE."""
HEAD_BYTES_FREE: Final = 32
REFUSED: Final = 15
"""A message that is rejected."""
ADDRESSED: Final = 10
LOOKED_UP: Final = 20
"""A message that has an address of its own, and one whose address is looked up."""
MADE: Final = 100
"""A queue that is made for a message."""


class Throttled(Exception):
    """Raised after the frame that used up the effort; nothing of the frame is undone. `again`: a frame with the rest of
    it."""

    def __init__(self, again: bytes = b"") -> None:
        super().__init__()
        self.again = again

    def resumes_at(self, effort: "Effort | None", now: float) -> float:
        """When the bytes after it may be handled."""
        assert effort is not None
        return effort.resumes_at(now)


class Effort:
    """`per_s` units are added each second, up to `burst`. A peer that has used more has to wait."""

    __slots__ = ("_at", "_left", "burst", "per_s", "taken_left", "turn_left")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self.per_s = per_s
        self.burst = burst
        self.turn_left = TURN
        self.taken_left = TAKEN
        self._left = burst
        self._at = now

    def charge(self, units: int) -> None:
        """Counts `units`, whether they are available or not."""
        self._left -= units
        self.turn_left -= units

    @property
    def used(self) -> int:
        """The units that were counted in this turn."""
        return TURN - self.turn_left

    @property
    def exhausted(self) -> bool:
        """Whether the peer has to wait, for the next turn or longer."""
        return self.turn_left <= 0 or self._left <= 0 or self.taken_left <= 0

    def resumes_at(self, now: float) -> float:
        """When there are units again; `now` if the next turn has some."""
        self._refill(now)
        return now if self._left > 0 else now + (1 - self._left) / self.per_s

    def renew(self, now: float) -> None:
        """A turn begins."""
        self.turn_left = TURN
        self.taken_left = TAKEN
        self._refill(now)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self.burst, self._left + (now - self._at) * self.per_s)
            self._at = now
