"""What a remote has refused: further sessions, and links because of their number.

Rules of this file: kept over connections, because a remote may close one to refuse. A refusal that may cost a
connection is risked rarely.
"""

from typing import Final

from holdfast.engine.back_off import back_off_s

AGAIN_S: Final = (60.0, 3600.0)
"""The first and the longest time for which no more is asked for after a refusal."""


class Refused:
    """The refusals of one thing. `due_at`: no more is asked for before."""

    def __init__(self) -> None:
        self.due_at = 0.0
        self._in_a_row = 0

    @property
    def is_any(self) -> bool:
        """Whether the last that was asked for was refused."""
        return self._in_a_row > 0

    def again(self, now: float) -> None:
        """More was refused."""
        self.due_at = now + back_off_s(AGAIN_S, self._in_a_row)
        self._in_a_row += 1

    def taken(self, now: float) -> None:
        """The remote has taken more: still more may be asked for, and the next wait is the first one again."""
        self.due_at = now
        self._in_a_row = 0


class RefusedLinks:
    """How many links a remote takes on a connection, as far as its refusals tell.

    `links_max`: None while it has refused none because of their number. One more is tried when that is due and all
    these places are in use.
    """

    def __init__(self) -> None:
        self.links_max: int | None = None
        self._refused = Refused()
        self._tries_more = False
        """The last of them is one more than it has taken."""
        self._by: object = None
        """The link whose refusal has said so."""
        self._before: int | None = None
        """What was known before that."""

    @property
    def _taken(self) -> int | None:
        return None if self.links_max is None else self.links_max - self._tries_more

    def by(self, link: object, others: int, now: float) -> bool:
        """The remote has refused that link beside so many others. Whether their number is the reason: not if there are
        none, or if it had refused the same link beside more."""
        taken = self._taken
        if not others:
            return False
        if link is self._by and taken is not None and others < taken:
            self.links_max, self._tries_more, self._by = self._before, False, None
            return False
        if taken is None or others < taken:
            self._before, self._by = taken, link
        if taken is None or self._tries_more:
            self._refused.again(now)
        self.links_max, self._tries_more = others, False
        return True

    def ended(self, links: int, now: float) -> None:
        """The remote has ended the connection because of the number of links, of which there were so many."""
        taken = self._taken
        if self._tries_more:
            self.links_max = taken
        elif links > 1:
            self.links_max = max(1, min(links, taken or links) // 2)
        else:
            return
        self._tries_more, self._by = False, None
        self._refused.again(now)

    def try_more(self, served: int, now: float) -> None:
        """Links wait, and so many are served."""
        if self.links_max is None or served < self.links_max:
            return
        if self._tries_more:
            self._tries_more = False
            self._refused.taken(now)
        if now >= self._refused.due_at:
            self.links_max += 1
            self._tries_more = True
