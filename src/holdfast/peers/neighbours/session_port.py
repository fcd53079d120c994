"""The interfaces between a session with a neighbour and the parts that use its control link or follow its state.

Rules of this file: types alone (peering/sessions.py has the session).
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final, Protocol

from holdfast.peers.neighbours.session_states import State

CONTROL_RESERVE: Final = 16
"""Of the credit that the peer gives on the control link, what is kept for probes and echoes."""

BINDINGS_RESERVE: Final = 64
"""The same where bindings are told, of which there may be many: what is kept for all else. A peer that has not taken in
what it was told gives no more credit than that."""


class Session(Protocol):
    """`offered`: whether routing may use the link, because it is Established and not damped. `established_count`: how
    often it was Established since this node's start. `refill`: may give it more credit for control messages, because
    fewer of its messages wait."""

    refill: Callable[[], None]

    @property
    def name(self) -> str:
        """The neighbour's."""

    @property
    def state(self) -> State: ...
    @property
    def established(self) -> bool: ...
    @property
    def established_count(self) -> int: ...
    @property
    def offered(self) -> bool: ...
    @property
    def features(self) -> Set[str]:
        """The features that both nodes have; none without a session."""

    def drop(self, reason: str) -> None:
        """Ends the session, if it is up, because the neighbour sent an invalid message."""

    def send(self, fields: dict[str, Any], *, reserve: int = CONTROL_RESERVE) -> bool:
        """Sends a control message; False if the link has no credit beyond `reserve`, and the message is dropped."""


ControlHandler = Callable[[Session, dict[Any, Any]], None]
"""Handles a control message of its kind, with unchecked fields."""

ControlHandlers = Mapping[str, ControlHandler]


class ControlKinds(dict[str, ControlHandler]):
    """The handlers of control messages that sessions do not handle themselves, by their kind."""

    def add(self, hears: ControlHandlers) -> None:
        """Registers handlers of kinds that have none yet; each kind has one handler."""
        assert self.keys().isdisjoint(hears), f"control messages with two hearers: {self.keys() & hears}"
        self.update(hears)


class Routing(Protocol):
    """Is notified of the links that it may use."""

    def link_up(self, neighbour: Session) -> None: ...
    def link_down(self, neighbour: Session) -> None:
        """The link is down; also called if it was not up and a dial failed."""

    def cost_measured(self, neighbour: Session, round_trip_s: float, loss_share: float, backlog_bytes: int) -> None:
        """The session has measured a link that is up; `loss_share`: of probes, 0 to 1."""
