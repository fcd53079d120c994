"""How much work a peer may ask for beyond the bytes that it sends: a token bucket, and a share of each turn.

Rules of this file: no clock, `now` is an argument. The unit is about a microsecond of a slow core's time, counted,
never measured, so that the same bytes always cost the same. Whole messages are free: credit bounds them.
"""

from typing import Final

ATTACH: Final = 200
"""An attach or a detach, whichever side ends the link."""
BEGIN: Final = 100
"""A begin or an end."""
FLOW: Final = 10
"""A flow; as much again if it asks for an answer, and for each sender that may continue because the window opened."""
PART: Final = 3
"""A transfer that is not the last of its delivery, or that arrives for a link that we detached."""
EMPTY: Final = 1
"""An empty frame, or EMPTY_BYTES of consecutive ones, which the parser handles in one step."""
EMPTY_BYTES: Final = 128
MISS: Final = 5
"""A disposition that names no unsettled delivery."""
BYTES_FREE: Final = 512
"""The size up to which a performative costs nothing extra; each further byte costs one, because it may be a value."""
STEPS_FOR_ONE: Final = 8
"""One unit pays for this many look-ups of delivery-ids: those that a disposition names although they are settled, and
those of a link that ends."""

STEP_WEIGHT: Final = 32
"""One step of a selector's pattern for one character costs about as much as reading this many bytes of a message."""

TURN: Final = 2_000
"""The units that one connection may use in one turn before the other connections have their turns."""
TAKEN: Final = 5_000
"""The same for messages and outcomes that differ from each other; they count only within the turn."""
OUTCOME: Final = 40
OUTCOME_ALIKE: Final = 12
"""Units of TAKEN: a disposition, and one with the state accepted or released; one more for each message it covers."""
MESSAGE: Final = 10
"""A message; one more for each byte before its bare message, beyond HEAD_BYTES_FREE."""
HEAD_BYTES_FREE: Final = 32
REFUSED: Final = 15
"""A message that is rejected."""
ADDRESSED: Final = 10
LOOKED_UP: Final = 20
"""A message that has its own address (`to`), and one whose address is looked up."""
MADE: Final = 100
"""A queue that is created for a message."""


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
