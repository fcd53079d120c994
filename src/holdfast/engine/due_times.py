"""When the first of many sessions has something to do, without checking each of them in every turn.

Rules of this file: never late. A session is asked for its deadline after it was stirred, and again when that deadline
comes, because traffic may have postponed it. Whatever makes a session's deadline earlier must stir the session
(`Neighbour.stir`); `due_times` in peering/validation.py checks that this is not forgotten.
"""

from collections.abc import Collection, Iterable
from math import inf
from typing import Final, Generic, Protocol, TypeVar

ALWAYS: Final = (None,)
"""In place of what a part waits for, where it is to be asked each time."""


class Timed(Protocol):
    """A part that acts at a time of its own."""

    def next_deadline(self) -> float | None: ...
    def tick(self, now: float) -> None: ...


Session = TypeVar("Session", bound=Timed)


class DueTimes(Generic[Session]):
    """The deadlines of the node's sessions with its neighbours, in the order of the configuration."""

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
        """Adds a session, as the last one."""
        self.told[session] = inf
        self.stirred[session] = None

    def remove(self, session: Session) -> None:
        """Removes a session that has ended."""
        self.told.pop(session, None)
        self.stirred.pop(session, None)

    def soonest(self, now: float, resting: Collection[object]) -> float:
        """Not later than the first deadline of the sessions that are not paused, and exact if that deadline has come;
        `inf` without a deadline. Raises what a session raises."""
        if not self.stirred and self._first > now and not resting and not self._left_out:
            return self._first
        told = self.told
        over = [item for item, at in told.items() if at <= now] if self._first <= now or self._left_out else ()
        for session in [*self.stirred, *over]:
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
        """The sessions whose deadline may have come; each is asked again afterwards."""
        found = [session for session, at in self.told.items() if at <= now or session in self.stirred]
        self.stirred.update(dict.fromkeys(found))
        return found
