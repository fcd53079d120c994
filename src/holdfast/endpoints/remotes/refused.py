"""What a remote has refused: further sessions, and links because of their number.

Rules of this file: kept over connections, because a remote may close one to refuse. A refusal that may cost a
connection is risked rarely.
"""

from typing import Final

from holdfast.endpoints.remotes.kept_link import ANSWER_S
from holdfast.engine.back_off import back_off_s

AGAIN_S: Final = (60.0, 3600.0)
"""The first and the longest time for which no more is asked for after a refusal."""

LOOK_S_MAX: Final = 2.0
"""The longest time between two looks for which links that were there at both count as having been there."""


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
        self._full_at: float | None = None
        """When it was last looked at with so many links; None if there were fewer."""
        self._full_s = 0.0
        """How long there have been so many, in all."""
        self._ends_all = False
        """The remote ends a session or the connection for a link too many, and may take its time."""
        self._first_refused: object = None
        """The link whose refusal has set the present limit."""
        self._limit_before: int | None = None
        """The limit that was known before that refusal."""
        self._own: dict[object, RefusalBackOff] = {}
        """Links that the remote has refused for reasons of their own; when a refusal may count again."""

    @property
    def _taken(self) -> int | None:
        return None if self.links_max is None else self.links_max - self._is_probing

    def _bound(self, links_max: int | None, *, is_probing: bool = False) -> None:
        self.links_max, self._is_probing = links_max, is_probing
        self._full_at, self._full_s = None, 0.0

    # ------------------------------------------------------------------------------------------------ refusals

    def refused(self, link: object, others: int, now: float) -> bool:
        """The remote has refused that link, while so many others were attached. Returns whether their number is taken
        to be the reason: not if there are none, or if the remote refused the same link before, beside more others; nor
        for a while after that."""
        own = self._own.get(link)
        if own is not None and now < own.due_at:
            return False
        taken = self._taken
        is_first = link is self._first_refused
        if not others or (is_first and taken is not None and others < taken):
            if is_first or (taken == 1 and self._first_refused is not None):
                self._own.setdefault(link, RefusalBackOff()).refused(now)
                self._withdraw(self._limit_before if is_first else None, now)
            return False
        if taken is None or others < taken:
            self._limit_before, self._first_refused = taken, link
        if taken is None or self._is_probing:
            self._back_off.refused(now)
        if self._is_probing:
            self._ends_all = False
        self._bound(others)
        return True

    def _withdraw(self, limit: int | None, now: float) -> None:
        """The number of links was not the reason of the refusal that has set the present limit."""
        self._bound(limit)
        self._first_refused = None
        self._back_off.accepted(now)

    def served(self, link: object) -> None:
        """The remote has taken that link for a while: it has no reason of its own."""
        self._own.pop(link, None)

    def forget(self, link: object) -> None:
        """There is no such link any more."""
        self._own.pop(link, None)
        if link is self._first_refused:
            self._first_refused = None

    def connection_ended(self, links: int, now: float, *, is_limit: bool) -> None:
        """The connection has ended, with so many links. `is_limit`: the remote ended it because of their number, as far
        as is known; while it is probed, that is taken to be the reason of any end."""
        taken = self._taken
        if self._is_probing:
            self._bound(taken)
        elif is_limit and links > 1:
            self._bound(max(1, min(links, taken or links) // 2))
        else:
            return
        self._ends_all = True
        self._first_refused = None
        self._back_off.refused(now)

    # ------------------------------------------------------------------------------------------------ more of them

    def try_more(self, served: int, now: float) -> None:
        """Links wait, and so many are attached: if these are `links_max`, the remote takes them, and it is probed with
        one more when that is due. One that ends all of them takes so many once they have been there for ANSWER_S, apart
        from turns."""
        if self.links_max is None:
            return
        if served < self.links_max:
            self._full_at = None
            return
        if self._full_at is not None:
            self._full_s += min(now - self._full_at, LOOK_S_MAX)
        self._full_at = now
        if self._is_probing:
            if self._ends_all and self._full_s < ANSWER_S:
                return
            self._is_probing = False
            self._back_off.accepted(now)
        if now >= self._back_off.due_at:
            self._bound(self.links_max + 1, is_probing=True)
