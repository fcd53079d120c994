"""When the first of many sessions has something to do, without asking each of them every turn.

Rules of this file: nothing is late. A session is asked for its next moment when it was stirred, and again when the
moment that it gave comes: traffic may have moved it away. Whatever brings a session's next moment nearer stirs the
session (`Neighbour.stir`), and `due_times` in peering/validation.py looks whether that was forgotten anywhere.
"""

from collections.abc import Collection, Iterable
from math import inf
from typing import Final, Generic, Protocol, TypeVar

ALWAYS: Final = (None,)
"""In place of what a part waits for, where it is to be asked each time."""


class Timed(Protocol):
    """What acts at its time."""

    def next_deadline(self) -> float | None: ...
    def tick(self, now: float) -> None: ...


Session = TypeVar("Session", bound=Timed)


class DueTimes(Generic[Session]):
    """Over the node's sessions with its neighbours, in the order of the configuration."""

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        self.told: dict[Session, float] = dict.fromkeys(sessions, inf)
        """The moment that each gave last: never later than its deadline, but for those that were stirred since."""
        self.stirred: dict[Session, None] = dict.fromkeys(self.told)
        self.asked: Session | None = None
        """The one that is asked, while it is."""
        self._first = inf
        self._left_out = False
        """Whether some that rested were not asked for `_first`."""

    def add(self, session: Session) -> None:
        """One more, the last of them."""
        self.told[session] = inf
        self.stirred[session] = None

    def soonest(self, now: float, resting: Collection[object]) -> float:
        """Not later than the first deadline of those that do not rest, and that where its time has come; `inf` where
        none has one. Raises what a session raises."""
        if not self.stirred and self._first > now and not resting and not self._left_out:
            return self._first
        told = self.told
        for session in [*self.stirred, *(item for item, at in told.items() if at <= now)]:
            if session not in resting:
                self.asked = session
                at = session.next_deadline()
                told[session] = inf if at is None else at
                self.stirred.pop(session, None)
        self.asked = None
        self._left_out = any(session in resting for session in told) if resting else False
        awake = (at for session, at in told.items() if session not in resting) if resting else told.values()
        self._first = min(awake, default=inf)
        return self._first

    def take_due(self, now: float) -> list[Session]:
        """Those whose moment may have come; each is asked anew afterwards."""
        found = [session for session, at in self.told.items() if at <= now or session in self.stirred]
        self.stirred.update(dict.fromkeys(found))
        return found
