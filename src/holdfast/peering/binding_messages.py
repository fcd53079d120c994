"""Messages of federation, which neighbours send each other over control links (docs/federation.md, docs/adr/0081).

Rules of this file: a message is decoded when it arrives, and applied within the turn's share; a malformed one, or one
too many, ends its session. One outgoing message at a time is taken from federation, and kept until the control link
accepts it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.federation.aliases import Malformed
from holdfast.federation.federation import CREDIT_KEPT, Federation
from holdfast.federation.messages import Federate, Message
from holdfast.peers.neighbours.session_port import Session

EFFORT_A_TURN: Final = 2_000
"""Messages of one neighbour that one turn applies, in units of small messages (`Federation.effort`)."""

WAITING_MAX: Final = 1_000
"""Messages of one neighbour that wait for a later turn; one more ends its session."""

MESSAGES_A_TURN: Final = 64
"""Messages that one turn sends to one neighbour."""


class BindingMessages:
    """The messages of all neighbours. `lost`: called when a neighbour sent an invalid message and its session has
    ended."""

    def __init__(self, neighbours: Mapping[str, Session], lost: Callable[[Session], None]) -> None:
        self._neighbours = neighbours
        self._lost = lost
        self.eager: dict[str, None] = {}
        """Neighbours to which something may have to be sent."""
        self.unsent: dict[str, dict[str, Any]] = {}
        """Messages that found no credit: at most one for each neighbour."""
        self.waiting: dict[str, deque[Message]] = {}
        """By neighbour: messages beyond one turn's share."""
        self._spent: dict[str, int] = {}
        """By neighbour: effort spent in this turn."""
        self.unsettled = False
        """Whether a message was applied since its consequences were last computed."""
        self.heard_modes = False
        """Whether a neighbour may forward other topics here than before; the reader resets it."""

    @property
    def is_due(self) -> bool:
        """Whether the next turn has something to do here."""
        return bool(self.eager or self.waiting or self.unsettled or self.heard_modes)

    # ------------------------------------------------------------------------------------------------ sessions

    def begin(self, name: str) -> None:
        """Its session is up: drops messages of an earlier session."""
        self.unsent.pop(name, None)

    def forget(self, name: str) -> None:
        """Its session has ended."""
        for of_sessions in (self.eager, self.unsent, self.waiting):
            of_sessions.pop(name, None)

    def keep_only(self, federation: Federation) -> None:
        """After a failure: forgets neighbours without a session."""
        for of_sessions in (self.eager, self.unsent, self.waiting):
            for name in [name for name in of_sessions if name not in federation.neighbours]:
                del of_sessions[name]

    # ------------------------------------------------------------------------------------------------ received

    def receive(self, federation: Federation, session: Session, fields: dict[Any, Any]) -> None:
        """Handles a control message as it was received."""
        name = session.name
        try:
            message = federation.read(name, fields)
            if message is None:
                return
            waiting = self.waiting.get(name)
            if waiting is None and self._spent.get(name, 0) < EFFORT_A_TURN:
                self._apply(federation, name, message)
            elif waiting is None or len(waiting) < WAITING_MAX:
                self.waiting.setdefault(name, deque()).append(message)
            else:
                raise Malformed(f"more than {WAITING_MAX} wait; expected them at the rate at which they are read")
        except Malformed as error:
            self._end(session, error)

    def _apply(self, federation: Federation, name: str, message: Message) -> None:
        self._spent[name] = self._spent.get(name, 0) + federation.effort(name, message)
        self.heard_modes = self.heard_modes or isinstance(message, Federate)
        self.unsettled = True
        federation.apply(name, message)

    def _end(self, session: Session, error: Malformed) -> None:
        session.drop(f"invalid message of federation: {error}")
        self._lost(session)

    def settle(self, federation: Federation, now: float) -> bool:
        """Applies waiting messages within the turn's share, then their consequences; returns whether there were any."""
        self._spent.clear()
        for name in list(self.waiting):
            waiting = self.waiting[name]
            try:
                while waiting and self._spent.get(name, 0) < EFFORT_A_TURN:
                    self._apply(federation, name, waiting.popleft())
            except Malformed as error:
                self._end(self._neighbours[name], error)
            if not waiting:
                self.waiting.pop(name, None)
        if not self.unsettled:
            return False
        self.unsettled = False
        federation.settle(now)
        return True

    # ------------------------------------------------------------------------------------------------ sent

    def send(self, federation: Federation, now: float) -> None:
        """Sends due messages as far as there is credit."""
        for name in list(self.eager):
            if not self._send_to(federation, self._neighbours[name], now):
                self.eager.pop(name, None)

    def _send_to(self, federation: Federation, session: Session, now: float) -> bool:
        """Whether there is more to send, and credit for it."""
        name = session.name
        for _ in range(MESSAGES_A_TURN):
            message = self.unsent.pop(name, None)
            if message is None:
                message = next(iter(federation.take(name, CREDIT_KEPT + 1, now)), None)
            if message is None:
                return False
            if not session.send(message):
                self.unsent[name] = message
                return False
        return True
