"""Errors of a peer within the engine, and what each of them ends. AMQP 1.0 §2.8.15 to §2.8.18.

Rules of this file: raised below `Connection.receive`, caught there and answered by the session, never seen outside. A
plain RemoteProtocolError ends the connection.
"""

from holdfast.amqp.links.link import Link
from holdfast.amqp.links.ports import SessionPort
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import RemoteProtocolError


class Fault(RemoteProtocolError):
    """An error that ends less than the connection: the session on our `channel`, or only its `link`."""

    def __init__(self, channel: int, link: Link | None, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.channel = channel
        self.link = link

    @property
    def error(self) -> Error:
        """The error that is sent to the peer."""
        return Error(Symbol(self.condition), self.description)


class SessionFault(Fault):
    """Ends the session."""

    def __init__(self, session: SessionPort, condition: str, description: str) -> None:
        super().__init__(session.channel, None, condition, description)


class LinkFault(Fault):
    """Detaches the link."""

    def __init__(self, link: Link, condition: str, description: str) -> None:
        super().__init__(link.session.channel, link, condition, description)
