"""Inside the engine: what a peer did wrong, and how far it reaches. AMQP 1.0 §2.8.15 to §2.8.18.

Rules of this file: raised below `Connection.receive`, caught in it, never seen outside. A plain
RemoteProtocolError ends the connection.
"""

from typing import TYPE_CHECKING

from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.link import Link
    from holdfast.amqp.session import Session


class SessionFault(RemoteProtocolError):
    """Ends the session."""

    def __init__(self, session: "Session", condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.session = session


class LinkFault(RemoteProtocolError):
    """Detaches the link."""

    def __init__(self, link: "Link", condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link
