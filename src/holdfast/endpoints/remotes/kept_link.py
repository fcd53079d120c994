"""A link to a remote that is attached again whenever it has ended, rests where its messages are not taken, and leaves
its slot to another where the remote allows too few (link_slots.py).

Rules of this file: every wait is bounded, and becomes longer until a message passes.
"""

from collections.abc import Callable
from typing import Final, Protocol

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.conditions import RESOURCE_LIMIT_EXCEEDED
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.engine.back_off import back_off_s
from holdfast.engine.clock import Clock
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.peers.peer import Peer

WAIT_S: Final = (1.0, 60.0)
"""The first and the longest wait after a link was refused, or a message was released."""

ANSWER_S: Final = 30.0
"""How long a remote may take to answer a begin, after which the connection ends, or an attach, after which the link is
reported."""

AT_ONCE_S: Final = 1.0
"""A link that the remote ends so soon after its attach was refused: some brokers answer the attach first."""

LEAVE_S: Final = 10.0
"""How long a link that is to leave its slot waits for the answers to what is under way, after which it stays."""

REASON_CHARACTERS_MAX: Final = 300
"""Characters of a remote's reason."""

SPELT_OUT_BYTES: Final = 64
"""A longer address of this node is not in an attach, which must fit a frame of the remote: it needs only its own."""


def spelt_out(address: str) -> str | None:
    """What an attach has of an address of this node."""
    return address if len(address.encode()) <= SPELT_OUT_BYTES else None


class Serving(Protocol):
    """What serves the link once it is attached."""

    @property
    def must_stay(self) -> bool:
        """Whether the link must not be detached now: a message or an outcome is under way on it or may be, or messages
        that the remote settled wait here and would be lost."""

    def hand_back(self) -> None:
        """The node is about to end the link, on which nothing is under way: returns what waits here for room."""

    def leave(self) -> None:
        """The link is to leave its slot: nothing new passes, and what is under way comes to its end."""

    def go_on(self) -> None:
        """The rest is over, or the link keeps its slot."""

    def forget(self) -> None:
        """The node has ended the link."""


class KeptLink:
    """One link. Until it is attached this is its context, then the object that serves it."""

    def __init__(self, clock: Clock, name: str, resting: "dict[KeptLink, None]") -> None:
        """`resting`: has each link with a `due_at`."""
        self.clock = clock
        self.name = name
        self._resting = resting
        self.peer: Peer | None = None
        self.link: Sender | Receiver | None = None
        self.serving: Serving | None = None
        self._due_at: float | None = None
        self._attached_at = 0.0
        self.turn_since = 0.0
        """Since when it has its slot, or has it again."""
        self.leaving = False
        """It is to leave its slot, and nothing new passes."""
        self.reason = ""
        """Why it ended, was refused, or rests; empty while it works."""
        self.passed_total = 0
        """Messages that have passed."""
        self.passed_at = 0.0
        """When the last one has."""
        self._waits = 0
        self.log: Callable[[str], None] = lambda text: None
        self.refused: Callable[[KeptLink], bool] = lambda link: False
        """Called if the remote refuses it with amqp:resource-limit-exceeded; returns whether it waits for a turn."""
        self.exceeded: Callable[[], None] = lambda: None
        """Called if the remote ends its session or the connection with amqp:resource-limit-exceeded."""

    @property
    def due_at(self) -> float | None:
        """When it is attached again, goes on, or is reported because the remote has not answered; None: it is attached
        and goes on, or there is no connection."""
        return self._due_at

    @due_at.setter
    def due_at(self, at: float | None) -> None:
        self._due_at = at
        if at is None:
            self._resting.pop(self, None)
        else:
            self._resting[self] = None

    # ------------------------------------------------------------------------------------------------ each kind's

    def begin(self, session: Session, name: str) -> Sender | Receiver:
        """Attaches the link under that name."""
        raise AssertionError("each kind of link attaches its own")

    def serve(self, peer: Peer) -> Serving:
        """Creates what serves the link, which the remote has answered; it is the link's context. Raises Refusal,
        ConfigError."""
        raise AssertionError("each kind of link has its own")

    @property
    def wants(self) -> bool:
        """Whether it has something to do, as far as is known, while it has no slot."""
        raise AssertionError("each kind of link has its own")

    @property
    def is_idle(self) -> bool:
        """Whether others may have its slot at once."""
        raise AssertionError("each kind of link has its own")

    # ------------------------------------------------------------------------------------------------ attaching

    def attach(self, peer: Peer, session: Session, number: int) -> None:
        """Attaches it in that session. `number`: of the link, because a former link of this address may not have ended
        at the remote yet."""
        self.due_at = None
        self.peer = peer
        try:
            self.link = self.begin(session, " ".join(filter(None, (spelt_out(self.name), str(number)))))
        except LocalProtocolError as error:
            self.wait(f"no link to it can be attached: {error}")
            return
        self.link.context = self
        self.due_at = self.clock.now + ANSWER_S
        peer.touch()

    def attached(self) -> None:
        """The remote has accepted the link."""
        link, peer = self.link, self.peer
        assert link is not None and peer is not None
        self.due_at = None
        self._attached_at = self.turn_since = self.clock.now
        try:
            self.serving = self.serve(peer)
            self.reason = ""
        except (Refusal, ConfigError) as error:
            link.detach(closed=True)
            self.link = link.context = None
            self.wait(error.description if isinstance(error, Refusal) else str(error))

    # ------------------------------------------------------------------------------------------------ waiting

    def wait(self, reason: str) -> None:
        """It waits, for longer each time, unless it does already."""
        if self.due_at is None:
            self.due_at = self.clock.now + back_off_s(WAIT_S, self._waits)
            self._waits += 1
        self._report(reason)

    def _report(self, reason: str) -> None:
        reason = reason[:REASON_CHARACTERS_MAX]
        if reason != self.reason:
            self.log(f"{self.name}: {reason}")
        self.reason = reason

    def passed(self, count: int) -> None:
        """So many messages have passed."""
        self.passed_total += count
        self.passed_at = self.clock.now
        self._waits = 0

    @property
    def rests(self) -> bool:
        """Whether no message is to pass now."""
        return self.due_at is not None or self.leaving

    # ------------------------------------------------------------------------------------------------ its slot

    @property
    def must_stay(self) -> bool:
        """As `Serving.must_stay`; False if it is not attached."""
        return self.serving is not None and self.serving.must_stay

    def leave(self) -> None:
        """Another link waits for its slot: nothing new passes."""
        self.leaving = True
        if self.serving is not None:
            self.serving.leave()

    def stay(self) -> None:
        """It keeps its slot."""
        self.leaving = False
        self.turn_since = self.clock.now
        if self.serving is not None:
            self.serving.go_on()

    def could_not_leave(self) -> None:
        """It was to leave its slot, and keeps it because it must stay for too long."""

    def give_up(self) -> None:
        """Leaves its slot; a rest goes on."""
        due_at = self.due_at
        if self.serving is not None:
            self.serving.hand_back()
        self.end()
        self.due_at = due_at

    # ------------------------------------------------------------------------------------------------ its end

    def ended(self) -> None:
        """The link has ended: it is attached again later, unless the connection ends."""
        link, self.link, serving, self.serving = self.link, None, self.serving, None
        self.leaving = False
        error = None if link is None else link.error
        limited = error is not None and error.condition == RESOURCE_LIMIT_EXCEEDED
        if limited and link is not None and not link.session.usable:
            self.exceeded()
            limited = False  # it was not refused itself
        if self.peer is None or not self.peer.amqp.usable:
            self.let_go()
            return
        if serving is None:
            self.due_at = None  # it waited for the answer
        elif self.clock.now - self._attached_at >= WAIT_S[1]:
            self._waits = 0  # a remote may end links that are idle
        at_once = serving is None or self.clock.now < self._attached_at + AT_ONCE_S
        if limited and at_once and self.due_at is None and self.refused(self):
            self.reason = ""
            return
        self.wait("its link has ended" if error is None else error.text)

    def let_go(self) -> None:
        """The connection has ended; what serves the link was told before."""
        self.peer = self.link = self.serving = None
        self.due_at = None
        self.leaving = False

    def go_on(self) -> None:
        """The wait is over."""
        self.due_at = None
        if self.serving is None:
            self._report(f"the remote has not answered the attach for {ANSWER_S:g} s")
        else:
            self.reason = ""
            self.serving.go_on()

    def end(self) -> None:
        """Ends the link for good."""
        link, serving, peer = self.link, self.serving, self.peer
        self.let_go()
        if link is not None and peer is not None:
            link.detach(closed=True)
            link.context = None
            peer.touch()
        if serving is not None:
            serving.forget()

    # ------------------------------------------------------------------------------------------------ as a context

    def gone(self, unsettled: object = None) -> None:
        """The link has ended before it was attached."""
        self.ended()

    def credited(self) -> None:
        """Credit that came before the answer counts once it is attached."""
