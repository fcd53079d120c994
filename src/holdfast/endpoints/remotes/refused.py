"""What a remote has refused: further sessions, and links because of their number.

Rules of this file: kept over connections, because a remote may close one to refuse. A refusal that may cost a
connection is risked rarely.
"""

from typing import Final

from holdfast.engine.back_off import back_off_s

AGAIN_S: Final = (60.0, 3600.0)
"""The first and the longest time for which no more is asked for after a refusal."""


class RefusalBackOff:
    """When the remote may be asked for one more session or link, after it has refused some. `due_at`: not before."""

    def __init__(self) -> None:
        self.due_at = 0.0
        self._in_a_row = 0

    @property
    def is_any(self) -> bool:
        """Whether the last that was asked for was refused."""
        return self._in_a_row > 0

    def refused(self, now: float) -> None:
        """The remote has refused one more: a wait begins, within AGAIN_S, the longer the more it refused in a row."""
        self.due_at = now + back_off_s(AGAIN_S, self._in_a_row)
        self._in_a_row += 1

    def accepted(self, now: float) -> None:
        """The remote has accepted one more: another may be asked for at once, and the next wait is the first one
        again."""
        self.due_at = now
        self._in_a_row = 0


class RefusedLinks:
    """How many links a remote takes on a connection, as far as its refusals tell.

    `links_max`: None while it has refused none because of their number. It is probed with one more when that is due and
    as many are attached.
    """

    def __init__(self) -> None:
        self.links_max: int | None = None
        self._back_off = RefusalBackOff()
        self._is_probing = False
        """`links_max` is one more than the remote is known to take."""
        self._first_refused: object = None
        """The link whose refusal has set the present limit."""
        self._limit_before: int | None = None
        """The limit that was known before that refusal."""

    @property
    def _taken(self) -> int | None:
        return None if self.links_max is None else self.links_max - self._is_probing

    def refused(self, link: object, others: int, now: float) -> bool:
        """The remote has refused that link, while so many others were attached. Returns whether their number is taken
        to be the reason: not if there are none, or if the remote refused the same link before, beside more others."""
        taken = self._taken
        if not others:
            return False
        if link is self._first_refused and taken is not None and others < taken:
            self.links_max, self._is_probing, self._first_refused = self._limit_before, False, None
            return False
        if taken is None or others < taken:
            self._limit_before, self._first_refused = taken, link
        if taken is None or self._is_probing:
            self._back_off.refused(now)
        self.links_max, self._is_probing = others, False
        return True

    def connection_ended(self, links: int, now: float) -> None:
        """The remote has ended the connection because of the number of links, of which there were so many."""
        taken = self._taken
        if self._is_probing:
            self.links_max = taken
        elif links > 1:
            self.links_max = max(1, min(links, taken or links) // 2)
        else:
            return
        self._is_probing, self._first_refused = False, None
        self._back_off.refused(now)

    def try_more(self, served: int, now: float) -> None:
        """Links wait, and so many are attached: if these are `links_max`, the remote takes them, and it is probed with
        one more when that is due."""
        if self.links_max is None or served < self.links_max:
            return
        if self._is_probing:
            self._is_probing = False
            self._back_off.accepted(now)
        if now >= self._back_off.due_at:
            self.links_max += 1
            self._is_probing = True
