"""The slots for links on the connection to a remote: a link needs one to be attached. First further sessions are begun,
then links take turns.

Rules of this file: a remote says how many links a session takes (handle-max, AMQP 1.0 §2.7.2) and how many sessions a
connection (channel-max, §2.7.1); neither is exceeded. Some take fewer than they say (refused.py). Beyond, one link at a
time leaves its slot, once nothing on it waits for an answer. Source: docs/adr/0114-places-at-a-remote.md.
"""

from collections.abc import Callable, Iterator
from typing import Final

from holdfast.amqp.session.session import Session
from holdfast.endpoints.remotes.kept_link import ANSWER_S, LEAVE_S, KeptLink
from holdfast.endpoints.remotes.refused import RefusalBackOff, RefusedLinks
from holdfast.engine.clock import Clock
from holdfast.peers.peer import Peer

LOOK_S: Final = 1.0
"""How often the slots are looked at while a link waits for one, or is to leave its own."""

TURN_S: Final = 10.0
"""How long a link that has something to do keeps its slot while others wait."""


class LinkSlots:
    """The slots on the connection that the remote has now. `waiting`: links without one, the one that has waited
    longest first."""

    def __init__(self, clock: Clock, attach: Callable[[KeptLink, Peer, Session], None]) -> None:
        self._clock = clock
        self._attach = attach
        self.peer: Peer | None = None
        """None before the first session is begun."""
        self.waiting: dict[KeptLink, None] = {}
        self.holders: dict[KeptLink, None] = {}
        """Links that were given a slot."""
        self.due_at: float | None = None
        self._count = 0
        """Sessions that there should be."""
        self.further_sessions = RefusalBackOff()
        """When a further session may be begun, as far as the remote has refused some."""
        self.refused_links = RefusedLinks()
        self._given_at = 0.0
        """When the last link was attached."""
        self._too_many = False
        """The remote has ended a session or the connection with amqp:resource-limit-exceeded, soon after a link was
        attached, and there has been no session since: its number of links is taken to be the reason."""
        self._asked_at = 0.0
        """When the last one was begun."""
        self._tried_at: float | None = None
        """The same, as long as it is not known whether the remote takes that session and keeps the connection."""
        self._leaving: KeptLink | None = None
        self._leaving_since = 0.0
        self._no_session_to_come = False
        """Links wait for a slot, and no further session is to come."""

    def begin(self, peer: Peer) -> bool:
        """A session was begun. Returns whether links can be attached: whether both sides have begun a session."""
        self.peer = peer
        self._asked_at = self._clock.now
        if not self.sessions:
            self.peer = None
        return self.peer is not None

    def end(self) -> None:
        """The connection has ended; what the remote has refused is remembered."""
        if self._tried_at is not None and self._clock.now < self._tried_at + ANSWER_S:
            self._refused_session()
        else:
            self.refused_links.connection_ended(len(self.holders), self._clock.now, is_limit=self._too_many)
        self._tried_at = None
        self._too_many = False
        self.peer = self.due_at = self._leaving = None
        self.waiting.clear()
        self.holders.clear()
        self._count = 0
        self._no_session_to_come = False

    # ------------------------------------------------------------------------------------------------ sessions

    @property
    def sessions(self) -> list[Session]:
        """Those that both sides have begun, in which links may be attached."""
        found = [] if self.peer is None else self.peer.amqp.sessions
        return [session for session in found if session.usable and session.remote_channel is not None]

    @property
    def links_max(self) -> int:
        """Links that the sessions take, as far as the remote takes so many."""
        most, known = sum(map(_most_in, self.sessions)), self.refused_links.links_max
        return most if known is None else min(most, known)

    @property
    def why(self) -> str:
        """Why there are no more slots."""
        if self._is_at_known_limit:
            return "the remote has refused more"
        if self.further_sessions.is_any:
            return "the remote has refused further sessions"
        return "handle-max and channel-max of both sides"

    @property
    def _is_at_known_limit(self) -> bool:
        """Whether there are as many links as the remote takes, in whichever session."""
        known = self.refused_links.links_max
        return known is not None and sum(len(session.links) for session in self.sessions) >= known

    def _free(self) -> Session | None:
        """A session that takes one more link."""
        if self._is_at_known_limit:
            return None
        return next((session for session in self.sessions if len(session.links) < _most_in(session)), None)

    @property
    def _is_asked(self) -> bool:
        """Whether the remote has not answered a begin yet."""
        assert self.peer is not None
        return any(session.remote_channel is None for session in self.peer.amqp.sessions)

    def _refused_session(self) -> None:
        """The remote takes no further session: none is begun for a while."""
        self._tried_at = None
        self.further_sessions.refused(self._clock.now)

    def _count_sessions(self, now: float) -> None:
        """A remote may end each further session, or one with a link that it refuses."""
        if not self._is_asked:
            count = len(self.sessions)
            if count < self._count:
                self._refused_session()
            elif self._tried_at is not None and now >= self._tried_at + ANSWER_S:
                self._tried_at = None
                self.further_sessions.accepted(now)
            self._count = count

    def _ask_for_session(self, now: float) -> bool:
        """Begins a further session where that is possible; whether one is to come."""
        peer = self.peer
        assert peer is not None
        if self._is_at_known_limit:
            return False
        if self._is_asked:
            if now < self._asked_at + ANSWER_S:
                return True
            if self._tried_at is not None:
                self._refused_session()
            return False
        if not peer.amqp.usable or peer.amqp.session_count >= peer.amqp.channels or now < self.further_sessions.due_at:
            return False
        self._asked_at = self._tried_at = now
        self._count += 1
        peer.amqp.begin()
        peer.touch()
        return True

    # ------------------------------------------------------------------------------------------------ who has a slot

    def ask(self, link: KeptLink) -> None:
        """The link needs a slot: it is attached now, or when its turn comes."""
        self.holders.pop(link, None)
        self.waiting[link] = None
        self.give()

    def link_refused(self, link: KeptLink) -> bool:
        """The remote has refused the link with amqp:resource-limit-exceeded. Returns whether the number of links is
        taken to be the reason, so that the link waits for its turn."""
        others = sum(each.serving is not None for each in self.holders if each is not link)
        if not self.refused_links.refused(link, others, self._clock.now):
            return False
        self.ask(link)
        return True

    def exceeded(self) -> None:
        """The remote has ended a session or the connection with amqp:resource-limit-exceeded. If a link was attached
        less than ANSWER_S ago, its number of links is taken to be the reason; some brokers use the condition for an
        idle connection too."""
        self._too_many = self._clock.now < self._given_at + ANSWER_S

    def drop(self, link: KeptLink) -> None:
        """The link is needed no more."""
        self.waiting.pop(link, None)
        self.holders.pop(link, None)
        self.refused_links.forget(link)

    def give(self) -> None:
        """Gives free slots to links that wait, first to those that have something to do."""
        peer, now = self.peer, self._clock.now
        if peer is None:
            return
        self._count_sessions(now)
        self._too_many = self._too_many and not self.sessions
        for link in self._in_order() if self._free() is not None else ():
            session = self._free()
            if session is None:
                break
            del self.waiting[link]
            self.holders[link] = None
            self._given_at = now
            self._attach(link, peer, session)
        self._no_session_to_come = bool(self.waiting) and not self._ask_for_session(now)
        if not self.waiting and self._leaving is None:
            self.due_at = None
        elif self.due_at is None:  # what is due already is not put off by each link that asks
            self.due_at = now + LOOK_S

    def _in_order(self) -> Iterator[KeptLink]:
        """Links that wait, those first that have something to do; each is looked at once."""
        idle = []
        for link in list(self.waiting):
            if link.wants:
                yield link
            else:
                idle.append(link)
        yield from idle

    @property
    def turns(self) -> list[KeptLink]:
        """Links that wait for their turn with something to do."""
        return [link for link in self.waiting if link.wants] if self._no_session_to_come else []

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Gives free slots, and has one link leave its own if others still wait."""
        if self.due_at is None or now < self.due_at:
            return
        self.due_at = None
        self.give()
        wanted = bool(self.turns)
        if wanted:
            self.refused_links.try_more(sum(link.serving is not None for link in self.holders), now)
        if self._leaving is not None:
            self._look_at_leaving(self._leaving, now, wanted=wanted)
        elif wanted and not self._is_ending():
            self._choose(now)

    def _is_ending(self) -> bool:
        """Whether the remote has not answered the detach of a link yet, whose slot is free then."""
        return any(link.detach_sent for session in self.sessions for link in session.links.values())

    def _choose(self, now: float) -> None:
        """Has a link leave: an idle one, or one that has had its turn."""
        served = sorted((link for link in self.holders if link.serving is not None), key=lambda link: link.turn_since)
        found = next((link for link in served if link.is_idle), None)
        found = found or next((link for link in served if now >= link.turn_since + TURN_S), None)
        if found is not None:
            self._leaving, self._leaving_since = found, now
            found.leave()

    def _look_at_leaving(self, link: KeptLink, now: float, *, wanted: bool) -> None:
        if not link.leaving:  # its link has ended meanwhile
            self._leaving = None
        elif not wanted or (link.must_stay and now >= self._leaving_since + LEAVE_S):
            self._leaving = None
            if wanted:
                link.could_not_leave()
            link.stay()
        elif not link.must_stay:
            self._leaving = None
            self.refused_links.served(link)
            link.give_up()
            if link.due_at is None:
                self.ask(link)
            else:
                self.holders.pop(link, None)


def _most_in(session: Session) -> int:
    """Links that the session takes: each needs a handle at both ends."""
    return min(session.handle_max_out, session.connection.settings.handle_max) + 1
