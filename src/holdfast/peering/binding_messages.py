"""Messages of federation, which neighbours send each other over control links (docs/federation.md, docs/adr/0081).

Rules of this file: a message is decoded when it arrives, and applied within the turn's share; a malformed one, or one
too many, ends its session. Messages that wait keep back credit, so a neighbour that leaves BINDINGS_RESERVE of it never
sends too many. One outgoing message at a time is taken from federation, and kept until the control link accepts it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.federation.aliases import Malformed
from holdfast.federation.federation import CREDIT_KEPT, Federation
from holdfast.federation.messages import Federate, Message
from holdfast.federation.weight import held_bytes
from holdfast.peers.limits.memory import Memory
from holdfast.peers.neighbours.session_port import BINDINGS_RESERVE, Session
from holdfast.units import MIB

EFFORT_A_TURN: Final = 2_000
"""Messages of one neighbour that one turn applies, in units of small messages (`Federation.effort`)."""

WAITING_MAX: Final = 1_000
"""Messages of one neighbour that wait for a later turn; one more ends its session."""

WAITING_BYTES_MAX: Final = 16 * MIB
"""Of memory that they take; less where memory is little."""

MESSAGES_A_TURN: Final = 64
"""Messages that one turn sends to one neighbour."""


class BindingMessages:
    """The messages of all neighbours. `lost`: called when a neighbour sent an invalid message and its session has
    ended."""

    def __init__(self, neighbours: Mapping[str, Session], lost: Callable[[Session], None], memory: Memory) -> None:
        self._neighbours = neighbours
        self._lost = lost
        self.eager: dict[str, None] = {}
        """Neighbours to which something may have to be sent."""
        self.unsent: dict[str, dict[str, Any]] = {}
        """Messages that found no credit: at most one for each neighbour."""
        self.waiting: dict[str, deque[Message]] = {}
        """By neighbour: messages beyond one turn's share."""
        self.waiting_bytes: dict[str, int] = {}
        self._account = memory.bindings
        self._bytes_max = min(WAITING_BYTES_MAX, max(MIB, self._account.held_max))
        memory.held_in(self._account, lambda: sum(self.waiting_bytes.values()))
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
        self._account.refund(self.waiting_bytes.pop(name, 0))
        for of_sessions in (self.eager, self.unsent, self.waiting):
            of_sessions.pop(name, None)

    def keep_only(self, federation: Federation) -> None:
        """After a failure: forgets neighbours without a session."""
        for name in {*self.eager, *self.unsent, *self.waiting} - federation.neighbours.keys():
            self.forget(name)

    # ------------------------------------------------------------------------------------------------ received

    def receive(self, federation: Federation, session: Session, fields: dict[Any, Any]) -> None:
        """Handles a control message as it was received."""
        name = session.name
        try:
            message = federation.read(name, fields)
            if message is None:
                return
            if name not in self.waiting and self._spent.get(name, 0) < EFFORT_A_TURN:
                self._apply(federation, name, message)
            else:
                self._keep(name, message)
        except Malformed as error:
            self._end(session, error)

    def count(self, name: str) -> int:
        """How many of its messages wait."""
        waiting = self.waiting.get(name)
        return 0 if waiting is None else len(waiting)

    def _keep(self, name: str, message: Message) -> None:
        """For a later turn. Raises Malformed."""
        size = held_bytes(message)
        held = self.waiting_bytes.get(name, 0) + size
        if self.count(name) >= WAITING_MAX or held > self._bytes_max:
            text = f"more than {WAITING_MAX} messages, or {self._bytes_max} bytes of them, wait"
            raise Malformed(f"{text}; expected them at the rate at which they are read")
        self.waiting.setdefault(name, deque()).append(message)
        self.waiting_bytes[name] = held
        self._account.add(size)

    def _take(self, name: str) -> Message:
        """The first that waits."""
        waiting = self.waiting[name]
        message = waiting.popleft()
        size = held_bytes(message)
        self.waiting_bytes[name] -= size
        self._account.refund(size)
        if not waiting:
            del self.waiting[name], self.waiting_bytes[name]
        return message

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
            try:
                while name in self.waiting and self._spent.get(name, 0) < EFFORT_A_TURN:
                    self._apply(federation, name, self._take(name))
            except Malformed as error:
                self._end(self._neighbours[name], error)
            self._neighbours[name].refill()
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
            if not session.send(message, reserve=BINDINGS_RESERVE):
                self.unsent[name] = message
                return False
        return True
