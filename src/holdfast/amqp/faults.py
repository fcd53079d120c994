"""Inside the engine: what a peer did wrong, and how far it reaches. AMQP 1.0 §2.8.15 to §2.8.18.

Rules of this file: raised below `Connection.receive`, caught and answered there, never seen outside. A plain
RemoteProtocolError ends the connection.
"""

from typing import TYPE_CHECKING

from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol
from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.events import ConnEvent
    from holdfast.amqp.link import Link
    from holdfast.amqp.session import Session


class Fault(RemoteProtocolError):
    """Ends less than the connection."""

    def answer(self, events: "list[ConnEvent]") -> None:
        """End what is at fault, and tell both sides."""
        raise AssertionError("a fault is a session's or a link's")

    @property
    def error(self) -> Error:
        """As the peer is told."""
        return Error(Symbol(self.condition), self.description)


class SessionFault(Fault):
    """Ends the session."""

    def __init__(self, session: "Session", condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.session = session

    def answer(self, events: "list[ConnEvent]") -> None:
        self.session.fault(self.error, events)


class LinkFault(Fault):
    """Detaches the link."""

    def __init__(self, link: "Link", condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link

    def answer(self, events: "list[ConnEvent]") -> None:
        self.link._fault(self.error, events)
